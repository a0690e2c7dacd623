"""Copies are made whole in the background: the owner's side.

A node without a copy is sent the session, a piece at a time. A node with an old one is sent digests first
(`vmq.clustering.replication.anti_entropy`), says in which ranges it differs, and is sent those. Meanwhile what commits
change goes to it as to every other copy; when all is there the copy is whole.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from plyvel import CorruptionError

from vmq.clustering.messages.replication import MAX_NAMES, BeginCopy, KeepOnly, StillComparing
from vmq.clustering.replication.anti_entropy import (
    is_behind_end,
    key_at,
    place_of,
    records_behind,
    sums_behind,
)
from vmq.clustering.replication.follower_state import CatchUpTask, ChangesDraft, FollowerState
from vmq.clustering.replication.placement import PlacedSession
from vmq.store.store import DAMAGED, Store, StoreError

log = logging.getLogger("vmq.cluster")

#: Bytes under way below which the filling of copies goes on: it must not hold up what is acknowledged.
_ROOM: Final = 512 * 1024
_RECORDS: Final = 500
_BYTES: Final = 256 * 1024

#: Records that are read for digests in one step.
_READ: Final = 2000

#: Seconds after which a node is asked again in what its copies differ.
_ASK_AGAIN: Final = 2.0


class CatchUp:
    """What is sent to make copies whole.

    Args:
        store: the broker's.
        life: the number of this life of the store.
        sessions: this node's.
        peers: the other members, by name.
        send: sends a node what has been numbered.
        ask: sends at most once.
    """

    def __init__(
        self,
        store: Store,
        life: int,
        sessions: Mapping[bytes, PlacedSession],
        peers: Mapping[str, FollowerState],
        send: Callable[[FollowerState], None],
        ask: Callable[[str, StillComparing], bool],
    ) -> None:
        self._store = store
        self._life = life
        self._sessions = sessions
        self._peers = peers
        self._send = send
        self._ask = ask
        #: Records that were sent; digests; messages too long to be sent.
        self.records = 0
        self.sums = 0
        self.too_long = 0

    def fill(self, session: bytes, peer: FollowerState) -> None:
        """A node is to get a session whole."""
        peer.behind[session] = False
        peer.comparing.discard(session)
        held = self._sessions[session]
        # What there may be of an earlier life is compared as what is known to be there is.
        is_known = session in peer.stale or (peer.is_known and held.is_old and not peer.is_swept)
        peer.filling.append(CatchUpTask(session, is_known))

    def on_differ(
        self, peer: FollowerState, session: bytes, ranges: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """A node says in which ranges its copy differs from the digests."""
        if session not in peer.comparing:
            return
        peer.comparing.discard(session)
        peer.filling.appendleft(CatchUpTask(session, False, ranges))

    def tick(self, now: float) -> None:
        """Asks for answers that may have been lost."""
        for peer in self._peers.values():
            if peer.is_active and peer.comparing and now >= peer.ask_at:
                peer.ask_at = now + _ASK_AGAIN
                self._ask(peer.name, StillComparing(self._life, list(peer.comparing)[:MAX_NAMES]))

    def step(self, now: float) -> bool:
        """Sends each node a piece of what it is to have whole; returns whether there is more for now.

        Not while a commit is under way: the database does not have it yet, and it may have passed the node by.
        """
        if self._store.writing:
            return False
        more = False
        for peer in self._peers.values():
            if peer.is_active and peer.filling and peer.size < _ROOM:
                self._fill(peer, now)
                more = more or (bool(peer.filling) and peer.size < _ROOM)
        return more

    def _fill(self, peer: FollowerState, now: float) -> None:
        """Sends a piece of the first copies that a node is to get."""
        draft = peer.draft
        assert draft.is_empty, "what a commit gathers is numbered with it"
        size = read = 0
        while peer.filling and len(draft.changes) < _RECORDS and size < _BYTES and read < _READ:
            task = peer.filling[0]
            session = task.session
            held = self._sessions.get(session)
            if held is None or peer not in held.peers:
                peer.filling.popleft()
                continue
            if self._store.refuses_session(session):
                # The copy stays as it is, until this store is mended: what is lost here is to be had there.
                log.error("cannot copy a session to %s: %s: %s", peer.name, held.scoped_id, DAMAGED)
                peer.filling.popleft()
                continue
            before = len(draft.changes)
            try:
                if task.compares:
                    sums, task.behind, count = sums_behind(
                        self._store, session, task.behind, _READ - read
                    )
                    draft.sums += sums
                    self.sums += len(sums)
                    read += count + 1
                else:
                    size += self._add_records(draft, task, _BYTES - size)
            except (CorruptionError, StoreError) as error:
                # Likewise, and the others do not wait for it.
                if isinstance(error, CorruptionError):
                    self._store.unreadable(error)
                log.error("cannot copy a session to %s: %s: %s", peer.name, held.scoped_id, error)
                del draft.changes[before:]
                peer.filling.popleft()
                continue
            if not task.is_begun:
                task.is_begun = True
                draft.begun.append(
                    BeginCopy(session, held.scoped_id, held.offline_at, task.compares)
                )
                peer.behind[session] = True
            if task.compares:
                if not task.behind:
                    peer.comparing.add(session)
                    peer.ask_at = now + _ASK_AGAIN
                    peer.filling.popleft()
                continue
            if not task.ranges:
                draft.complete.append(session)
                draft.filled.append(session)
                peer.filling.popleft()
        self.records += len(draft.changes)
        if not peer.waiting:
            peer.progress_at = now
        self.too_long += peer.cut(self._store, self._life, 0, True)
        self._send(peer)

    def _add_records(self, draft: ChangesDraft, task: CatchUpTask, room: int) -> int:
        """Puts a piece of the first range into the draft; returns its bytes."""
        if not task.ranges:
            return 0
        session = task.session
        behind, end = task.ranges[0]
        reached, is_cut, size = behind, False, 0
        keep: list[bytes] = []
        for key, value in records_behind(self._store, session, key_at(session, behind)):
            place = place_of(key)
            if is_behind_end(place, end):
                break
            if len(draft.changes) >= _RECORDS or size >= room:
                is_cut = True
                break
            draft.changes.append((key, value))
            keep.append(place)
            size += len(key) + len(value)
            reached = place
        if is_cut:
            task.ranges[0] = (reached, end)
        else:
            task.ranges.popleft()
        if task.replaces:
            draft.ranges.append(KeepOnly(session, behind, reached if is_cut else end, keep))
        return size
