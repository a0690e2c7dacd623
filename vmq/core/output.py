"""What waits to be written: one `Output` a connection, one `Outbox` for all of them.

During a pass (one chunk of bytes handled, one timer run) pieces gather in the outputs that it
touches; at its end each touched output is written once. What must not leave before something is
safe (`vmq.disk.durable`) waits in one of the output's two lanes, in order: what answers the client's
packets (PUBACK, PUBREC, PUBCOMP, SUBACK) in one, what is delivered to it in the other. Neither
holds up the other. PINGRESP goes with what is delivered, and past it where that waits for more than
this machine, which may never come. What waits there counts like what waits in the socket's own
buffer.
"""

import logging
from collections.abc import Callable
from typing import Final

from vmq_hooks.types import Peer

from vmq.core.states import AWAITING_CONNECT, CLOSED, DISCONNECTED, FAILED
from vmq.disk.durable import ALL, Confirmations, Durable, Need, Waiter, is_far, unmet, with_need
from vmq.mqtt.sorting import CONNACK_HEAD, sort_packets

log = logging.getLogger("vmq.output")

#: What each held pass costs besides its bytes: the objects that hold it.
HELD_OVERHEAD: Final = 128

#: Bits of `Output.blocked`: the transport's buffer is full; so much waits for a commit that the queue takes over.
SOCKET: Final = 1
COMMITS: Final = 2

#: Reasons not to read from a peer that it has once or not at all; for others `pause` counts.
REST: Final = 1
VERDICT: Final = 2
RATE: Final = 4
MEMORY: Final = 8
REPLIES: Final = 16


class Held:
    """Bytes of one pass that wait, and those behind them."""

    def __init__(self, needs: Need | None, data: bytes) -> None:
        self.needs = needs
        self.data = data
        self.next: Held | None = None


class Lane(Waiter):
    """What of one connection waits, in order: its answers, or its deliveries."""

    def __init__(self, output: "Output") -> None:
        self.output = output
        self.first: Held | None = None
        self.last: Held | None = None
        #: Its bytes, and what holding them costs.
        self.size: int = 0
        #: Where it is parked.
        self.at: Durable | None = None

    def add(self, needs: Need | None, data: bytes) -> None:
        """Has bytes wait behind those that do, or for some needs.

        Each pass keeps its own: a connection with durable work in every pass would else wait for a
        commit that is always the next.
        """
        held = Held(needs, data)
        last = self.last
        if last is not None:
            last.next = held
        else:
            self.first = held
            if needs is not None:
                self.park(needs.durable)
        self.last = held
        self.size += len(data) + HELD_OVERHEAD

    def has_connack(self) -> bool:
        """Whether a CONNACK is the first packet that waits."""
        held = self.first
        while held is not None and not held.data:
            held = held.next
        return held is not None and held.data[0] == CONNACK_HEAD

    def is_far(self) -> bool:
        """Whether something of it waits for more than this machine."""
        held = self.first
        while held is not None:
            if is_far(held.needs):
                return True
            held = held.next
        return False

    def park(self, durable: Durable) -> None:
        self.at = durable
        durable.parked[self] = None

    def wake(self) -> None:
        self.at = None
        self.output.outbox.ready.append(self)

    def release(self) -> None:
        """Gives the output what waits for nothing any more."""
        output = self.output
        released = output.released
        if released is None:
            output.released = released = []
            output.outbox.freed.append(output)
        held = self.first
        while held is not None:
            needs = unmet(held.needs)
            if needs is not None:
                held.needs = needs
                self.park(needs.durable)
                break
            self.size -= len(held.data) + HELD_OVERHEAD
            if held.data:
                released.append(held.data)
            held = held.next
        self.first = held
        if held is None:
            self.last = None

    def forget_far(self) -> None:
        """Drops what waits for more than this machine, and what is behind it."""
        before: Held | None = None
        held = self.first
        while held is not None and not is_far(held.needs):
            before = held
            held = held.next
        if before is None:
            self.clear()
        elif held is not None:
            before.next = None
            self.last = before
            while held is not None:
                self.size -= len(held.data) + HELD_OVERHEAD
                held = held.next

    def clear(self) -> None:
        """Drops everything."""
        self.first = self.last = None
        self.size = 0
        durable = self.at
        if durable is not None:
            self.at = None
            durable.parked.pop(self, None)


