"""Sessions on their way from this node to others, piece by piece: the old owner's half of `takeover.machine`."""

from collections import deque
from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.takeover import (
    InflightSent,
    RouteMarkerEcho,
    SessionBatch,
    SessionDamaged,
    SessionMessage,
    SessionMoved,
    SessionState,
    TakeoverEnd,
    Who,
)
from vmq.clustering.takeover.port import SessionUnreadableError, TakeoverPort
from vmq.clustering.takeover.state import OutgoingTakeover, SendingStep

#: Batches of a session under way to its new owner.
WINDOW: Final = 2
#: Seconds that a node which is up is waited for: with its mark, or with the next piece of a session.
PATIENCE: Final = 30.0
#: Seconds until a mark that has not come is asked for.
ASK_AFTER: Final = 1.0


class TakeoverSending:
    """The ghosts of one node. All times are those of `Moving`."""

    def __init__(
        self,
        here: TakeoverPort,
        stray: Callable[[Who, list[SessionMessage]], None],
        ended: Callable[[Who], None],
    ) -> None:
        """`stray` gives a session, wherever it is now, what went to a node that is no member any more.

        `ended` is told of a ghost that is about to end.
        """
        self._here = here
        self._stray = stray
        self._ended = ended
        self.outgoing: dict[Who, OutgoingTakeover] = {}
        #: Those of them that have something to send, or wait for somebody who is up.
        self._busy: set[Who] = set()

    # --- which

    def begin(self, who: Who, node: str, since: int, now: float, is_taken: bool) -> None:
        """What is here of a session becomes a ghost, and goes to a node that has become its owner.

        `is_taken`: that node may have had a copy of it.
        """
        self._here.make_ghost(who)
        self.outgoing[who] = outgoing = OutgoingTakeover()
        outgoing.is_held = is_taken and self._here.compare(who)
        outgoing.left = (since, node)
        outgoing.awaited = set(self._here.up())
        outgoing.missed = set(self._here.down())
        outgoing.known = outgoing.awaited | outgoing.missed
        self._aim(who, outgoing, node, since, now)

    def go_on(self, who: Who) -> None:
        """Nothing of the ghost is at its new owner: it may go."""
        outgoing = self.outgoing.get(who)
        if outgoing is not None:
            outgoing.is_held = False
            self._ship(who, outgoing)

    def redirect(self, who: Who, node: str, since: int, now: float) -> None:
        """Another node has become the owner while the session was on its way, or once it was whole there."""
        outgoing = self.outgoing[who]
        if outgoing.step is SendingStep.DONE:
            # The session goes on from where it is whole; only what still comes here goes to the new owner.
            outgoing.target = node
            outgoing.since = since
            self._ship(who, outgoing)
        elif outgoing.target != node:
            self._aim(who, outgoing, node, since, now)

    def _aim(self, who: Who, outgoing: OutgoingTakeover, node: str, since: int, now: float) -> None:
        here = self._here
        outgoing.target = node
        outgoing.since = since
        outgoing.deadline = now + PATIENCE
        outgoing.step = SendingStep.STATE
        pending = outgoing.awaited | outgoing.missed
        outgoing.awaited = pending.intersection(here.up())
        outgoing.missed = pending - outgoing.awaited
        outgoing.is_told = False
        outgoing.asked = set()
        outgoing.ask_at = now + ASK_AFTER
        # Who has marked before routes past this node since, and has nothing more to say.
        place = here.place(who)
        marked = {here.name, *here.up()} - pending
        outgoing.echoes = deque((origin, place) for origin in sorted(marked))
        self._ship(who, outgoing)

    def take_back(self, who: Who) -> None:
        """The ghost is the session again."""
        del self.outgoing[who]
        self._busy.discard(who)
        self._here.revive(who)

    def forget(self, who: Who) -> None:
        """The ghost has nothing to do any more."""
        del self.outgoing[who]
        self._busy.discard(who)
        self._ended(who)
        self._here.end_ghost(who)

    # --- what it takes

    def haunts(self, who: Who, origin: str) -> bool:
        """Whether the ghost of a session takes what comes from an origin."""
        outgoing = self.outgoing.get(who)
        if outgoing is None or origin in self._here.elsewhere(who):
            return False
        return origin in outgoing.awaited or origin in outgoing.missed

    def took(self, who: Who) -> None:
        """The ghost has taken something."""
        outgoing = self.outgoing.get(who)
        if outgoing is not None:
            self._ship(who, outgoing)

    def mark(self, who: Who, peer: str) -> None:
        """A node routes to the new owner from now on."""
        outgoing = self.outgoing[who]
        if peer in outgoing.awaited | outgoing.missed:
            outgoing.awaited.discard(peer)
            outgoing.missed.discard(peer)
            if outgoing.step is not SendingStep.DONE:
                outgoing.echoes.append((peer, self._here.place(who)))
            self._ship(who, outgoing)

    def unmark(self, who: Who, peer: str) -> None:
        """A node that may have marked routes here again, by a record that is not the latest: it will mark once more."""
        outgoing = self.outgoing[who]
        if peer not in outgoing.missed:
            outgoing.awaited.add(peer)
            outgoing.asked.discard(peer)
            self._busy.add(who)

    # --- what is sent of it

    def _ship(self, who: Who, outgoing: OutgoingTakeover) -> None:
        """Sends as much of a session as there is room for."""
        here = self._here
        if outgoing.target not in here.up():
            return
        if outgoing.step is not SendingStep.DONE and here.is_damaged(who):
            outgoing.is_damaged = True
        if not outgoing.is_damaged:
            if outgoing.is_held:
                return
            try:
                while self._ship_next(who, outgoing):
                    pass
            except SessionUnreadableError:
                outgoing.is_damaged = True
        if outgoing.is_damaged:
            self._tell_damage(who, outgoing)
            return
        if self.outgoing.get(who) is not outgoing:
            return
        if outgoing.step is SendingStep.DONE and here.has_shipped(who, here.place(who)):
            self._busy.discard(who)
        else:
            self._busy.add(who)

    def _tell_damage(self, who: Who, outgoing: OutgoingTakeover) -> None:
        """What is left of the ghost stays until its store is repaired: the new owner refuses the client until then."""
        if not outgoing.is_told:
            message = SessionDamaged(*who, self._here.name, outgoing.since)
            outgoing.is_told = self._here.send(outgoing.target, message)
        self._busy.add(who)

    def _ship_next(self, who: Who, outgoing: OutgoingTakeover) -> bool:
        """Sends the next piece; False: there is none, or no room for it."""
        here, target = self._here, outgoing.target
        match outgoing.step:
            case SendingStep.STATE:
                if not here.send(target, SessionState(*who, outgoing.since, *here.state(who))):
                    return False
                here.forget_received(who)
                outgoing.step = SendingStep.INFLIGHT
            case SendingStep.INFLIGHT:
                entries = here.take_inflight(who)
                if not entries:
                    outgoing.step = SendingStep.READY
                elif not self._send_batch(who, outgoing, entries):
                    return False
            case SendingStep.READY:
                if not here.send(target, InflightSent(*who, outgoing.since)):
                    return False
                outgoing.step = SendingStep.WAITING
            case _:
                return self._ship_waiting(who, outgoing)
        return True

    def _ship_waiting(self, who: Who, outgoing: OutgoingTakeover) -> bool:
        here = self._here
        if outgoing.echoes and here.has_shipped(who, outgoing.echoes[0][1]):
            origin = outgoing.echoes[0][0]
            if not here.send(outgoing.target, RouteMarkerEcho(*who, outgoing.since, origin)):
                return False
            outgoing.echoes.popleft()
            return True
        if outgoing.open >= WINDOW:
            return False
        # In flight may be what came on from a third node meanwhile.
        entries = here.take_inflight(who) or here.take_waiting(who)
        if entries:
            return self._send_batch(who, outgoing, entries)
        if outgoing.awaited or outgoing.echoes:
            return False
        if outgoing.step is SendingStep.WAITING:
            if not here.send(outgoing.target, TakeoverEnd(*who, outgoing.since)):
                return False
            outgoing.step = SendingStep.DONE
        if not outgoing.missed and not outgoing.open:
            self.forget(who)
        return False

    def _send_batch(
        self, who: Who, outgoing: OutgoingTakeover, entries: list[SessionMessage]
    ) -> bool:
        """Entries leave the ghost with the commit that has them in the outbox."""
        here = self._here

        def done(is_there: bool) -> None:
            self._on_sent(who, outgoing, entries, is_there)

        if not here.send(outgoing.target, SessionBatch(*who, entries), done):
            here.put_back(who, entries)
            return False
        outgoing.open += 1
        return True

    def _on_sent(
        self, who: Who, outgoing: OutgoingTakeover, entries: list[SessionMessage], is_there: bool
    ) -> None:
        """A batch has come to the new owner, or never will: that is no member any more."""
        outgoing.open -= 1
        if self.outgoing.get(who) is outgoing:
            if not is_there:
                self._here.put_back(who, entries)
            self._ship(who, outgoing)
        elif not is_there:
            self._stray(who, entries)

    # --- the other nodes, and time

    def _ask_for_marks(self, who: Who, outgoing: OutgoingTakeover) -> None:
        """Asks those whose view may have gone from one record to a later one, past this node."""
        waiting = (outgoing.awaited | outgoing.missed) - outgoing.asked
        for peer in sorted(waiting.intersection(self._here.up())):
            if self._here.send(peer, SessionMoved(*who, outgoing.since, outgoing.target)):
                outgoing.asked.add(peer)

    def peer_up(self, peer: str) -> None:
        """A member can be reached."""
        for who, outgoing in list(self.outgoing.items()):
            if peer not in outgoing.known and outgoing.step is not SendingStep.DONE:
                # It has joined since, and may hear first what others have not heard to be over.
                outgoing.known.add(peer)
                outgoing.awaited.add(peer)
                self._busy.add(who)
            self._ask_for_marks(who, outgoing)
            if outgoing.target == peer:
                self._ship(who, outgoing)

    def peer_down(self, peer: str) -> None:
        """A member cannot be reached any more: nobody waits for it."""
        for who, outgoing in list(self.outgoing.items()):
            if outgoing.target == peer:
                outgoing.is_told = False  # its next life does not know
            if peer in outgoing.awaited:
                outgoing.awaited.discard(peer)
                outgoing.missed.add(peer)
                outgoing.asked.discard(peer)
                self._ship(who, outgoing)

    def peer_gone(self, peer: str) -> None:
        """A node is no member any more: it sends nothing."""
        for who, outgoing in list(self.outgoing.items()):
            outgoing.awaited.discard(peer)
            outgoing.missed.discard(peer)
            self._ship(who, outgoing)

    def tick(self, now: float) -> None:
        """Ends what has waited for too long, and tries again what had no room."""
        for who in list(self._busy):
            outgoing = self.outgoing.get(who)
            if outgoing is None:
                self._busy.discard(who)
                continue
            if now >= outgoing.deadline:
                outgoing.awaited.clear()
            if now >= outgoing.ask_at:
                self._ask_for_marks(who, outgoing)
            self._ship(who, outgoing)
