"""How sessions move between nodes, without a loop, a clock, sockets or a disk.

The record of a session (`vmq.clustering.directory.records`) names its owner, and everything follows from one rule:

    **A node that has a session whose record names another node hands it over to that one.**

A CONNECT on node N asks the owner O to write N into the record (`ClaimSession`). O closes its own connection, writes,
and the rule does the rest: O sends `SessionState`, what is in flight, `InflightSent` (at which N answers the CONNECT),
what waits, and what still comes in, in one line, on one outbox. So does a node whose session lost its record to the
other side of a split, one that was down while another took its sessions, and one that leaves. An owner that is down is
not asked: N takes the session with what the record says of it.

**None lost, none twice, and in order.** Every node X sees the record change at a time of its own, and until then it
routes to O. At that time X marks the place in its outboxes to O and to N (`RouteMarker`). What X publishes before its
mark is O's to take: O keeps the session as a *ghost*, which takes only that and sends it on. What X publishes behind
its mark is N's to take, which *holds* it until O has sent on all of X's before (`RouteMarkerEcho`): then what X
published is in the order in which X published it. A new owner learns that it is one from O's `SessionState`, from X's
`RouteMarker` or from its own metadata, whichever comes first, and each of them says what to subscribe to. N's own
clients are such an X, whose messages have the origin "".

A node that hears of the session only now, as one that has just joined does, routes it from now on, and marks that by
what the record says of the owner before. The ghost waits for it as for the others, once it is up.

A node that goes down meanwhile is no longer waited for. Then a message may come twice or out of its order, but none is
lost that is not lost with the node: a ghost stays until those that were down have come back and marked, too.

One move of a session at a time: its owner gives it on once it has it whole.
"""

from typing import Any, Final

from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import (
    ClaimSession,
    InflightSent,
    Move,
    RedirectedPublish,
    RouteMarker,
    RouteMarkerEcho,
    SessionBatch,
    SessionDamaged,
    SessionFree,
    SessionMessage,
    SessionMoved,
    SessionState,
    TakeoverEnd,
    Who,
)
from vmq.clustering.takeover.damaged_elsewhere import DamagedElsewhere
from vmq.clustering.takeover.ended import EndedTakeovers
from vmq.clustering.takeover.port import BufferVerdict, SessionKind, TakeoverPort
from vmq.clustering.takeover.route_markers import RouteMarkers
from vmq.clustering.takeover.sending import PATIENCE, TakeoverSending
from vmq.clustering.takeover.stale_routes import StaleRoutes
from vmq.clustering.takeover.state import IncomingTakeover, OutgoingTakeover, WaitingClaim
from vmq.clustering.takeover.unsent import UnsentMessages

#: Seconds that a CONNECT waits for an owner that is up and says nothing.
CLAIM_PATIENCE: Final = 10.0
#: How often a claim is sent on.
MAX_HOPS: Final = 8


