"""What flows straight through a slot, kept as runs instead of messages.

Nearly always a client with a durable session gets what is published at QoS 1, connected to the node that owns its slot
or to another: the messages of a pass come side by side, are sent in that order and acknowledged in it. While that is
all that there is for a client, its queue and its window are runs: messages of one origin on one topic, with one place
and one stamp after the other, and packet ids that follow each other. A run comes, is written, sent and done as one.

Who looks at the messages, queues or windows of the state finds all of them one by one (`SlotQueues.spread`), and
whatever is not as above begins with that. Records say the same in either form. What is under way is written late
(`SlotState.tell_late`): at QoS 1 nobody waits for it.
"""

from collections import deque
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.slots.queued import (
    PLACES,
    RUN,
    RUN_BYTES,
    QueueBlock,
    Sending,
    SharedRecord,
    StoredMessage,
)
from vmq.clustering.slots.register import AnyFlow, ClientRegister, SentMessage
from vmq.clustering.slots.words import SEND, Dot

#: The packet ids of a session; those above are for what its connection is sent besides.
PACKETS: Final = 32_767


@mypyc_attr(acyclic=True)
class FlowRun:
    """Messages at QoS 1 for one client: the first is at `place` of its origin, and was stamped with `stamp`."""

    def __init__(
        self,
        origin: int,
        place: int,
        stamp: int,
        topic: bytes,
        payloads: list[bytes],
        scope: str,
        retain: bool,
    ) -> None:
        self.origin = origin
        self.place = place
        self.stamp = stamp
        self.topic = topic
        self.payloads = payloads
        self.scope = scope
        self.retain = retain
        self.count: i64 = len(payloads)
        #: So many of them were sent, and are done.
        self.sent: i64 = 0
        self.done: i64 = 0
        #: The record that they are in; None: they are in none yet.
        self.record: SharedRecord | None = None
        #: Their publisher is answered when all are done, though they are in no record (`OwnedSlot.when_had`).
        self.is_awaited = False
        #: The store to which their client is connected.
        self.front = 0

    def size(self, first: i64, end: i64) -> i64:
        """Bytes of some of them."""
        payloads = self.payloads
        size: i64 = len(self.topic) * (end - first)
        while first < end:
            size += len(payloads[first])
            first += 1
        return size

    def fitting(self, first: i64, end: i64, room: i64) -> i64:
        """How many of some of them have no more bytes than there is room."""
        payloads = self.payloads
        topic: i64 = len(self.topic)
        found: i64 = 0
        while first + found < end:
            room -= topic + len(payloads[first + found])
            if room < 0:
                break
            found += 1
        return found

    def message(self, at: int) -> StoredMessage:
        """One of them."""
        stamp, topic, payload = self.stamp + at, self.topic, self.payloads[at]
        return StoredMessage(stamp, topic, payload, 1, self.scope, 0, self.retain)

    def entry(self) -> list[Any]:
        """What is not done, as a record has it."""
        done = self.done
        payloads = self.payloads if done == 0 else self.payloads[done:]
        place, stamp = self.place + done, self.stamp + done
        plain: list[Any] = [self.origin, place, stamp, self.topic, payloads, 1, self.scope]
        if self.retain:
            plain += [0, True]
        return plain


@mypyc_attr(acyclic=True)
class SendingRun:
    """Some messages of a run on their way to the client, from one on, under packet ids from one on."""

    def __init__(self, slot: int, packet: int, run: FlowRun, at: int, count: i64) -> None:
        self.slot = slot
        self.packet = packet
        self.run = run
        self.at = at
        self.count = count
        #: So many were acknowledged, as the client's front knows.
        self.acknowledged: i64 = 0
        #: The dot of the first that was offered with them, if nobody else is to get them; place 0: others may be.
        self.offered: Dot = (run.origin, 0)

    def payloads(self) -> list[bytes]:
        return self.run.payloads[self.at : self.at + self.count]

    def step(self) -> SessionStep:
        """They, as they go over a link."""
        run, payloads = self.run, self.payloads()
        return SessionStep(
            SEND,
            self.packet,
            [(self.slot, (run.origin, run.place + self.at), run.scope)],
            topic=run.topic,
            payload=payloads[0],
            qos=1,
            retain=run.retain,
            more=payloads[1:],
            place=self.at + 1 if run.is_awaited else 0,
        )

    def each(self) -> list[Sending]:
        """Those that are not acknowledged, one by one."""
        found = []
        for index in range(self.acknowledged, self.count):
            at = self.at + index
            sent = SentMessage((self.run.origin, self.run.place + at), False, 1)
            found.append(Sending(self.slot, self.packet + index, sent, self.run.message(at), False))
        return found