class Output:
    """The outgoing side of one connection. Subclasses bring the transport.

    What may be done with it is told by `state` and by `blocked`; `touched` says no more than that it is in a list.
    """

    def __init__(self, outbox: "Outbox") -> None:
        self.outbox = outbox
        #: Of the connection: see `vmq.core.states`.
        self.state: int = AWAITING_CONNECT
        #: What this pass has for it; None: nothing, as with most of many connections at most times.
        self.pieces: list[bytes] | None = None
        #: In the outbox's list of this pass.
        self.touched = False
        #: Whether, and where, enough waits: nothing but replies may be added.
        self.blocked: int = 0
        #: The pieces of this pass may have to wait.
        self.gated = False
        #: What the answers and the deliveries of this pass need.
        self.answer_needs: Need | None = None
        self.delivery_needs: Need | None = None
        #: Those of earlier passes; None: nothing of it has waited yet.
        self.answers: Lane | None = None
        self.deliveries: Lane | None = None
        #: What has waited, and is about to be written.
        self.released: list[bytes] | None = None
        #: It has nobody who would ask anew: what waits for a commit that fails waits for the next.
        self.is_patient = False

    @property
    def closing(self) -> bool:
        """Nothing more is read; the connection ends once the pieces are written."""
        return self.state >= DISCONNECTED

    def touch(self) -> None:
        """Has it looked at when the pass ends."""
        if not self.touched:
            self.touched = True
            self.outbox.touched.append(self)

    def gather(self) -> list[bytes]:
        """The pieces of this pass, to add to them now."""
        if not self.touched:
            self.touched = True
            self.outbox.touched.append(self)
        pieces = self.pieces
        if pieces is None:
            self.pieces = pieces = []
        return pieces

    def add(self, piece: bytes) -> None:
        """Adds one piece."""
        self.gather().append(piece)

    def answer_after(self, durable: Durable, number: int) -> None:
        """The answers of this pass leave once this name has come to that number."""
        if number > durable.reached:
            self.answer_needs = with_need(self.answer_needs, durable, number)
            self.gated = True

    def deliver_after(self, durable: Durable, number: int) -> None:
        """The deliveries of this pass leave once this name has come to that number."""
        if number > durable.reached:
            self.delivery_needs = with_need(self.delivery_needs, durable, number)
            self.gated = True

    def write_after(self, durable: Durable, number: int) -> None:
        """All of this pass, and what later passes deliver, waits so: a CONNACK or SUBACK comes before that."""
        self.answer_after(durable, number)
        self.deliver_after(durable, number)

    def confirmations(self) -> Confirmations:
        """Who is to confirm what this pass gave them before its answers leave; the caller expects one."""
        each = self.answer_needs
        while each is not None:
            if isinstance(each.durable, Confirmations):
                return each.durable
            each = each.more
        found = Confirmations()
        self.answer_after(found, ALL)
        return found

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for something to be safe."""
        answers, deliveries = self.answers, self.deliveries
        return (0 if answers is None else answers.size) + (
            0 if deliveries is None else deliveries.size
        )

    def is_held(self) -> bool:
        """Whether something waits for anything to be safe."""
        answers, deliveries = self.answers, self.deliveries
        return (answers is not None and answers.first is not None) or (
            deliveries is not None and deliveries.first is not None
        )

    def hold_delivery(self, needs: Need | None, data: bytes) -> None:
        """Has deliveries wait, or all that come from now on if there are none."""
        lane = self.deliveries
        if lane is None:
            self.deliveries = lane = Lane(self)
        lane.add(needs, data)

    def forget_far(self) -> None:
        """The connection ends: answers that wait for other nodes are not given, nor what is behind them."""
        answers, deliveries = self.answers, self.deliveries
        if answers is not None:
            answers.forget_far()
        if deliveries is not None:
            deliveries.forget_far()

    def forget_all(self) -> None:
        """Nothing of what waits is given, nor of this pass."""
        answers, deliveries = self.answers, self.deliveries
        if answers is not None:
            answers.clear()
        if deliveries is not None:
            deliveries.clear()
        self.answer_needs = self.delivery_needs = None
        self.pieces = None

    def write(self) -> None:
        """Hands the gathered pieces to the transport."""
        self.pieces = None

    def on_held(self) -> None:
        """More bytes wait to be safe; `held_bytes` is how many now."""

    def on_released(self) -> None:
        """Fewer bytes wait to be safe, or none."""

    def close(self, reason: str) -> None:
        """Ends the connection; what was added before is still written."""

    def finish(self, reason: str, state: int) -> None:
        """Ends the connection, as `close`, in another state than `CLOSING`."""
        self.close(reason)

    def pause(self) -> None:
        """Stops reading for one more reason; each pause needs its `resume`."""

    def resume(self) -> None:
        """One reason less not to read."""

    def pause_for(self, reason: int) -> None:
        """Stops reading for this reason, if it is not one already."""

    def resume_from(self, reason: int) -> None:
        """This is no reason any more not to read, if it was one."""

    def go_on(self) -> None:
        """What the session waited for is there: it handles its next packets in a pass of its own."""

    def limit(self, rate: int | None, lifetime: int | None) -> None:
        """Limits of this connection alone: messages a second, seconds; None changes nothing."""

    def judge_again(self, until: float) -> None:
        """Has the client's subscriptions authorised anew at a time by the core's clock; 0: there is none to be."""

    def seen_peer(self) -> Peer:
        """The peer, for plugins."""
        return Peer("", 0)

    def describe(self) -> str:
        """The peer, for logs and hooks."""
        return ""


class Outbox:
    """The outputs touched in the present pass, and what releases those that wait."""

    def __init__(self) -> None:
        self.touched: list[Output] = []
        #: Done at the end of the pass, before anything is written: answers may wait for it.
        self.leading: list[Callable[[], None]] = []
        #: The store's commits. Whatever waits for one that fails is cut off.
        self.stored = Durable(is_near=True)
        #: Lanes that may have nothing to wait for any more.
        self.ready: list[Lane] = []
        #: Outputs with something that has waited.
        self.freed: list[Output] = []
        #: What sessions have in place of a connection: nothing that comes there goes anywhere.
        self.nowhere = Output(self)
        self.nowhere.state = CLOSED

    def flush(self) -> None:
        """Ends a pass: writes what waits for nothing any more, and every touched output that waits for nothing."""
        if self.leading:
            self.lead()
        if self.ready:
            self.write_released()
        touched = self.touched
        if not touched:
            return
        self.touched = []
        for output in touched:
            output.touched = False
            if output.gated:
                self.hold(output)
            else:
                self.write(output)

    def lead(self) -> None:
        """Does what comes before all that is written."""
        leading, self.leading = self.leading, []
        for act in leading:
            try:
                act()
            except Exception:  # a defect: what waits for it stays unanswered, and all others leave
                log.exception("cannot do what the end of a pass begins with")

    def write(self, output: Output) -> None:
        """Writes one output; what its transport raises is its own end, not that of the others."""
        try:
            output.write()
        except Exception:
            log.exception("cannot write to %s", output.describe())
            output.pieces = None
            output.finish("internal error", FAILED)

    def hold(self, output: Output) -> None:
        """Puts the answers and deliveries of a pass behind what they need, and writes what needs nothing."""
        answer_needs, delivery_needs = unmet(output.answer_needs), unmet(output.delivery_needs)
        output.answer_needs = output.delivery_needs = None
        if answer_needs is None and delivery_needs is None and not output.is_held():
            output.gated = False
            self.write(output)
            return
        pieces = output.pieces
        answers, deliveries, pings = sort_packets(b"" if pieces is None else b"".join(pieces))
        output.pieces = None
        if output.closing:  # as in `forget_far`: the connection ended in this very pass
            if is_far(answer_needs):
                answer_needs, answers = None, b""
            if is_far(delivery_needs):
                delivery_needs, deliveries = None, b""
        lane = output.answers
        if answer_needs is not None or (answers and lane is not None and lane.first is not None):
            if lane is None:
                output.answers = lane = Lane(output)
            lane.add(answer_needs, answers)
            if answer_needs is not None and answers and answers[0] == CONNACK_HEAD:
                output.hold_delivery(answer_needs, b"")  # nothing comes before it [MQTT-3.2.0-1]
            answers = b""
        is_greeted = lane is None or not lane.has_connack()
        lane = output.deliveries
        is_far_off = is_far(delivery_needs) or (lane is not None and lane.is_far())
        if pings and not (is_greeted and is_far_off):
            deliveries += pings
            pings = b""
        if delivery_needs is not None or (
            deliveries and lane is not None and lane.first is not None
        ):
            output.hold_delivery(delivery_needs, deliveries)
            deliveries = b""
        output.on_held()
        now = answers + deliveries + pings
        if now:
            output.pieces = [now]
        if now or output.closing:
            self.write(output)

    def write_released(self) -> None:
        """Writes what no longer waits for anything, once an output."""
        while self.ready:
            ready = self.ready
            self.ready = []
            for lane in ready:
                lane.release()
            freed = self.freed
            self.freed = []
            for output in freed:
                later = output.pieces
                released = output.released
                output.released = None
                assert released is not None
                output.pieces = released
                self.write(output)
                output.pieces = later
            for output in freed:
                output.on_released()

    def release(self, committed: int) -> None:
        """Commit number `committed` of the store is done: writes what waited for it, and what now has room."""
        self.stored.advance(committed)
        self.flush()

    def fail(self, reason: str) -> None:
        """The store's commit failed: whoever waits for it is cut off unanswered [MQTT-4.8.0-2].

        Who waits for something else first goes on waiting: a commit that succeeds later has the work of this one, too.
        """
        for waiter in list(self.stored.parked):
            assert isinstance(waiter, Lane)
            output = waiter.output
            if not output.is_patient:
                output.forget_all()
                output.finish(reason, FAILED)