class TakeoverMachine:
    """One node's side of all moves. Everything here happens in one thread, a call at a time."""

    def __init__(self, here: TakeoverPort) -> None:
        self._here = here
        self._now = 0.0
        self.claims: dict[Who, WaitingClaim] = {}
        self.incoming: dict[Who, IncomingTakeover] = {}
        self.takings = StaleRoutes(here)
        self.shipping = TakeoverSending(here, self._stray, self.takings.end)
        self._unsaid = UnsentMessages(here)
        self.marking = RouteMarkers(here, self._unsaid)
        self._giving: Who | None = None
        self._over = EndedTakeovers()
        self.damaged = DamagedElsewhere(here, self._unsaid)

    @property
    def outgoing(self) -> dict[Who, OutgoingTakeover]:
        """Sessions on their way to other nodes."""
        return self.shipping.outgoing

    def start(self, now: float) -> None:
        """Goes on with what an earlier life has left."""
        self._now = now
        self.takings.start(now)

    def made_again(self, who: Who, record: Record, now: float) -> None:
        """The broker died while it took a session: it has taken no mark by this record, and lost what it made."""
        if record.source not in ("", self._here.name):
            self.takings.begin(who, now)
            self.marking.changed(who, Record(record.source, 0, False, {}), record, now)

    # --- clients

    def connect(self, who: Who, clean: bool, ticket: Any, now: float) -> bool:
        """A client has come. True: it may go on at once; else `proceed` or `refuse` is told of the ticket."""
        self._now = now
        before = self.claims.pop(who, None)
        if before is not None:
            self._here.refuse(before.ticket)
        if self.damaged.refuses(who, clean, ticket):
            return False
        if self._may_go_on(who, clean):
            return True
        self.claims[who] = WaitingClaim(ticket, clean, now + CLAIM_PATIENCE)
        self._ask(who)
        return False

    def cancel(self, who: Who, ticket: Any) -> None:
        """The client has gone away. What comes of the session stays here all the same."""
        claiming = self.claims.get(who)
        if claiming is not None and claiming.ticket is ticket:
            del self.claims[who]

    def _may_go_on(self, who: Who, clean: bool) -> bool:
        here = self._here
        incoming = self.incoming.get(who)
        if incoming is not None:
            return incoming.is_ready or incoming.source not in here.up()
        record = here.record(who)
        if record is None:
            return True
        if record.node == here.name:
            return not self._seeks(who, record, clean)  # its disk was lost
        if record.node in here.up() or self._seeks(who, record, clean):
            return False
        self._take_over(who, record, clean)
        return True

    def _seeks(self, who: Who, record: Record | None, clean: bool) -> bool:
        """Whether a copy of the session is looked for: then `sought` goes on."""
        if record is None or clean or record.clean or self._here.kind(who) is not SessionKind.NONE:
            return False
        return self._here.seek(who, record.node)

    def sought(self, who: Who, now: float) -> None:
        """The search for a copy has ended; what was found is the session here."""
        self._now = now
        claiming = self.claims.get(who)
        if claiming is None:
            return
        record = self._here.record(who)
        if not self._may_go_on(who, claiming.clean):
            if now < claiming.deadline:
                return
            self._take_over(who, record, claiming.clean)
        elif record is not None and record.node == self._here.name:
            self._take_over(who, record, claiming.clean)  # nobody had a copy
        self._proceed(who)

    def _take_over(self, who: Who, record: Record | None, clean: bool) -> None:
        """The owner cannot be asked: this node goes on with what it has and knows, and is the owner."""
        here = self._here
        if who in self.outgoing:
            self.shipping.take_back(who)
        elif (
            here.kind(who) is SessionKind.NONE
            and record is not None
            and not clean
            and not record.clean
        ):
            here.build(who, record.subscriptions)
            self.takings.made(who, self._now)
        if (
            here.kind(who) is SessionKind.DURABLE
            and record is not None
            and record.node != here.name
        ):
            here.own(who)

    def adopt(self, who: Who, record: Record) -> None:
        """The owner is gone for good: this node goes on with what it has and knows."""
        self._take_over(who, record, clean=False)
        if record.node == self._here.name and self._here.kind(who) is SessionKind.DURABLE:
            self._here.own(who)  # anew, without its disk

    def _ask(self, who: Who) -> None:
        """Asks the owner for a session that a client waits for, if it was not asked yet."""
        here = self._here
        claiming = self.claims[who]
        record = here.record(who)
        if record is None or record.node == claiming.asked or record.node not in here.up():
            return
        if here.send(record.node, ClaimSession(*who, here.name, claiming.clean)):
            claiming.asked = record.node

    def _look_again(self, who: Who) -> None:
        """Something changed that a waiting CONNECT may have waited for."""
        claiming = self.claims.get(who)
        if claiming is None:
            return
        if self._may_go_on(who, claiming.clean):
            self._proceed(who)
        else:
            self._ask(who)

    def _proceed(self, who: Who) -> None:
        claiming = self.claims.pop(who, None)
        if claiming is not None:
            self._here.proceed(claiming.ticket)

    # --- messages

    def receive(self, peer: str, message: Move, now: float) -> None:
        """Takes what another node says."""
        self._now = now
        match message:
            case ClaimSession():
                self._on_claim(message)
            case SessionFree():
                self._proceed(message.who)
            case SessionState():
                self._on_state(peer, message)
            case SessionBatch():
                self._on_batch(peer, message)
            case InflightSent():
                self._on_ready(peer, message)
            case SessionMoved():
                self.marking.asked(peer, message, now)
            case RouteMarker():
                self._on_mark(peer, message)
            case RouteMarkerEcho():
                self._on_echo(peer, message)
            case TakeoverEnd():
                self._on_end(peer, message)
            case RedirectedPublish():
                self._on_inherited(message)
            case SessionDamaged():
                self.damaged.take(message, self.incoming.get(message.who), self.claims)

    # --- the owner is asked

    def _on_claim(self, claim: ClaimSession) -> None:
        here, who = self._here, claim.who
        if self.damaged.refuses_claim(claim):
            return
        incoming = self.incoming.get(who)
        if incoming is not None:
            incoming.next = claim
            return
        record = here.record(who)
        if record is not None and record.node != here.name:
            if record.node != claim.node and claim.hops < MAX_HOPS:
                self._unsaid.say(
                    record.node, ClaimSession(*who, claim.node, claim.clean, claim.hops + 1)
                )
            return
        if here.kind(who) is SessionKind.DURABLE and not claim.clean:
            # Without a record nothing is handed over: the claimer goes on alone, and gets the rest by the rule.
            if record is not None:
                self.hand_over(who, claim.node, self._now)
            return
        here.close_client(who)
        here.end(who)
        self._unsaid.say(claim.node, SessionFree(*who))

    def hand_over(self, who: Who, node: str, now: float) -> None:
        """Makes another node the owner of a durable session of this one, and sends it there."""
        self._now = now
        here = self._here
        here.close_client(who)
        self._giving = who
        try:
            since = here.give(who, node)
        finally:
            self._giving = None
        record = here.record(who)
        if record is not None:
            self.marking.changed(who, Record(here.name, 0, False, {}), record, now)
        self._begin(who, node, since)

    def _begin(self, who: Who, node: str, since: int, is_taken: bool = False) -> None:
        """The session's record names another node: what is here of it becomes a ghost, and goes there.

        `is_taken`: that node took it, without being given it.
        """
        if self.incoming.pop(who, None) is not None:
            self._here.close_gate(who)
        self.shipping.begin(who, node, since, self._now, is_taken)

    def compared(self, who: Who, now: float) -> None:
        """What the new owner of a session has of it already is out of its ghost."""
        self._now = now
        self.shipping.go_on(who)

    # --- ghosts

    def on_ghost(self, who: Who, now: float) -> None:
        """The ghost has taken a message."""
        self._now = now
        self.shipping.took(who)

    # --- marks

    def _on_mark(self, peer: str, mark: RouteMarker) -> None:
        self._place(peer, mark)
        self.takings.mark(mark.who, peer, mark.node, self._now)

    def _place(self, peer: str, mark: RouteMarker) -> None:
        """What a mark says of a session on its way."""
        here, who = self._here, mark.who
        outgoing = self.outgoing.get(who)
        view = (mark.since, mark.node)
        if outgoing is not None and mark.node == here.name:
            if view >= (outgoing.since, outgoing.target):
                outgoing = None
                self._come_back(who, mark.source, mark.since, mark.subscriptions)
        if outgoing is not None:
            if mark.node == here.name:
                self.shipping.unmark(who, peer)
            elif view >= outgoing.left:
                self.shipping.mark(who, peer)
            return
        if here.name == mark.source != mark.node:
            return
        incoming = self.incoming.get(who)
        record = here.record(who)
        is_news = record is None or (record.since, record.node) < view
        if incoming is None and is_news and mark.node == here.name:
            # Who is asked for a mark may know no more than that the session was to come here, or is over.
            is_over = mark.again or self._over.has(who, mark.since)
            if here.kind(who) is SessionKind.NONE and not is_over and mark.source != here.name:
                incoming = self._expect(who, mark.source, mark.since, mark.subscriptions)
        elif record is not None and mark.node == here.name and view < (record.since, record.node):
            self._catch(who, record, mark)
        if incoming is None:
            return
        incoming.direct.discard(peer)
        if view >= (incoming.since, here.name):
            incoming.marked.add(peer)
            self._maybe_has_come(who, incoming)
        elif mark.node == here.name:
            incoming.direct.add(peer)

    def _catch(self, who: Who, record: Record, mark: RouteMarker) -> None:
        """This node was made the owner, and another one since, before it heard of that: some route to it still."""
        here = self._here
        if record.node != here.name and here.kind(who) is SessionKind.NONE:
            here.build(who, mark.subscriptions)
            self.takings.begin(who, self._now)
            self._begin(who, record.node, record.since)

    def verdict(self, who: Who, origin: str) -> BufferVerdict:
        """What the session does with a message that comes from an origin, as long as its gate is open."""
        incoming = self.incoming.get(who)
        if origin in self._here.elsewhere(who):
            return BufferVerdict.DROP
        if incoming is None:
            return BufferVerdict.TAKE
        if origin in incoming.direct:
            return BufferVerdict.TAKE_FROM_LANE
        if origin not in incoming.marked:
            return BufferVerdict.DROP
        return BufferVerdict.TAKE if origin in incoming.echoed else BufferVerdict.HOLD

    # --- a session comes

    def _expect(
        self, who: Who, source: str, since: int, subscriptions: dict[str, int]
    ) -> IncomingTakeover:
        """This node is the owner from now on, and the source has the session still."""
        here = self._here
        self.incoming[who] = incoming = IncomingTakeover(source, since, self._now + PATIENCE)
        if here.kind(who) is SessionKind.NONE:
            here.build(who, subscriptions)
            self.takings.begin(who, self._now)
        else:
            here.build(who, subscriptions)
        here.open_gate(who)
        record = here.record(who)
        if record is not None and record.node == here.name:
            incoming.marked.add("")
        return incoming

    def _come_back(
        self, who: Who, source: str, since: int, subscriptions: dict[str, int]
    ) -> IncomingTakeover:
        """A session that was given away is given back, while its ghost waits for nodes that are, or were, down."""
        here = self._here
        self.shipping.take_back(who)
        incoming = self._expect(who, source, since, subscriptions)
        # They may not know yet that it was away, and what the ghost took of theirs is the session's again.
        incoming.direct = {*here.up(), *here.down()} - here.elsewhere(who)
        return incoming

    def _on_state(self, peer: str, state: SessionState) -> None:
        here, who = self._here, state.who
        outgoing = self.outgoing.get(who)
        if outgoing is not None and outgoing.target == peer and outgoing.since < state.since:
            self._come_back(who, peer, state.since, state.subscriptions)
        if self._pass_on(state):
            return
        incoming = self.incoming.get(who)
        if incoming is None and here.kind(who) is SessionKind.NONE:
            incoming = self._expect(who, peer, state.since, state.subscriptions)
        if incoming is None or (incoming.has_state and incoming.source != peer):
            return  # the session here gets the messages, and keeps the rest of its own
        incoming.has_state = True
        incoming.source = peer
        incoming.deadline = self._now + PATIENCE
        here.build(who, state.subscriptions)
        here.receive(who, state.received)

    def _on_batch(self, peer: str, batch: SessionBatch) -> None:
        who = batch.who
        if self._pass_on(batch):
            return
        incoming = self.incoming.get(who)
        if incoming is not None:
            incoming.deadline = self._now + PATIENCE
        if self._here.kind(who) is SessionKind.DURABLE:
            self._here.add(who, batch.entries)

    def _stray(self, who: Who, entries: list[SessionMessage]) -> None:
        """What went to a node that is no member any more goes on with the session, wherever that is."""
        self._on_batch(self._here.name, SessionBatch(*who, entries))

    def _pass_on(self, message: SessionState | SessionBatch) -> bool:
        """Sends on what belongs to a session that is elsewhere again."""
        here, who = self._here, message.who
        if who in self.outgoing:
            if isinstance(message, SessionBatch):
                here.add(who, message.entries)
                self.shipping.took(who)
            return True
        record = here.record(who)
        if here.kind(who) is not SessionKind.NONE or record is None or record.node == here.name:
            return False
        if isinstance(message, SessionState) and record.since < message.since:
            return False  # the record that makes this node the owner is still to come
        if isinstance(message, SessionState):
            return True
        if record.node in {*here.up(), *here.down()}:
            self._unsaid.say(record.node, message)
        else:  # that node is no member any more: somebody will take its place
            here.build(who, record.subscriptions)
            self.takings.begin(who, self._now)
            here.add(who, message.entries)
            self._begin(who, record.node, record.since)
        return True

    def _on_inherited(self, message: RedirectedPublish) -> None:
        """Gives sessions what waited for a node that had them, wherever they are now."""
        here = self._here
        nodes = {*here.up(), *here.down()}
        elsewhere: dict[str, list[str]] = {}
        for client_id in message.clients:
            who = (message.mountpoint, client_id)
            record = here.record(who)
            is_here = who in self.outgoing or here.kind(who) is not SessionKind.NONE
            if is_here or record is None or record.node not in nodes:
                self._on_batch(here.name, SessionBatch(*who, [message.entry]))
            else:
                elsewhere.setdefault(record.node, []).append(client_id)
        for node, clients in elsewhere.items():
            self._unsaid.say(node, RedirectedPublish(message.mountpoint, clients, message.entry))

    def _on_ready(self, peer: str, ready: InflightSent) -> None:
        incoming = self.incoming.get(ready.who)
        if incoming is not None and incoming.source == peer:
            incoming.is_ready = True
            self._look_again(ready.who)

    def _on_echo(self, peer: str, echo: RouteMarkerEcho) -> None:
        incoming = self.incoming.get(echo.who)
        if incoming is not None and incoming.source == peer:
            # This node's own clients have the origin "".
            origin = "" if echo.origin == self._here.name else echo.origin
            incoming.echoed.add(origin)
            self._here.release(echo.who, origin)

    def _on_end(self, peer: str, end: TakeoverEnd) -> None:
        incoming = self.incoming.get(end.who)
        if incoming is not None and incoming.source == peer:
            incoming.is_whole = True
            self._maybe_has_come(end.who, incoming)

    def _maybe_has_come(self, who: Who, incoming: IncomingTakeover) -> None:
        """Ends the move, unless something that the source has taken may still come here, too."""
        if incoming.is_whole and not (incoming.echoed - incoming.marked).intersection(
            {"", *self._here.up()}
        ):
            self._has_come(who)

    def _has_come(self, who: Who) -> None:
        """The session is here whole, or as whole as it will be."""
        here = self._here
        incoming = self.incoming.pop(who)
        here.close_gate(who)
        record = here.record(who)
        is_late = record is not None and (record.since, record.node) < (incoming.since, here.name)
        if is_late and here.kind(who) is SessionKind.DURABLE:
            # As the former owner wrote: what is published here is for the session from now on.
            here.own(who, incoming.since)
        self._look_again(who)
        if incoming.next is not None:
            self._on_claim(incoming.next)

    # --- records

    def on_owner(self, who: Who, before: Record | None, after: Record | None, now: float) -> None:
        """The record of a session has changed, here or elsewhere; publishes follow it already."""
        self._now = now
        if who == self._giving:
            return
        if before is not None and before.node == self._here.name and not before.clean:
            if after is None or after.clean:
                self._over.ended(who, before.since, now)
        if after is None or after.clean:
            self.takings.end(who)
            self.damaged.forget(who)
        if after is None and who in self.outgoing:
            self.shipping.forget(who)
        elif after is not None:
            self.marking.changed(who, before, after, now)
            if after.node == self._here.name:
                self._on_ours(who, before, after)
            else:
                self._on_theirs(who, after)
        self._look_again(who)

    def _on_ours(self, who: Who, before: Record | None, after: Record) -> None:
        here = self._here
        incoming = self.incoming.get(who)
        source = after.source if before is None else before.node
        if before is None and not here.is_recent(after):
            source = ""
        is_given = source in here.up()
        if incoming is not None:
            incoming.marked.add("")
            self._maybe_has_come(who, incoming)
        elif who in self.outgoing:
            if is_given:
                self._come_back(who, source, after.since, after.subscriptions)
            else:
                self.shipping.take_back(who)
        elif here.kind(who) is SessionKind.NONE and not after.clean:
            if is_given:
                self._expect(who, source, after.since, after.subscriptions)
            else:
                here.build(who, after.subscriptions)
                if source not in ("", here.name):
                    here.seek(who, source)
                    self.takings.begin(who, self._now)
        elif before is None and after.source == here.name:
            self.takings.begin_unsure(who, self._now)

    def _on_theirs(self, who: Who, after: Record) -> None:
        here = self._here
        if who in self.outgoing:
            if after.clean:
                self.shipping.forget(who)
            else:
                self.shipping.redirect(who, after.node, after.since, self._now)
            return
        incoming = self.incoming.get(who)
        if incoming is not None and (after.since, after.node) < (incoming.since, here.name):
            return  # news from before the move
        self.damaged.forget(who)
        kind = here.kind(who)
        if kind is SessionKind.NONE:
            return
        here.close_client(who)
        if kind is SessionKind.CLEAN or after.clean or here.is_of_another(who, after):
            here.end(who)  # messages for one user are none for another
        else:
            self._begin(who, after.node, after.since, is_taken=True)

    # --- the other nodes, and time

    def peer_up(self, peer: str, now: float) -> None:
        """A member can be reached."""
        self._now = now
        self.shipping.peer_up(peer)
        self.takings.peer_up(peer, now)

    def peer_down(self, peer: str, now: float) -> None:
        """A member cannot be reached any more: nobody waits for it."""
        self._now = now
        self.damaged.peer_down(peer)
        for who, incoming in list(self.incoming.items()):
            if incoming.source == peer:
                self._here.seek(who, peer)  # what has not come may be in a copy
                self._has_come(who)
            else:
                self._maybe_has_come(who, incoming)
        self.shipping.peer_down(peer)
        for who in list(self.claims):
            self._look_again(who)

    def peer_gone(self, peer: str, now: float) -> None:
        """A node is no member any more: it sends nothing."""
        self._now = now
        self.shipping.peer_gone(peer)
        self.takings.peer_gone(peer)
        self._unsaid.forget(peer)

    def tick(self, now: float) -> None:
        """Ends what has waited for too long, and tries again what had no room."""
        self._now = now
        self._unsaid.say_rest()
        self.shipping.tick(now)
        self.takings.tick(now)
        self.marking.tick(now)
        self.damaged.tick()
        self._over.tick(now)
        for who, incoming in list(self.incoming.items()):
            if now >= incoming.deadline:
                self._has_come(who)
        for who, claiming in list(self.claims.items()):
            record = self._here.record(who)
            if now >= claiming.deadline:
                if not self._seeks(who, record, claiming.clean):
                    self._take_over(who, record, claiming.clean)
                    self._proceed(who)
            else:
                self._ask(who)