#: What an owner has for a connection.
Given = SessionStep | Sending | SendingRun


def steps_of(steps: list[Given]) -> list[SessionStep]:
    """These, as they go over a link."""
    return [each if isinstance(each, SessionStep) else each.step() for each in steps]


def packets_from(first: int, count: int) -> list[int]:
    """So many packet ids, from one on."""
    return [first, *[(first + at - 1) % PACKETS + 1 for at in range(1, count)]]


def run_of(step: SessionStep) -> SendingRun:
    """Messages at QoS 1 that came over a link. Their stamps are nothing to a front."""
    slot, (origin, place), scope = step.addresses[0]
    run = FlowRun(origin, place, 0, step.topic, [step.payload, *step.more], scope, step.retain)
    found = SendingRun(slot, step.packet, run, 0, run.count)
    if step.place:
        found.offered = origin, place - step.place + 1
    return found


class SlotQueues:
    """What the clients of a slot lack, and what changed of that since the last commit."""

    def __init__(self) -> None:
        #: Without what flows: the messages; client -> dot -> granted QoS, in the order of stamps; bytes of each queue.
        self.single_messages: dict[Dot, StoredMessage] = {}
        self.single_queues: dict[str, dict[Dot, int]] = {}
        self.single_sizes: dict[str, int] = {}
        #: What flows, by client; clients of whose windows not all is written.
        self.flows: dict[str, ClientFlow] = {}
        self.late: dict[str, None] = {}
        #: Messages and runs that are in no record yet, and records that go.
        self.fresh: list[Dot] = []
        self.fresh_runs: list[FlowRun] = []
        #: Those that are awaited and done since somebody looked.
        self.had: list[FlowRun] = []
        self.gone: list[int] = []
        #: What is in the queues, as their records say it, and which of those changed.
        self.blocks: dict[tuple[str, int, int], QueueBlock] = {}
        self.changed_blocks: list[QueueBlock] = []
        self._block = QueueBlock("", 0, 0)
        #: The last record of messages.
        self.last_run: int = 0

    @property
    def messages(self) -> dict[Dot, StoredMessage]:
        """What somebody lacks."""
        self.spread()
        return self.single_messages

    @property
    def queues(self) -> dict[str, dict[Dot, int]]:
        """What each client lacks: dot -> granted QoS, in the order of stamps."""
        self.spread()
        return self.single_queues

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of that."""
        self.spread()
        return self.single_sizes

    def spread(self) -> None:
        """What flows is in messages, queues and windows from now on, one by one."""
        if self.flows:
            flows, self.flows = self.flows, {}
            for each in flows.values():
                each.pour()
            self.fresh_runs = []

    def block_of(self, client: str, origin: int, number: int) -> QueueBlock:
        """The record of a queue with a block of places, which changes."""
        block = self._block
        if block.number != number or block.origin != origin or block.client != client:
            name = client, origin, number
            found = self.blocks.get(name)
            if found is None:
                found = self.blocks[name] = QueueBlock(client, origin, number)
            self._block = block = found
        if not block.is_changed:
            block.is_changed = True
            self.changed_blocks.append(block)
        return block

    def end_change(self, block: QueueBlock) -> None:
        """A record of a queue is as the block is now."""
        block.is_changed = False
        block.is_stored = not block.is_empty()
        if not block.is_stored:
            del self.blocks[block.client, block.origin, block.number]
            if self._block is block:
                self._block = QueueBlock("", 0, 0)

    def gather_runs(self) -> list[tuple[int, list[Any]]]:
        """Runs that are in no record yet come into new ones: their numbers, and what is in them."""
        found: list[tuple[int, list[Any]]] = []
        fresh, self.fresh_runs = self.fresh_runs, []
        record: SharedRecord | None = None
        size: i64 = 0
        for run in fresh:
            left = run.count - run.done
            if left == 0:
                continue
            if record is None or record.left + left > RUN or size >= RUN_BYTES:
                self.last_run += 1
                record = SharedRecord(self.last_run)
                found.append((record.number, []))
                size = 0
            run.record = record
            record.left += left
            found[-1][1].append(run.entry())
            size += run.size(run.done, run.count)
        return found


class ClientFlow(AnyFlow):
    """What flows to one client."""

    def __init__(self, state: SlotQueues, client: str, register: ClientRegister) -> None:
        super().__init__()
        self._state = state
        self._client = client
        self._register = register
        self._runs: deque[FlowRun] = deque()
        #: Messages that are not done, and those of them that are under way.
        self.waiting: i64 = 0
        self.under_way: i64 = 0
        #: Bytes of both.
        self.size: i64 = 0
        self.sent_size: i64 = 0

    def take(self, run: FlowRun) -> None:
        """A run joins the queue."""
        state = self._state
        if not self.is_open:
            self.is_open = True
            state.flows[self._client] = self
        self._runs.append(run)
        self.waiting += run.count
        self.size += run.size(0, run.count)
        state.fresh_runs.append(run)
        self._mark(run.origin, run.place, run.count, True)

    def _mark(self, origin: int, place: i64, count: i64, is_there: bool) -> None:
        """The records of the queue have these places, or have not."""
        places: i64 = PLACES
        while count > 0:
            block = self._state.block_of(self._client, origin, place // places)
            first = place % places
            many = min(count, places - first)
            block.mark(first, many, is_there)
            place += many
            count -= many

    def first_packet(self) -> int:
        """The oldest packet id under way, or the next one."""
        return (self._register.last_packet - self.under_way) % PACKETS + 1

    def send(self, slot: int, window: int, most: i64) -> list[SendingRun]:
        """Sends as much as the window allows: messages, and bytes of them (-1: any) but for one message."""
        found: list[SendingRun] = []
        room: i64 = min(window, PACKETS - 1) - self.under_way
        if room <= 0 or self.under_way == self.waiting:
            return found
        register, packets = self._register, PACKETS
        for run in self._runs:
            while run.sent < run.count and room > 0:
                packet: i64 = register.last_packet % packets + 1
                count = min(room, run.count - run.sent, packets - packet + 1)
                if most >= 0:
                    count = run.fitting(run.sent, run.sent + count, most - self.sent_size)
                    if count == 0 and self.under_way == 0:
                        count = 1
                    if count == 0:
                        room = 0
                        break
                self.sent_size += run.size(run.sent, run.sent + count)
                found.append(SendingRun(slot, packet, run, run.sent, count))
                run.sent += count
                self.under_way += count
                room -= count
                register.last_packet = packet + count - 1
            if room <= 0:
                break
        self._state.late[self._client] = None
        return found

    def done(self, count: i64) -> None:
        """The client has acknowledged so many of those under way."""
        state = self._state
        self.under_way -= count
        self.waiting -= count
        while count > 0:
            run = self._runs[0]
            many = min(count, run.sent - run.done)
            self._mark(run.origin, run.place + run.done, many, False)
            size = run.size(run.done, run.done + many)
            self.size -= size
            self.sent_size -= size
            run.done += many
            count -= many
            if run.record is not None:
                run.record.left -= many
                if run.record.left == 0:
                    state.gone.append(run.record.number)
            if run.done == run.count:
                self._runs.popleft()
                run.payloads = []  # it may stand in line for a record in which it never is
                if run.is_awaited:
                    state.had.append(run)
        state.late[self._client] = None
        if self.waiting == 0:
            self.is_open = False
            del state.flows[self._client]

    def window_of(self, first: int, count: int) -> list[Any]:
        """What is under way under some packet ids, as the record of these has it."""
        found: list[Any] = []
        packet = self.first_packet()
        for run in self._runs:
            for at in range(run.done, run.sent):
                if first <= packet < first + count:
                    found.append([packet, (run.origin, run.place + at), False, 1, run.stamp + at])
                packet = packet % PACKETS + 1
        return sorted(found)

    def packets(self) -> list[int]:
        """The packet ids under way."""
        first = self.first_packet() - 1
        return [(first + at) % PACKETS + 1 for at in range(self.under_way)]

    def spread(self) -> None:
        self._state.spread()

    def pour(self) -> None:
        """Its messages are in the state's queue and window from now on."""
        self.is_open = False
        state, client, window = self._state, self._client, self._register.single_window
        queue = state.single_queues.setdefault(client, {})
        packets = deque(self.packets())
        size: i64 = 0
        for run in self._runs:
            for at in range(run.done, run.count):
                dot: Dot = (run.origin, run.place + at)
                message = run.message(at)
                message.holders = 1
                message.run = run.record
                if run.record is None:
                    state.fresh.append(dot)
                state.single_messages[dot] = message
                queue[dot] = 1
                size += message.size()
                if at < run.sent:
                    window[packets.popleft()] = SentMessage(dot, False, 1, message.stamp)
        state.single_sizes[client] = size
        state.late[client] = None
        self._runs.clear()
        self.waiting = self.under_way = self.size = self.sent_size = 0
