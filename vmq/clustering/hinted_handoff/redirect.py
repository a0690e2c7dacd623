"""What waited for a node that is gone, or has lost its disk: it goes to who has the sessions now that it was for.

A publish on an outbox is for a node, and which sessions there wanted it only that node knows. But the outbox tells,
too: it has a mark (`vmq.clustering.takeover.machine`) at the place from which on this node routes a session elsewhere,
with what that subscribes to. So whatever is in front of the mark, and matches, was for the session, and for no other
node.

- **A node that is no member any more** has sessions until others have adopted them; what is published for them
  meanwhile goes on its outbox as before. Once the last is adopted, and marked, everything on the outbox goes to the
  heirs. What was for partitions of streams goes to who owns them now. If it is let in again meanwhile, what is sent to
  it from then on is its own: sessions that come back to it, and what is published for those that it has.
- **A member with another store** brings back by itself what is its own, and gets what waits for that. Sessions that
  others took over while it was down get from here what is in front of their marks. Nothing is looked at before this
  node knows all that the other knew when it decided which sessions are its own; behind later marks it is like any node.
- **A member that is down** may come back as it was, at any moment: see `hinted_handoff.moved_on`.

What is given leaves this outbox in the same commit of the store in which it enters another one, so it is given once
whenever this broker dies. Share groups choose anew. For clean sessions, which died with their node, nothing is kept.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from vmq.clustering.delivery.dropped import NODE_REMOVED
from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.hinted_handoff.giving import Giving, read_batch
from vmq.clustering.hinted_handoff.moved_on import MovedOn
from vmq.clustering.hinted_handoff.route_intervals import RouteIntervals
from vmq.clustering.messages.codec import AnyMessage, MessageBatch, without
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.streams import Append
from vmq.clustering.messages.takeover import (
    Move,
    RedirectedPublish,
    RouteMarker,
    SessionBatch,
    Who,
)

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks whether something has changed that is waited for.
_LOOK: Final = 0.1
#: Seconds after which sessions that nobody has adopted are waited for no longer.
PATIENCE: Final = 60.0
#: Seconds for which sessions gather that leave a node which is down; and how many times as long as the last look at
#: what waits for it took the next one is put off.
GATHER: Final = 0.2
_PAUSES: Final = 10

#: Makes a key one that is behind it, and in front of all others behind it.
_BEHIND: Final = b"\0"
#: Seconds until the store is read again that could not be.
_AGAIN: Final = 1.0


class StreamRedirect(Protocol):
    """The streams of this node."""

    def is_here(self, message: Append) -> bool:
        """Whether what waited for a node that will not have it goes into a log of this one."""

    def take_back(self, message: Append) -> int | None:
        """Has who owns the partition now get it; not 0 if this node's streams are yet to write it."""

    async def written(self) -> None:
        """Returns when they have."""


