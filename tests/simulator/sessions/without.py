"""What takes the place of methods when a rule is switched off (`ablations`)."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from vmq.clustering.front.connection import FrontConnection
from vmq.clustering.front.front import SessionFront
from vmq.clustering.messages.fronts import Attach, SessionStep, TableEntry
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.outbox import SlotOutbox
from vmq.clustering.slots import merge, records
from vmq.clustering.slots.attachment import Attachment, SlotFlows, is_told_of
from vmq.clustering.slots.attachments import Attachments
from vmq.clustering.slots.cold import ColdQueues
from vmq.clustering.slots.copies import SlotCopy
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.flow import FlowRun
from vmq.clustering.slots.records import salvage
from vmq.clustering.slots.register import ClientRegister, SentMessage
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.turns import Turns
from vmq.clustering.slots.words import NO_LINEAGE, PUBCOMP, Lineage
from vmq_cluster.clocks import NodeClock


def newest_first(self: SlotOutbox) -> None:
    self._unsent = list(reversed(self.entries))
    self._index = 0


def at_once(
    self: Attachments, attachment: Attachment, qos: int, action: Callable[[], None]
) -> None:
    action()


_load_head = records._load_head


def load_unlimited(register: ClientRegister, value: list[Any]) -> None:
    _load_head(register, value)
    register.limits = None


_merge_registers = merge._merge_registers


_begin = ClientRegister.begin


def begin_anew(
    self: ClientRegister, topic_filter: str, lineage: Lineage, version: int, request: int, seen: Any
) -> None:
    """Of what had ended before, nothing is known any more."""
    _begin(self, topic_filter, lineage, version, request, seen)
    self.before.pop(topic_filter, None)


def nothing_left(winner: ClientRegister, other: ClientRegister) -> dict[int, SentMessage]:
    return {}


def send_behind(self: SlotState, client: str, packet: int, sent: SentMessage) -> None:
    """With PUBREC a packet id goes behind the others."""
    self.last += 1
    sent.order = self.last
    self.registers[client].window[packet] = sent
    self.change_window(client, packet)
    self.touch(client)


def mixed_registers(
    one: SlotState, client: str, ours: ClientRegister, theirs: ClientRegister, *rest: Any
) -> None:
    """Of packet ids, what both sides say."""
    _merge_registers(one, client, ours, theirs, *rest)
    register = one.registers.get(client)
    if register is not None:
        register.window = {**theirs.window, **ours.window}
        register.received = {**theirs.received, **ours.received}


def unwritten_heads(self: Effects) -> list[dict[bytes, bytes | None]]:
    """What is not on disk yet, without the messages."""
    return [
        {key: value for key, value in writes.items() if key[7:8] != b"m"}
        for writes in _unwritten(self)
    ]


_unwritten = Effects._unwritten


def gather_as_they_came(self: ColdQueues) -> None:
    self.is_mixed = False
    _gather(self)


_gather = ColdQueues.gather


def whole_context(
    context: NodeClock, included: dict[Lineage, int], register: ClientRegister, points: Any
) -> NodeClock:
    return context.copy()


def no_table(self: SessionFront, connection: FrontConnection) -> list[TableEntry]:
    return []


def nothing_again(self: SessionFront, connection: FrontConnection) -> None:
    connection.held.clear()


def by_the_clock(self: SlotState, now: int) -> int:
    self.last = now
    self.changed["h", "", 0, 0] = None
    return now


def ignore(*anything: Any) -> None:
    pass


def in_any_step(self: Attachments, attachment: Attachment, kind: int, packet: int) -> None:
    """Whatever comes ends the exchange."""
    state, client = self._state, attachment.client
    sent = state.registers[client].window.get(packet)
    if sent is not None:
        state.done(client, sent.dot)
        state.unsend(client, packet)


def acknowledge_in_any_step(self: FrontConnection, step: SessionStep) -> None:
    """PUBCOMP ends the exchange, too, that its packet id is of by then."""
    if step.kind == PUBCOMP:
        self.table.pop(step.packet, None)
    _acknowledge(self, step)


_acknowledge = FrontConnection.acknowledge


def end_without_record(
    self: SlotState, client: str, topic_filter: str, qos: int, now: int, *rest: Any, **more: Any
) -> None:
    """The end of a subscription leaves nothing."""
    if qos >= 0:
        _subscribe(self, client, topic_filter, qos, now, *rest, **more)
        return
    self.registers[client].subscriptions.pop(topic_filter, None)
    self.registers[client].born.pop(topic_filter, None)
    self.changed["u", client + "\0" + topic_filter, 0, 0] = None
    self.touch(client)


_subscribe = SlotState.subscribe


def with_its_context(records: dict[bytes, bytes]) -> SlotState:
    """What a copy that is not whole says that it has seen."""
    state = salvage(records)
    for key, value in records.items():
        if key[:1] == b"c":
            runs = msgspec.msgpack.decode(value)
            state.context.merge(NodeClock({int.from_bytes(key[1:9], "big"): runs}))
    return state


def age_by_clock(self: ClientRegister) -> tuple[Lineage, int, int]:
    return NO_LINEAGE, self.attached_at, self.records


def is_current(self: SlotCopy, view: SlotView, me: int) -> bool:
    return True


def told_of_what_is_in_it(asked: Attach, state: SlotState, is_new: bool) -> bool:
    state.registers[asked.client].is_first = True
    return is_told_of(asked, state, is_new)


_take = SlotFlows.take


def _take_here(self: SlotFlows, *given: Any) -> FlowRun | None:
    """As `SlotFlows.take`, of clients that are connected to this node."""
    here = self._here.store
    return (
        _take(self, *given) if all(each.front == here for each in self._serving.values()) else None
    )


#: No rules: with these a schedule may show what it otherwise does not.
AT_ONCE: Final = (
    (Turns, "is_patient", lambda self: False),
    (FrontConnection, "may_be_late", lambda self, window: False),
    (SlotFlows, "take", _take_here),
)
