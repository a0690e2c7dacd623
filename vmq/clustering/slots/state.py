"""The state of a slot: queues, context, registers. It changes in memory, and tells what changed as records.

Everybody who holds a slot holds the same records: the owner writes those that a commit changed to its disk and sends
them to the followers, who put them into theirs as they came. The kinds, by the first byte of a key:

    h                      -> the head: lineage, version, included, last stamp, what it lacks, records of others, up to
                              which one messages are mixed, and the last
    c origin               -> runs of the numbers seen of it
    m run                  -> messages that one version took, each once however many get it: dot, stamp, topic,
                              payload (of messages that flow: those of one after the other, the first with this dot
                              and stamp), QoS, share group, moves; the record goes when all of them are done. Most are
                              on the disk alone (`vmq.clustering.slots.cold`)
    q origin block client  -> which messages of a block of places the client does not have yet, by granted QoS
    r client               -> the register's head
    u client NUL filter    -> stamp, QoS, in which versions of which lineages it began, how it ended, and where it began
                              before it ended earlier, and what had been seen when it began while there may be forks
    i block client         -> packet ids under way to the client: dot, whether PUBREC came, QoS
    x packet id client     -> addresses, digest, front: received from the client at QoS 2

What a version takes and finishes is in none of them. A state contains another if it `includes` the other's version of
its lineage.
"""

from typing import Final

from vmq.clustering.slots.cold import ColdQueues
from vmq.clustering.slots.limits import Limits
from vmq.clustering.slots.queued import WINDOW
from vmq.clustering.slots.register import ClientRegister, ReceivedId, SentMessage
from vmq.clustering.slots.words import (
    NO_LINEAGE,
    UNCLAIMED,
    Dot,
    Lineage,
    above,
    split_scope,
)
from vmq.mqtt.special import is_served
from vmq_cluster.clocks import NodeClock

#: Topics of which a slot remembers who wants them.
_TOPICS: Final = 256
#: The change of the head.
HEAD: Final = ("h", "", 0, 0)