class Redirect:
    """All outboxes of one node that are looked through.

    Args:
        outboxes: to the other nodes.
        directory: which node has which session.
        give: gives sessions what `RedirectedPublish` or `SessionBatch` says, wherever they are.
        share: gives a message of a node for a share group to a member of it.
        forget_routes: to be called when nothing more is taken for a node.
        streams: take what was for the streams of a node.
        patience: seconds after which a node that is down is given up.
    """

    def __init__(
        self,
        outboxes: Outboxes,
        directory: Directory,
        give: Callable[[Move], None],
        share: Callable[[str, RemotePublish], None],
        forget_routes: Callable[[], None],
        streams: StreamRedirect,
        patience: float,
    ) -> None:
        self._outboxes = outboxes
        self._directory = directory
        self._giving = giving = Giving(outboxes, directory, give, share)
        self._moved_on = MovedOn(outboxes, directory, giving, patience)
        self._forget_routes = forget_routes
        self._streams = streams
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: Sessions of nodes that are no members, which others are to adopt.
        self._orphans: dict[str, set[Who]] = {}
        #: Watches nodes that are down, of whose sessions others have some.
        self._watches: dict[str, asyncio.Task[None]] = {}

    @property
    def given(self) -> int:
        """Messages that went to heirs since the start, counted for each."""
        return self._giving.given

    # --- its life

    def start(self, members: Iterable[str]) -> None:
        """Begins, or goes on with what an earlier life has left; `members` of a node that is none is empty."""
        self._outboxes.on_searched = self._begin
        self._directory.on_owner(self._on_owner)
        present = set(members)
        gone = {each.node for *_, each in self._directory.records() if not each.clean} - present
        for peer in sorted(gone) if present else ():
            self._outboxes.lose(peer)
        for peer in self._outboxes.searched:
            self._begin(peer)
        for peer in sorted(present):
            if self._outboxes.has_any(peer):
                self._watch(peer)

    async def stop(self) -> None:
        """Leaves what is left to the next life."""
        self._outboxes.on_searched = lambda _: None
        tasks = [*self._tasks.values(), *self._watches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, peer: str) -> None:
        if peer not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(peer))
            self._tasks[peer] = task

    async def _run(self, peer: str) -> None:
        """Looks through an outbox until all is found, and tries again what fails for now."""
        outboxes = self._outboxes
        outbox = outboxes.outbox(peer)
        while True:
            try:
                if peer in outboxes.away:
                    await self._moved_on.hand_on(peer, outbox)
                if not outboxes.is_for_others(peer):
                    await self._look_through(peer, outbox)
                while outboxes.is_for_others(peer) and not await self._empty(peer, outbox):
                    pass
            except Exception:  # of the store, or a defect: what waits must not stay here for ever
                log.exception("cannot look through what waits for %s; it is tried again", peer)
                await asyncio.sleep(_AGAIN)
                continue
            break
        del self._tasks[peer]  # in the same pass: what is lost from now on is for another task
        outboxes.found(peer)
        self._forget_routes()

    # --- a member that is down

    def _watch(self, peer: str) -> None:
        if peer not in self._watches:
            task = asyncio.get_running_loop().create_task(self._while_away(peer))
            self._watches[peer] = task

    async def _while_away(self, peer: str) -> None:
        """As long as a node is down, gives what waits for it to sessions that others have by now."""
        outboxes, moved_on = self._outboxes, self._moved_on
        clock = asyncio.get_running_loop().time
        has_seen_all, pause = False, GATHER
        while True:
            await asyncio.sleep(pause)  # who leaves it next is likely not to be the only one
            if not outboxes.is_away(peer):
                break
            is_given_up = outboxes.away_for(peer) >= moved_on.patience
            if peer not in moved_on.changed and has_seen_all:
                break
            if peer in moved_on.changed or is_given_up:
                began = clock()
                moved_on.changed.discard(peer)
                if outboxes.search_away(peer):
                    await asyncio.wait([self._tasks[peer]])
                    has_seen_all = is_given_up
                else:
                    moved_on.changed.add(peer)
                pause = max(GATHER, _PAUSES * (clock() - began))
        del self._watches[peer]
        moved_on.changed.discard(peer)

    # --- a member with another store

    async def _look_through(self, peer: str, outbox: PeerOutbox) -> None:
        """What others took over while it was down is given to those; the peer gets what waits all the same."""
        outboxes = self._outboxes
        while (renewed := outboxes.renewed.get(peer)) is not None:
            if not outboxes.is_restored(peer):
                outboxes.ask_store(peer)
                await asyncio.sleep(_LOOK)
                continue
            known = outboxes.begin_search(peer)
            await outboxes.on_disk()
            stretches = await self._read_marks(peer, outbox, known.end, b"")
            if stretches:
                for key, raw in outbox.stored(b"", known.end):
                    await self._hand_on(peer, outbox, (key, raw), stretches, known, keeps=True)
            if peer not in outboxes.renewed or outboxes.renewed[peer].name == renewed.name:
                return
            # It has lost its disk once more: better twice than never.
            known.end, known.done = b"", (b"", 0)

    # --- a node that is no member

    async def _empty(self, peer: str, outbox: PeerOutbox) -> bool:
        """Gives what waits to others; returns whether that was all that is for them, and it is time to end."""
        outboxes = self._outboxes
        await self._wait_for_heirs(peer)
        outbox.seal()
        last, end = outbox.key, outboxes.last_for_others(peer)
        # It is back before somebody had them, or nobody wants them. As of now: who leaves it later marks it later.
        left = self._sessions_of(peer)
        await outboxes.on_disk()
        known = outboxes.known(peer)
        # Also what is behind the end: of a session that came to it, or left it, since it is back.
        stretches = await self._read_marks(peer, outbox, last, outboxes.left.get(peer, b""))
        for who, record in left:
            stretches.end(who, record.subscriptions, (last + _BEHIND, 0))
        for key, raw in outbox.stored(b"", end):
            await self._hand_on(peer, outbox, (key, raw), stretches, known, keeps=False)
        outboxes.handed_on(outbox, end)
        return outboxes.last_for_others(peer) == end

    async def _wait_for_heirs(self, peer: str) -> None:
        """Returns when the sessions of a node that is gone have been adopted, or it is back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while orphans := {who for who, _ in self._sessions_of(peer)}:
            self._orphans[peer] = orphans
            while orphans and peer in self._outboxes.lost:
                if loop.time() >= deadline:
                    log.warning("nobody adopts %d sessions of node=%s", len(orphans), peer)
                    return
                await asyncio.sleep(_LOOK)
            if peer not in self._outboxes.lost:
                return

    def _sessions_of(self, peer: str) -> list[tuple[Who, Record]]:
        return [
            ((mountpoint, client_id), record)
            for mountpoint, client_id, record in self._directory.records()
            if record.node == peer and not record.clean
        ]

    def _on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        for peer, orphans in self._orphans.items():
            if after is None or after.node != peer:
                orphans.discard((mountpoint, client_id))
        if before is None or before.clean or (after is not None and after.node == before.node):
            return
        if before.node in self._outboxes.away or self._outboxes.is_away(before.node):
            self._moved_on.changed.add(before.node)
            self._watch(before.node)

    # --- batch by batch

    async def _read_marks(
        self, peer: str, outbox: PeerOutbox, end: bytes, ignored: bytes
    ) -> RouteIntervals:
        """What the marks up to a key say, but for those up to another: of these sessions the peer took care itself."""
        stretches = RouteIntervals(peer)
        for key, raw in outbox.stored(b"", end):
            parcel = read_batch(raw)
            for index, message in enumerate(parcel.messages):
                if isinstance(message, RouteMarker) and (message.source != peer or key > ignored):
                    stretches.on_mark(message, (key, index))
            await asyncio.sleep(0)
        return stretches

    async def _hand_on(
        self,
        peer: str,
        outbox: PeerOutbox,
        entry: tuple[bytes, bytes],
        stretches: RouteIntervals,
        known: KnownPeer,
        *,
        keeps: bool,
    ) -> None:
        """Gives what is in a batch to whom it was for, and with each step notes how far that is."""
        key, raw = entry
        parcel = read_batch(raw)
        size = 0
        here = set() if keeps else await self._take_here(parcel)

        def note(count: int) -> None:
            nonlocal raw
            if keeps:
                known.done = (key, count)
                self._outboxes.save_known(peer)
            else:
                left = without(parcel, count)
                outbox.cut(key, raw, left)
                raw = left
                self._outboxes.changed(outbox)

        for index, message in enumerate(parcel.messages):
            found = self._giving.find(message, (key, index), stretches, known)
            while self._giving.is_full(message, found):
                note(index)
                await asyncio.sleep(_LOOK)
            if keeps:
                size += self._giving.give_each(found)
            elif isinstance(message, Append):
                size += len(message.payload)
                commit = 0 if index in here else self._streams.take_back(message)
                if commit is None:
                    self._outboxes.dropped.add(peer, [message], len(message.payload), NODE_REMOVED)
                elif commit:
                    await self._streams.written()  # its owner became this node just now
            else:
                size += self._dispose(peer, parcel, message, found)
            if size >= self._giving.STEP_BYTES:
                note(index + 1)
                size = 0
                await asyncio.sleep(0)
        note(len(parcel.messages))
        await asyncio.sleep(0)

    async def _take_here(self, parcel: MessageBatch) -> set[int]:
        """Puts into the streams of this node what is theirs now; returns the places of those, once they are safe.

        First of all: streams have commits of their own. What this broker has then put there when it dies comes again.
        """
        places = {
            place
            for place, each in enumerate(parcel.messages)
            if isinstance(each, Append) and self._streams.is_here(each)
        }
        for place in sorted(places):
            message = parcel.messages[place]
            assert isinstance(message, Append)
            self._streams.take_back(message)
        if places:
            await self._streams.written()
        return places

    def _dispose(
        self, peer: str, parcel: MessageBatch, message: AnyMessage, found: list[RedirectedPublish]
    ) -> int:
        """Gives a message of which nothing is to be left; returns how much that was."""
        if found:
            return self._giving.give_each(found)
        if isinstance(message, RemotePublish):
            size = len(message.topic) + len(message.payload)
            if message.group:  # what it had had of that, who left said
                self._giving.share(peer, message)
                return size
            self._outboxes.dropped.add(peer, [message], size, NODE_REMOVED)
            return size
        # Of those of this life the sender has heard that they do not arrive.
        if isinstance(message, RedirectedPublish) or (
            isinstance(message, SessionBatch) and parcel.life < self._outboxes.life
        ):
            self._giving.give(message)
            return self._giving.STEP_BYTES
        return 0
