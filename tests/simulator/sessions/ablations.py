"""Rules switched off, one at a time: what breaks without each is what it is for.

An ablation is what takes the place of some methods; the faults that show it, and seeds that do, or a schedule by hand.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.simulator.sessions import scripts, without
from tests.simulator.sessions.faults import ALL_KINDS, KINDS
from tests.simulator.switched_off import switched_off
from vmq.clustering.front.connection import FrontConnection
from vmq.clustering.front.front import SessionFront
from vmq.clustering.origin.outbox import SlotOutbox
from vmq.clustering.slots import attachments, copies, merge, records
from vmq.clustering.slots.attachments import Attachments
from vmq.clustering.slots.cold import ColdQueues
from vmq.clustering.slots.copies import SlotCopy
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.register import ClientRegister
from vmq.clustering.slots.state import SlotState


@dataclass(frozen=True)
class Ablation:
    """A rule that can be switched off."""

    meaning: str
    patches: tuple[tuple[Any, str, Any], ...]
    #: Kinds of faults, and seeds with which they show it.
    shown_by: tuple[tuple[str, ...], tuple[int, ...]] = KINDS, ()
    strict: bool = True
    #: As in `run`.
    narrow: bool = False
    #: A schedule by hand that shows it, whatever seeds do.
    script: Callable[[], Counter[str]] | None = None

    def off(self) -> AbstractContextManager[None]:
        """Without the rule: some of it is called by compiled code alone."""
        return switched_off(self.patches, [SlotOwner])


ABLATIONS: dict[str, Ablation] = {
    "oldest": Ablation(
        "origins offer the oldest first, and owners take nothing out of turn",
        (
            (SlotOutbox, "restart", without.newest_first),
            (SlotOwner, "_is_in_turn", lambda self, store, offer: True),
        ),
        (("kill", "handover"), (0,)),
    ),
    "safe": Ablation(
        "an acknowledgement waits until owner and followers have it on disk",
        ((OwnedSlot, "safe_version", lambda self: self.state.version),),
        (("wipe", "kill"), (6,)),
    ),
    "records": Ablation(
        "at QoS 2 a record is safe before the packet that relies on it is sent",
        ((Attachments, "_when_safe", without.at_once),),
        (("kill", "silent"), (1,)),
    ),
    "writer": Ablation(
        "a client's register has one writer",
        ((merge, "_merge_registers", without.mixed_registers),),
        (("split", "kill", "handover"), (31,)),
    ),
    "client": Ablation(
        "a side has seen a message for a client only if it knows the client",
        ((merge, "_seen", without.whole_context),),
        (("split", "deaf"), (19,)),
    ),
    "unclaimed": Ablation(
        "an owner without a current copy keeps messages for clients whom it does not know",
        ((SlotCopy, "is_current", without.is_current),),
        (("split", "deaf"), (20,)),
    ),
    "anew": Ablation(
        "what a client ended before it asked for it anew has ended, wherever it is read late",
        ((ClientRegister, "begin", without.begin_anew),),
        script=scripts.asks_anew_and_ends,
    ),
    "had": Ablation(
        "what was in a client's queue where another side had it from is done, whatever the client has subscribed to",
        ((merge, "_was_in", lambda side, other, dot: False),),
        script=scripts.finishes_what_waited,
    ),
    "since": Ablation(
        "what came since a client asked one side it has seen for what the client had asked the other, too",
        ((ClientRegister, "asks_for", lambda self, topic_filter: False),),
        script=scripts.asks_the_next_owner_as_well,
    ),
    "unfinished": Ablation(
        "whoever may await PUBREL of an owner that is gone gets it of the next",
        ((merge, "_unfinished", without.nothing_left),),
        (ALL_KINDS, (0,)),
        strict=False,
    ),
    "told": Ablation(
        "a client is not told of a session that its own connection has begun, or ended",
        ((attachments, "is_told_of", lambda asked, state, is_new: True),),
        (("disk",), (1,)),
    ),
    "first": Ablation(
        "a slot knows which connection has begun a session: any other is told of it, though the first answer was lost",
        ((attachments, "is_told_of", without.told_of_what_is_in_it),),
        (("handover",), (8,)),
    ),
    "forks": Ablation(
        "an owner serves when all nodes in reach have handed in their forks",
        ((SlotOwner, "serves", lambda self, store: True),),
        (("kill", "handover", "split"), (0,)),
    ),
    "caught up": Ablation(
        "an owner serves who is in reach again once it has heard everybody whom that one hears",
        ((Reach, "is_caught_up", lambda self, store: True),),
        script=scripts.is_in_reach_of_both_owners,
    ),
    "table": Ablation(
        "a new owner believes the connection's table",
        ((SessionFront, "table", without.no_table),),
        (("kill", "handover"), (0,)),
    ),
    "done": Ablation(
        "a new owner is told which messages at QoS 1 the client has acknowledged to one that did not write it down",
        ((FrontConnection, "is_done", without.ignore),),
        (("kill", "silent"), (0,)),
    ),
    "finished": Ablation(
        "what a client does not send again before anything new, it has finished with another owner",
        ((FrontConnection, "knows", without.ignore), *without.AT_ONCE),
        (("split", "deaf"), (22,)),
        strict=False,
    ),
    "unanswered": Ablation(
        "what no owner has answered follows to the next, and held acknowledgements",
        ((SessionFront, "send_again", without.nothing_again),),
        (("kill", "handover"), (0,)),
    ),
    "digest": Ablation(
        "a packet id is a repetition only with DUP and the same digest",
        ((Attachments, "_is_repetition", lambda self, known, step: True),),
        (("split", "rack", "tail", "kill"), (1,)),
        strict=False,
    ),
    "ring": Ablation(
        "a new lineage goes on at another place of the packet ids",
        ((Attachments, "_restart", lambda self, last, client: last),),
        (("split", "kill", "tail", "rack"), (31,)),
        strict=False,
    ),
    "unwritten": Ablation(
        "a copy that becomes a state has what is on its way to the disk",
        ((Effects, "_unwritten", without.unwritten_heads),),
        (("kill", "disk", "handover"), (0,)),
    ),
    "bodies": Ablation(
        "a record of messages stays until nobody lacks any of it, in memory or not",
        ((ColdQueues, "_holders", lambda self, dot: 1),),
        (("kill", "handover"), (1,)),
    ),
    "mixed": Ablation(
        "what has come into its place in a queue later is in memory, and what was there before",
        ((ColdQueues, "gather", without.gather_as_they_came),),
        (("split", "deaf", "kill", "handover"), (1,)),
    ),
    "stamps": Ablation(
        "a stamp is greater than all in the state, whatever the clock says",
        ((SlotState, "stamp", without.by_the_clock),),
        (("skew", "handover", "kill"), (7,)),
    ),
    "rank": Ablation(
        "the owner numbers a client's connections, and refuses an older one",
        ((Attachments, "_is_older", lambda self, *asked: False),),
        (("halfopen", "pause"), (17,)),
    ),
    "step": Ablation(
        "an acknowledgement counts only in the step that awaits it",
        ((Attachments, "_on_acknowledgement", without.in_any_step),),
        (("kill", "handover"), (4,)),
    ),
    "once more": Ablation(
        "a connection's table changes with an acknowledgement only in the step that awaits it",
        ((FrontConnection, "acknowledge", without.acknowledge_in_any_step),),
        script=scripts.gets_pubrel_of_two_owners,
    ),
    "places": Ablation(
        "PUBRELs follow in the order of the messages, whoever owned the slot when PUBREC came",
        ((SlotState, "send", without.send_behind),),
        (("pause",), (1,)),
    ),
    "crossed": Ablation(
        "an end of a subscription ends what is known to be older, whatever the lineages",
        ((merge, "_ends", lambda *anything: True),),
        (("split", "kill", "tail", "rack"), (15,)),
        strict=False,
    ),
    "earlier": Ablation(
        "what an earlier connection of a client asked for is older, wherever it is read late",
        ((merge, "is_of", lambda connection, request: False),),
        script=scripts.ends_on_a_later_connection,
    ),
    "dead": Ablation(
        "what an owner wrote in a life that was over before a connection came is older than what is asked for on that",
        ((Reach, "dead", lambda self: []),),
        script=scripts.ends_what_a_dead_owner_knows,
    ),
    "held up": Ablation(
        "an owner that was held up serves when the others have said again that they have no fork",
        ((Reach, "is_held_up", lambda self, now: False),),
        (("pause", "skew"), (415,)),
    ),
    "ended": Ablation(
        "the end of a subscription is a record",
        ((SlotState, "subscribe", without.end_without_record),),
        (("split", "pause"), (41,)),
    ),
    "entries": Ablation(
        "the context of a copy counts only when all its entries are there",
        ((copies, "salvage", without.with_its_context),),
        (("kill", "silent"), (1,)),
        strict=False,
    ),
    "lineage": Ablation(
        "of two registers the one attached in the later lineage wins, whatever the clocks say",
        ((ClientRegister, "age", without.age_by_clock),),
        script=scripts.is_attached_by_a_clock_that_is_ahead,
    ),
    "limits": Ablation(
        "what plugins have decided for a session goes to its next owner",
        ((records, "_load_head", without.load_unlimited),),
        (("kill", "handover"), (5,)),
        narrow=True,
    ),
}
