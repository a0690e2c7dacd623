"""Rules switched off, one at a time: what breaks without each is what it is for.

An ablation is what takes the place of some methods; the faults that show it, and seeds that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from vmq.clustering.front.connection import FrontConnection
from vmq.clustering.front.front import Front
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import TableEntry
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.origin import Origin
from vmq.clustering.origin.outbox import SlotOutbox
from vmq.clustering.slots import merge
from vmq.clustering.slots.attachments import Attachment, Attachments
from vmq.clustering.slots.copies import RecordSet, SlotCopy
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.register import ClientRegister
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import Lineage
from vmq_cluster.clocks import NodeClock


@dataclass(frozen=True)
class Ablation:
    """A rule that can be switched off."""

    meaning: str
    patches: tuple[tuple[Any, str, Any], ...]
    kinds: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    strict: bool = True

    @contextmanager
    def off(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, other in self.patches:
                stack.enter_context(patch.object(owner, name, other))
            yield


def _newest_first(self: SlotOutbox) -> None:
    self._unsent = list(reversed(self.entries))
    self._index = 0


def _at_once(
    self: Attachments, attachment: Attachment, qos: int, action: Callable[[], None]
) -> None:
    action()


_merge_registers = merge._merge_registers


def _mixed_registers(
    one: SlotState, client: str, ours: ClientRegister, theirs: ClientRegister, *rest: Any
) -> None:
    """Of packet ids, what both sides say."""
    _merge_registers(one, client, ours, theirs, *rest)
    register = one.registers.get(client)
    if register is not None:
        register.window = {**theirs.window, **ours.window}
        register.received = {**theirs.received, **ours.received}


def _whole_context(
    context: NodeClock, included: dict[Lineage, int], register: ClientRegister, known_by: Any
) -> NodeClock:
    return context.copy()


def _no_table(self: Front, connection: FrontConnection) -> list[TableEntry]:
    return []


def _nothing_again(self: Front, connection: FrontConnection) -> None:
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


def _is_current(self: SlotMachine, view: SlotView, copy: SlotCopy) -> bool:
    return True


ABLATIONS: dict[str, Ablation] = {
    "oldest": Ablation(
        "origins offer the oldest first, and owners take nothing out of turn",
        (
            (SlotOutbox, "restart", _newest_first),
            (SlotOwner, "_is_in_turn", lambda self, store, offer: True),
        ),
        ("kill", "handover"),
    ),
    "safe": Ablation(
        "an acknowledgement waits until owner and followers have it on disk",
        ((OwnedSlot, "safe_version", lambda self: self.state.version),),
        ("wipe", "kill"),
    ),
    "records": Ablation(
        "at QoS 2 a record is safe before the packet that relies on it is sent",
        ((Attachments, "_when_safe", _at_once),),
        ("kill", "silent"),
    ),
    "writer": Ablation(
        "a client's register has one writer",
        ((merge, "_merge_registers", _mixed_registers),),
        ("split", "kill", "handover"),
    ),
    "client": Ablation(
        "a side has seen a message for a client only if it knows the client",
        ((merge, "_seen", _whole_context),),
        ("split", "deaf"),
    ),
    "unclaimed": Ablation(
        "an owner without a current copy keeps messages for clients whom it does not know",
        ((SlotMachine, "_is_current", _is_current),),
        ("split", "deaf"),
    ),
    "forks": Ablation(
        "an owner serves when all nodes in reach have handed in their forks",
        ((SlotOwner, "serves", lambda self, store: True),),
        ("kill", "handover", "split"),
    ),
    "table": Ablation(
        "a new owner believes the connection's table",
        ((Front, "table", _no_table),),
        ("kill", "handover"),
    ),
    "unanswered": Ablation(
        "what no owner has answered follows to the next, and held acknowledgements",
        ((Front, "send_again", _nothing_again),),
        ("kill", "handover"),
    ),
    "digest": Ablation(
        "a packet id is a repetition only with DUP and the same digest",
        ((Attachments, "_is_repetition", lambda self, known, step: True),),
        ("split", "rack", "tail", "kill"),
        strict=False,
    ),
    "ring": Ablation(
        "a new lineage goes on at another place of the packet ids",
        ((Attachments, "_restart", lambda self, last, client: last),),
        ("split", "kill", "tail", "rack"),
        strict=False,
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
    "stamps": Ablation(
        "a stamp is greater than all in the state, whatever the clock says",
        ((SlotState, "stamp", _by_the_clock),),
        ("skew", "handover", "kill"),
    ),
    "rank": Ablation(
        "the owner numbers a client's connections, and refuses an older one",
        ((Attachments, "_is_older", lambda self, one, other: False),),
        ("halfopen", "pause"),
    ),
    "moved": Ablation(
        "a front whose client is elsewhere drops its unanswered QoS 1 messages",
        ((Origin, "drop", _ignore),),
        ("halfopen", "pause", "oneway"),
    ),
}