class SlotState(ColdQueues):
    """What is known of the clients of a slot."""

    def __init__(self) -> None:
        super().__init__()
        #: What holds for its clients: the broker's limits, or with what a plugin decided for a session.
        self.limits = Limits()
        self.lineage: Lineage = NO_LINEAGE
        self.version: int = 0
        #: As `words.includes` reads it.
        self.included: dict[Lineage, int] = {}
        #: The owner that began to write it had no current copy: of this lineage it may lack subscriptions. Until it
        #: is merged with one that has, every message is kept for clients whom it does not know.
        self.lacks: Lineage = NO_LINEAGE
        #: The greatest stamp.
        self.last: int = 0
        self.context = NodeClock()
        self.registers: dict[str, ClientRegister] = {}
        #: The last origin of which something was seen since the last commit.
        self._seen = 0
        #: Topic behind its scope -> clients that have subscribed to it, with the QoS, as far as it was asked for.
        self._wanted: dict[str, list[tuple[str, int]]] = {}
        self._topic: bytes | None = None
        self._scope = ""
        self._found: list[tuple[str, int]] = []
        #: What changed since the last commit: kinds and names of records, as `slots.records` encodes them.
        self.changed: dict[tuple[str, str, int, int], None] = {}
        #: Clients of whose registers the heads changed.
        self.touched: dict[str, None] = {}
        #: Clients and blocks of packet ids of which there are records.
        self.windows: set[tuple[str, int]] = set()
        #: The last record of messages of other lineages, up to the versions that are included: what was in a queue
        #: there by then was so here. Of those only which somebody may not include.
        self.runs_of: dict[Lineage, int] = {}
        #: Packet ids at QoS 2 that a merge has brought: what the client holds under them is to be finished.
        self.unfinished: list[tuple[str, int]] = []

    # Lineages

    def begin(self, lineage: Lineage) -> None:
        """A new owner goes on with it."""
        self.has_runs(self.lineage, self.last_run)
        self.lineage = lineage
        self.version = 0
        self.close()

    def close(self) -> int:
        """Ends a commit: what it changed gets the next version."""
        self.version += 1
        self.included[self.lineage] = self.version
        self.changed[HEAD] = None
        return self.version

    def has_runs(self, lineage: Lineage, last: int) -> None:
        """It has what an owner wrote up to this record of messages. Of what no owner wrote, numbers may come twice."""
        if lineage[0]:
            self.runs_of[lineage] = max(last, self.runs_of.get(lineage, 0))

    def has_changed(self) -> bool:
        """Whether something is no version yet."""
        messages = (
            self.fresh or self.fresh_runs or self.new_runs or self.gone or self.changed_blocks
        )
        return bool(self.changed or self.touched or messages)

    def stamp(self, now: int) -> int:
        """The next stamp: near the clock, and greater than every stamp in here, whatever the clock says."""
        self.last = max(now, self.last + 1)
        self.changed[HEAD] = None
        return self.last

    # Queues

    def see(self, dot: Dot) -> None:
        """A dot that is new is seen."""
        self.context.add(dot)
        self._saw(dot[0])

    def see_run(self, dot: Dot, count: int) -> bool:
        """Whether so many dots from this one on come next of their origin; then they are seen."""
        origin, place = dot
        runs = self.context.runs.get(origin)
        if runs is None:
            self.context.runs[origin] = [place, place + count]
        elif runs[-1] == place:
            runs[-1] = place + count
        else:
            return False
        self._saw(origin)
        return True

    def _saw(self, origin: int) -> None:
        if origin != self._seen:
            self._seen = origin
            self.changed["c", "", origin, 0] = None

    def done(self, client: str, dot: Dot) -> None:
        """The client has it: seen, and not in the queue."""
        if dot not in self.context:
            self.registers[client].ahead.add(dot)
            self.touch(client)
            return
        self.take_out(client, dot)

    def forget_changes(self) -> None:
        """The records are as the state is now."""
        for block in self.changed_blocks:
            if block.is_changed:
                self.end_change(block)
        self.changed.clear()
        self.touched.clear()
        self._seen = 0
        self.gone, self.new_runs, self.changed_blocks = [], [], []

    def move(self, client: str, dot: Dot, to: str, qos: int) -> None:
        """What a share group chose one queue for goes to another one instead."""
        message = self.messages[dot]
        self.done(client, dot)
        self.put(to, dot, qos, message.placed(message.stamp, message.moves + 1))

    def claim(self) -> None:
        """Gives what was kept for unknown clients to those who are known now, where no side had seen it for them."""
        if UNCLAIMED not in self.single_queues:
            return
        self.load_all()
        for dot in list(self.queues[UNCLAIMED]):
            message = self.messages[dot]
            one = NodeClock({dot[0]: [dot[1], dot[1] + 1]})
            for client in sorted(self.registers):
                register = self.registers[client]
                if dot not in register.missed:
                    continue
                is_of_it = split_scope(client)[0] == message.scope
                granted = register.wants(message.topic.decode()) if is_of_it else -1
                qos = self.limits.of(register.limits).qos(granted, message.qos)
                if qos > 0:
                    self.put_late(client, dot, qos, message)
                register.missed = NodeClock(dict(register.missed.beyond(one)))
                self.touched[client] = None
            if self.lacks == NO_LINEAGE:
                self.done(UNCLAIMED, dot)
        self.sort()

    def resolve(self) -> None:
        """Somebody who had all that this state lacks says that it is in here."""
        self.lacks = NO_LINEAGE
        self.changed[HEAD] = None
        self.claim()

    def forget_forks(self) -> None:
        """Every member has handed in what it has, and accepted this lineage: there is nothing of an earlier one.

        What nobody claims now, nobody will; and of earlier lineages it is enough to say that all is here.
        """
        self.lacks = NO_LINEAGE
        floor = self.lineage[0] - 1
        if self.included.get(NO_LINEAGE, 0) < floor:
            self.included = above(self.included, floor)
            self.included[NO_LINEAGE] = floor
            self.runs_of = above(self.runs_of, floor)
            self.changed[HEAD] = None
        self.claim()
        for client, register in self.registers.items():
            if register.missed.runs:
                register.missed = NodeClock()
                self.touched[client] = None
            for topic_filter in register.forget_ends():
                self.changed["u", client + "\0" + topic_filter, 0, 0] = None

    # Registers

    def register(self, client: str) -> ClientRegister:
        """A client's register, made when first asked for."""
        found = self.registers.get(client)
        if found is None:
            found = self.registers[client] = ClientRegister()
        return found

    def wanted(self, topic: str, scope: str = "") -> list[tuple[str, int]]:
        """The clients that are to get messages on a topic, with the QoS granted; share groups apart."""
        found = self._wanted.get(scope + topic)
        if found is None:
            asked = [
                (client, each.wants(topic))
                for client, each in self.registers.items()
                if split_scope(client)[0] == scope
            ]
            found = [each for each in asked if each[1] > 0]
            if len(self._wanted) >= _TOPICS:
                self._wanted.clear()
            self._wanted[scope + topic] = found
        return found

    def wanted_of(self, topic: bytes, scope: str) -> list[tuple[str, int]]:
        """The answer of `wanted`; of the topic that was asked for last, without looking."""
        if (topic is not self._topic and topic != self._topic) or scope != self._scope:
            self._found = self.wanted(topic.decode(), scope)
            self._topic, self._scope = topic, scope
        return self._found

    def _forget_wanted(self) -> None:
        """Subscriptions have changed."""
        self._wanted.clear()
        self._topic = None

    def routes(self) -> set[str]:
        """The filters whose messages are for this slot, behind their scopes."""
        return {
            split_scope(client)[0] + topic_filter
            for client, register in self.registers.items()
            for topic_filter, qos in register.granted().items()
            if qos and not is_served(topic_filter)
        }

    def is_newest_first(self, client: str) -> bool:
        return self.limits.of(self.registers[client].limits).newest_first

    def touch(self, client: str) -> None:
        """A client's register has a new record."""
        self.registers[client].records += 1
        self.touched[client] = None

    def change_window(self, client: str, packet: int) -> None:
        """A packet id under way to the client changes."""
        self.changed["i", client, packet // WINDOW, 0] = None

    def tell_late(self) -> None:
        """What is under way at QoS 1 has records like the rest."""
        late, self.late = self.late, {}
        for client in late:
            register = self.registers.get(client)
            if register is None:
                continue
            flow = self.flows.get(client)
            packets = register.single_window.keys() if flow is None else flow.packets()
            told = [number for name, number in self.windows if name == client]
            for number in {*told, *[each // WINDOW for each in packets]}:
                self.changed["i", client, number, 0] = None
            self.touch(client)

    def send(self, client: str, packet: int, sent: SentMessage) -> None:
        """A packet id is under way to the client; its place among the others is that of its PUBLISH.

        PUBRELs leave in the order of PUBRECs [MQTT-4.6.0-4], which is that of the messages.
        """
        window = self.registers[client].window
        before = window.get(packet)
        if before is not None and before.dot == sent.dot:
            sent.order = before.order
        else:
            self.last += 1
            sent.order = self.last
            window.pop(packet, None)
        window[packet] = sent
        self.change_window(client, packet)
        self.touch(client)

    def unsend(self, client: str, packet: int) -> None:
        """A packet id is free again."""
        if self.registers[client].window.pop(packet, None) is not None:
            self.change_window(client, packet)
            self.touch(client)

    def finish(self, client: str, packet: int, sent: SentMessage) -> SentMessage | None:
        """A message is sent under this packet id no more; returns what is left of it.

        At QoS 2 the client may hold it as that, and takes no other under the id before PUBREL.
        """
        if sent.qos < 2:
            self.unsend(client, packet)
            return None
        rest = SentMessage(sent.dot, True, 2)
        self.send(client, packet, rest)
        return rest

    def receive(self, client: str, packet: int, received: ReceivedId) -> None:
        """A packet id came from the client at QoS 2."""
        self.registers[client].received[packet] = received
        self.changed["x", client, packet, 0] = None
        self.touch(client)

    def release(self, client: str, packet: int) -> None:
        """PUBREL came."""
        if self.registers[client].received.pop(packet, None) is not None:
            self.changed["x", client, packet, 0] = None
            self.touch(client)

    def subscribe(
        self,
        client: str,
        topic_filter: str,
        qos: int,
        now: int,
        request: int = 0,
        has_forks: bool = True,
        asked: str = "",
    ) -> None:
        """A subscription begins, or ends (QoS -1); `request` is the same wherever it was sent again.

        `asked`: the filter that the client asked for, if a plugin has put this one in its place.
        """
        register = self.registers[client]
        if qos < 0:
            register.end(topic_filter)
            if (oldest := register.forget_end()) is not None:
                self.changed["u", client + "\0" + oldest, 0, 0] = None
        else:
            register.asked.pop(topic_filter, None)
            if asked:
                register.asked[topic_filter] = asked
            seen = self.context if has_forks else None
            register.begin(topic_filter, self.lineage, self.version + 1, request, seen)
        register.subscriptions[topic_filter] = self.stamp(now), qos
        self._forget_wanted()
        self.changed["u", client + "\0" + topic_filter, 0, 0] = None
        self.touch(client)

    def begin_session(self, client: str, now: int) -> None:
        """A client has a session from now on, by its connection."""
        register = self.registers[client]
        register.session, register.is_first = self.stamp(now), True
        self._forget_wanted()
        self.touch(client)

    def end_session(self, client: str, now: int, last: int = 0) -> None:
        """Drops all that a session had; the next one has a later number. `last`: as in `Subscribers.end`."""
        register = self.registers[client]
        for packet in list(register.window):
            self.unsend(client, packet)
        for packet in list(register.received):
            self.release(client, packet)
        self.drop_queue(client)
        for each in register.granted():
            self.subscribe(client, each, -1, now)
        register.session, register.ended, register.is_first = 0, self.stamp(now), False
        known = register.connection, last or register.connection
        register.ended_past = (*register.past, *dict.fromkeys(known))
        self.touch(client)

    def drop_queue(self, client: str) -> None:
        """Nothing waits for a client any more.

        Raises:
            StorageError: the disk does not give what is left.
        """
        while self.waiting(client):
            self.load(client, 1)
            for dot in list(self.queues.get(client, ())):
                self.done(client, dot)

    def forget(self, client: str) -> None:
        """Nobody has anything of a client that has no session."""
        register = self.registers.pop(client)
        self._forget_wanted()
        for each in register.subscriptions:
            self.changed["u", client + "\0" + each, 0, 0] = None
        self.touched[client] = None

    def replace(self, client: str, register: ClientRegister) -> None:
        """Another register of the client wins whole."""
        for each in (self.registers.get(client, register), register):
            for packet in each.window:
                self.change_window(client, packet)
            for packet in each.received:
                self.changed["x", client, packet, 0] = None
            for topic_filter in each.subscriptions:
                self.changed["u", client + "\0" + topic_filter, 0, 0] = None
        self.registers[client] = register
        self._forget_wanted()
        self.touched[client] = None
