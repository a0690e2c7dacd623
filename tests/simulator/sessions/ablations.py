"""Rules switched off, one at a time: what breaks without each is what it is for.

An ablation is what takes the place of some methods; the faults that show it, and seeds that do, or a schedule by hand.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tests.simulator.sessions import node, scripts
from tests.simulator.sessions.faults import ALL_KINDS
from tests.simulator.switched_off import switched_off
from vmq.clustering.front.connection import FrontConnection
from vmq.clustering.front.front import SessionFront
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import TableEntry
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.origin import Origin
from vmq.clustering.origin.outbox import SlotOutbox
from vmq.clustering.slots import copies, merge, records
from vmq.clustering.slots.attachment import Attachment, SlotFlows
from vmq.clustering.slots.attachments import Attachments
from vmq.clustering.slots.cold import ColdQueues
from vmq.clustering.slots.copies import RecordSet, SlotCopy
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.flow import FlowRun
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.records import salvage
from vmq.clustering.slots.register import ClientRegister, SentMessage
from vmq.clustering.slots.sharing import ShareGroups
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.subscribers import Subscribers
from vmq.clustering.slots.turns import Turns
from vmq.clustering.slots.words import NO_LINEAGE, Dot, Lineage, incarnation_of
from vmq_cluster.clocks import NodeClock


@dataclass(frozen=True)
class Ablation:
    """A rule that can be switched off."""

    meaning: str
    patches: tuple[tuple[Any, str, Any], ...]
    kinds: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    strict: bool = True
    #: As in `run`.
    narrow: bool = False
    #: What shows it besides broken promises.
    sign: str = ""
    #: A schedule by hand that shows it, whatever seeds do.
    script: Callable[[], Counter[str]] | None = None

    def off(self) -> AbstractContextManager[None]:
        """Without the rule: some of it is called by compiled code alone."""
        return switched_off(self.patches, [SlotOwner])


def _newest_first(self: SlotOutbox) -> None:
    self._unsent = list(reversed(self.entries))
    self._index = 0


def _at_once(
    self: Attachments, attachment: Attachment, qos: int, action: Callable[[], None]
) -> None:
    action()


_load_head = records._load_head


def _load_unlimited(register: ClientRegister, value: list[Any]) -> None:
    _load_head(register, value)
    register.limits = None


_merge_registers = merge._merge_registers


_begin = ClientRegister.begin


def _begin_anew(
    self: ClientRegister, topic_filter: str, lineage: Lineage, version: int, request: int, seen: Any
) -> None:
    """Of what had ended before, nothing is known any more."""
    _begin(self, topic_filter, lineage, version, request, seen)
    self.before.pop(topic_filter, None)


def _nothing_left(winner: ClientRegister, other: ClientRegister) -> dict[int, SentMessage]:
    return {}


def _send_behind(self: SlotState, client: str, packet: int, sent: SentMessage) -> None:
    """With PUBREC a packet id goes behind the others."""
    self.last += 1
    sent.order = self.last
    self.registers[client].window[packet] = sent
    self.change_window(client, packet)
    self.touch(client)


def _mixed_registers(
    one: SlotState, client: str, ours: ClientRegister, theirs: ClientRegister, *rest: Any
) -> None:
    """Of packet ids, what both sides say."""
    _merge_registers(one, client, ours, theirs, *rest)
    register = one.registers.get(client)
    if register is not None:
        register.window = {**theirs.window, **ours.window}
        register.received = {**theirs.received, **ours.received}


def _unwritten_heads(self: Effects) -> list[dict[bytes, bytes | None]]:
    """What is not on disk yet, without the messages."""
    return [
        {key: value for key, value in writes.items() if key[7:8] != b"m"}
        for writes in _unwritten(self)
    ]


_unwritten = Effects._unwritten


def _gather_as_they_came(self: ColdQueues) -> None:
    self.is_mixed = False
    _gather(self)


_gather = ColdQueues.gather


def _whole_context(
    context: NodeClock, included: dict[Lineage, int], register: ClientRegister, points: Any
) -> NodeClock:
    return context.copy()


def _no_table(self: SessionFront, connection: FrontConnection) -> list[TableEntry]:
    return []


def _nothing_again(self: SessionFront, connection: FrontConnection) -> None:
    connection.held.clear()


def _old_copy_goes(self: SlotCopy, lineage: Lineage, version: int) -> RecordSet:
    self.whole, self.remains = None, []
    self.building = self.new_set(lineage, version)
    return self.building


def _before_the_disk(self: Effects, store: int, message: NodeMessage) -> None:
    self.send(store, message)


def _by_the_clock(self: SlotState, now: int) -> int:
    self.last = now
    self.changed["h", "", 0, 0] = None
    return now


def _remember(self: SlotOwner, store: int) -> None:
    self._asked.discard(store)


def _ignore(*anything: Any) -> None:
    pass


def _in_any_step(self: Attachments, attachment: Attachment, kind: int, packet: int) -> None:
    """Whatever comes ends the exchange."""
    state, client = self._state, attachment.client
    sent = state.registers[client].window.get(packet)
    if sent is not None:
        state.done(client, sent.dot)
        state.unsend(client, packet)


def _end_without_record(
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


def _before_the_routes(
    self: Subscribers, client: str, begun: list[str], ended: list[str], then: Callable[[], None]
) -> None:
    _announce(self, client, begun, ended, _ignore)
    self._owned.when_safe(then)


_announce = Subscribers._announce


def _one_life(store: int, boot: int) -> int:
    return incarnation_of(store, 1)


def _never_synced(self: Effects) -> tuple[int, dict[bytes, bytes | None], bool]:
    number, writes, _ = _begin_commit(self)
    return number, writes, False


_begin_commit = Effects.begin_commit


def _with_its_context(records: dict[bytes, bytes]) -> SlotState:
    """What a copy that is not whole says that it has seen."""
    state = salvage(records)
    for key, value in records.items():
        if key[:1] == b"c":
            runs = msgspec.msgpack.decode(value)
            state.context.merge(NodeClock({int.from_bytes(key[1:9], "big"): runs}))
    return state


def _age_by_clock(self: ClientRegister) -> tuple[Lineage, int, int]:
    return NO_LINEAGE, self.attached_at, self.records


def _is_current(self: SlotMachine, view: SlotView, copy: SlotCopy) -> bool:
    return True


def _later_lineage(one: SlotState, ours: str, other: SlotState, theirs: str, dot: Dot) -> bool:
    return other.lineage > one.lineage


_take = SlotFlows.take


def _take_here(self: SlotFlows, *given: Any) -> FlowRun | None:
    """As `SlotFlows.take`, of clients that are connected to this node."""
    here = self._here.store
    return (
        _take(self, *given) if all(each.front == here for each in self._serving.values()) else None
    )


#: No rules: with these a schedule may show what it otherwise does not.
_AT_ONCE: Final = (
    (Turns, "is_patient", lambda self: False),
    (FrontConnection, "may_be_late", lambda self, window: False),
    (SlotFlows, "take", _take_here),
)

ABLATIONS: dict[str, Ablation] = {
    "oldest": Ablation(
        "origins offer the oldest first, and owners take nothing out of turn",
        (
            (SlotOutbox, "restart", _newest_first),
            (SlotOwner, "_is_in_turn", lambda self, store, offer: True),
        ),
        ("kill", "handover"),
        seeds=(0,),
    ),
    "safe": Ablation(
        "an acknowledgement waits until owner and followers have it on disk",
        ((OwnedSlot, "safe_version", lambda self: self.state.version),),
        ("wipe", "kill"),
        seeds=(1,),
    ),
    "records": Ablation(
        "at QoS 2 a record is safe before the packet that relies on it is sent",
        ((Attachments, "_when_safe", _at_once),),
        ("kill", "silent"),
        seeds=(1,),
    ),
    "writer": Ablation(
        "a client's register has one writer",
        ((merge, "_merge_registers", _mixed_registers),),
        ("split", "kill", "handover"),
        seeds=(31,),
    ),
    "client": Ablation(
        "a side has seen a message for a client only if it knows the client",
        ((merge, "_seen", _whole_context),),
        ("split", "deaf"),
        seeds=(3,),
    ),
    "unclaimed": Ablation(
        "an owner without a current copy keeps messages for clients whom it does not know",
        ((SlotMachine, "_is_current", _is_current),),
        ("split", "deaf"),
        seeds=(2,),
    ),
    "anew": Ablation(
        "what a client ended before it asked for it anew has ended, wherever it is read late",
        ((ClientRegister, "begin", _begin_anew),),
        ("pause",),
        script=scripts.asks_anew_and_ends,
    ),
    "had": Ablation(
        "what was in a client's queue where another side had it from is done, whatever the client has subscribed to",
        ((merge, "_was_in", lambda side, other, dot: False),),
        ("pause",),
        script=scripts.finishes_what_waited,
    ),
    "since": Ablation(
        "what came since a client asked one side it has seen for what the client had asked the other, too",
        ((ClientRegister, "asks_for", lambda self, topic_filter: False),),
        ("kill", "pause"),
        script=scripts.asks_the_next_owner_as_well,
    ),
    "unreleased": Ablation(
        "whoever awaits PUBREL of an owner that is gone gets it of the next",
        ((merge, "_unreleased", _nothing_left),),
        ALL_KINDS,
        strict=False,
        seeds=(17, 18),
        sign="held",
    ),
    "forks": Ablation(
        "an owner serves when all nodes in reach have handed in their forks",
        ((SlotOwner, "serves", lambda self, store: True),),
        ("kill", "handover", "split"),
        seeds=(7,),
    ),
    "table": Ablation(
        "a new owner believes the connection's table",
        ((SessionFront, "table", _no_table),),
        ("kill", "handover"),
        seeds=(0,),
    ),
    "done": Ablation(
        "a new owner is told which messages at QoS 1 the client has acknowledged to one that did not write it down",
        ((FrontConnection, "is_done", _ignore),),
        ("kill", "silent"),
        seeds=(0,),
    ),
    "finished": Ablation(
        "what a client does not send again before anything new, it has finished with another owner",
        ((FrontConnection, "knows", _ignore), *_AT_ONCE),
        ("split", "kill", "deaf"),
        strict=False,
        seeds=(17, 81),
    ),
    "unanswered": Ablation(
        "what no owner has answered follows to the next, and held acknowledgements",
        ((SessionFront, "send_again", _nothing_again),),
        ("kill", "handover"),
        seeds=(0,),
    ),
    "digest": Ablation(
        "a packet id is a repetition only with DUP and the same digest",
        ((Attachments, "_is_repetition", lambda self, known, step: True),),
        ("split", "rack", "tail", "kill"),
        strict=False,
        seeds=(1,),
    ),
    "ring": Ablation(
        "a new lineage goes on at another place of the packet ids",
        ((Attachments, "_restart", lambda self, last, client: last),),
        ("split", "kill", "tail", "rack"),
        strict=False,
        seeds=(8,),
    ),
    "life": Ablation(
        "what a peer confirmed or denied holds for one life of it",
        ((SlotOwner, "forget", _remember),),
        ("tail", "wipe", "kill"),
    ),
    "whole": Ablation(
        "an old copy stays until the new one is whole",
        ((SlotCopy, "begin", _old_copy_goes),),
        ("kill", "silent"),
        strict=False,
    ),
    "disk": Ablation(
        "a follower confirms what is on its disk",
        ((Effects, "send_stored", _before_the_disk),),
        ("kill", "disk", "wipe"),
        strict=False,
    ),
    "unwritten": Ablation(
        "a copy that becomes a state has what is on its way to the disk",
        ((Effects, "_unwritten", _unwritten_heads),),
        ("kill", "disk", "handover"),
        seeds=(3, 4),
    ),
    "bodies": Ablation(
        "a record of messages stays until nobody lacks any of it, in memory or not",
        ((ColdQueues, "_holders", lambda self, dot: 1),),
        ("kill", "handover"),
        seeds=(1,),
    ),
    "mixed": Ablation(
        "what has come into its place in a queue later is in memory, and what was there before",
        ((ColdQueues, "gather", _gather_as_they_came),),
        ("split", "deaf", "kill", "handover"),
        seeds=(26, 31),
    ),
    "stamps": Ablation(
        "a stamp is greater than all in the state, whatever the clock says",
        ((SlotState, "stamp", _by_the_clock),),
        ("skew", "handover", "kill"),
        seeds=(11,),
    ),
    "rank": Ablation(
        "the owner numbers a client's connections, and refuses an older one",
        ((Attachments, "_is_older", lambda self, one, other: False),),
        ("halfopen", "pause"),
        seeds=(63, 102),
    ),
    "step": Ablation(
        "an acknowledgement counts only in the step that awaits it",
        ((Attachments, "_on_acknowledgement", _in_any_step),),
        ("kill", "handover"),
        seeds=(4,),
    ),
    "places": Ablation(
        "PUBRELs follow in the order of the messages, whoever owned the slot when PUBREC came",
        ((SlotState, "send", _send_behind),),
        ("pause",),
        seeds=(5,),
    ),
    "crossed": Ablation(
        "an end of a subscription ends what is known to be older, whatever the lineages",
        ((merge, "_ends", lambda *anything: True),),
        ("split", "kill", "tail", "rack"),
        strict=False,
        seeds=(15,),
    ),
    "earlier": Ablation(
        "what an earlier connection of a client asked for is older, wherever it is read late",
        ((merge, "is_of", lambda connection, request: False),),
        ("pause",),
        script=scripts.ends_on_a_later_connection,
    ),
    "held up": Ablation(
        "an owner that was held up serves when the others have said again that they have no fork",
        ((Reach, "is_held_up", lambda self, now: False),),
        ("pause", "skew"),
        seeds=(19,),
    ),
    "ended": Ablation(
        "the end of a subscription is a record",
        ((SlotState, "subscribe", _end_without_record),),
        ("split", "pause"),
        seeds=(41,),
    ),
    "routes": Ablation(
        "SUBACK waits until the nodes in reach have the route",
        ((Subscribers, "_announce", _before_the_routes),),
        ("kill",),
    ),
    "lives": Ablation(
        "an origin and a lineage end with the life of their broker",
        ((node, "incarnation_of", _one_life),),
        ("kill", "rack"),
        strict=False,
    ),
    "promises": Ablation(
        "who denies forks or learns a view has that on disk, synced",
        ((Effects, "begin_commit", _never_synced),),
        ("tail",),
    ),
    "entries": Ablation(
        "the context of a copy counts only when all its entries are there",
        ((copies, "salvage", _with_its_context),),
        ("kill", "silent"),
        strict=False,
        seeds=(5, 10),
    ),
    "lineage": Ablation(
        "of two registers the one attached in the later lineage wins, whatever the clocks say",
        ((ClientRegister, "age", _age_by_clock),),
        ("kill", "skew"),
        script=scripts.is_attached_by_a_clock_that_is_ahead,
    ),
    "clocks": Ablation(
        "what follows from what another node has stamped is stamped later",
        ((LocalNode, "heard_of", _ignore),),
        ("skew", "handover", "kill"),
    ),
    "moved": Ablation(
        "a front whose client is elsewhere drops its unanswered QoS 1 messages",
        ((Origin, "drop", _ignore),),
        ("halfopen", "pause", "oneway"),
    ),
    "limits": Ablation(
        "what plugins have decided for a session goes to its next owner",
        ((records, "_load_head", _load_unlimited),),
        ("kill", "handover"),
        seeds=(0,),
        narrow=True,
    ),
    "takers": Ablation(
        "who took a message from a member of a share group knew that this one had gone",
        ((merge, "_is_theirs", _later_lineage),),
        ("split", "kill", "handover"),
    ),
    "sole": Ablation(
        "what a member was not sent at QoS 2 stays while another owner may serve it",
        ((ShareGroups, "_is_sole", lambda self: True),),
        ("split", "deaf"),
    ),
    "fixed": Ablation(
        "forks choose the same member of a share group for what was handed on",
        ((ShareGroups, "_fixed", ShareGroups._best),),
        ("split", "deaf"),
    ),
}
