"""On which nodes the copies of each session are: rendezvous hashing over the others that take part.

A session keeps the nodes that it has as long as they take part, or have not been away for long. When others would be
its nodes by the hash, as after a node has joined, its copies move there: in the background, some sessions at a time,
and an old copy goes only when the new one is whole.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.replication.follower_state import FollowerState
from vmq.clustering.replication.lag import ReplicaLag

#: Sessions that one step looks at.
_STEP: Final = 500

#: Sessions of which a copy moves at the same time.
MOVING: Final = 200


class PlacedSession:
    """A durable session of this node and the nodes with its copies."""

    __slots__ = ("is_old", "is_short", "offline_at", "peers", "scoped_id")

    def __init__(self, scoped_id: str, offline_at: int, peers: tuple[FollowerState, ...]) -> None:
        self.scoped_id = scoped_id
        self.offline_at = offline_at
        self.peers = peers
        #: There could be more copies than there are: old ones may be on nodes that this life has not heard of.
        self.is_short = True
        #: It was there before this life.
        self.is_old = True


class Placement:
    """Chooses nodes, and has copies made there and dropped elsewhere.

    Args:
        wanted: how many copies each session is to have.
        peers: the other members, by name.
        sessions: this node's.
        marks: what copies lack.
        fill: has a node get a session whole.
        drop: has a node that takes part drop its copies of sessions.
    """

    def __init__(
        self,
        wanted: int,
        peers: Mapping[str, FollowerState],
        sessions: Mapping[bytes, PlacedSession],
        marks: ReplicaLag,
        fill: Callable[[bytes, FollowerState], None],
        drop: Callable[[FollowerState, list[bytes]], None],
    ) -> None:
        self._wanted = wanted
        self._peers = peers
        self._sessions = sessions
        self._marks = marks
        self._fill = fill
        self._drop = drop
        #: Sessions with too few copies, or with one on a node that is to be replaced.
        self._unplaced: deque[bytes] = deque()
        #: When all sessions have to be looked at.
        self._all_at: float | None = None
        #: Sessions whose copies are to move, and those whose copies do.
        self._movable: deque[bytes] = deque()
        #: The latter in their order, so that what goes out does not hang on hashes.
        self._moving: dict[bytes, None] = {}
        #: Copies that were dropped because a better place has one.
        self.moved = 0

    def __len__(self) -> int:
        """How many sessions have not been looked at."""
        return len(self._unplaced)

    @property
    def is_done(self) -> bool:
        """Whether every session has the nodes that it is to have, as far as it is known now."""
        return not (self._unplaced or self._movable or self._moving) and self._all_at is None

    def soon(self, session: bytes) -> None:
        """A session has no copies yet."""
        self._unplaced.append(session)

    def all_at(self, when: float) -> None:
        """Other nodes than before take part, or do not any more."""
        self._all_at = when

    def is_short(self, peers: tuple[FollowerState, ...]) -> bool:
        """Whether there could be more copies."""
        return len(peers) < min(self._wanted, len(self._peers))

    def is_placed(self, session: bytes, peer: FollowerState) -> bool:
        """Whether a node is to have a copy."""
        held = self._sessions.get(session)
        return held is not None and peer in held.peers

    def choose(self, scoped_id: str, kept: tuple[FollowerState, ...]) -> tuple[FollowerState, ...]:
        """The nodes for a session's copies: those that it has, and others that take part."""
        others = {
            name: peer for name, peer in self._peers.items() if peer.is_active and peer not in kept
        }
        missing = self._wanted - len(kept)
        if missing <= 0 or not others:
            return kept
        names = ranked(scoped_id, others) if missing < len(others) else list(others)
        return (*kept, *(others[name] for name in names[:missing]))

    def step(self, now: float) -> bool:
        """Looks at some sessions; returns whether there are more to look at now."""
        if self._all_at is not None:
            if now < self._all_at:
                return False
            self._all_at = None
            self._unplaced = deque(self._sessions)
            self._movable.clear()
        for _ in range(min(len(self._unplaced), _STEP)):
            self._place(self._unplaced.popleft())
        self._move_some()
        return bool(self._unplaced)

    # --- how it is done

    def _is_usable(self, peer: FollowerState) -> bool:
        """Whether a node that has copies may keep them: it takes part, or has not been away for long."""
        return peer.is_active or (bool(peer.out_since) and peer.name in self._peers)

    def _place(self, session: bytes) -> None:
        """Gives a session copies where it has too few of them."""
        held = self._sessions.get(session)
        if held is None:
            return
        kept = tuple(peer for peer in held.peers if self._is_usable(peer))
        after = self.choose(held.scoped_id, kept)
        if len(after) < self._wanted:
            # Better a node that is away than none: it may come back.
            spare = [peer for peer in held.peers if peer not in after and peer.name in self._peers]
            after = (*after, *spare[: self._wanted - len(after)])
        before, held.peers = held.peers, after
        held.is_short = self.is_short(after)
        for peer in before:
            if peer not in after:
                self._give_up(session, peer)
        for peer in after:
            if peer not in before and peer.is_active:
                self._fill(session, peer)
        best = self._best(held.scoped_id)
        if best and not set(best) <= set(after):
            self._movable.append(session)

    def _give_up(self, session: bytes, peer: FollowerState) -> None:
        """A node that takes no part need not keep a copy; it has one still."""
        peer.behind[session] = False
        self._marks.watch(session, peer.name)

    def _best(self, scoped_id: str) -> list[FollowerState]:
        """The nodes of a session by the hash alone; none where all that there are have copies anyway."""
        usable = {name: peer for name, peer in self._peers.items() if self._is_usable(peer)}
        if len(usable) <= self._wanted:
            return []
        return [usable[name] for name in ranked(scoped_id, usable)[: self._wanted]]

    def _move_some(self) -> None:
        """Ends the moves that are done, and begins others."""
        leaving: dict[FollowerState, list[bytes]] = {}
        for session in list(self._moving):
            if self._maybe_moved(session, leaving):
                del self._moving[session]
        for peer, sessions in leaving.items():
            self.moved += len(sessions)
            self._drop(peer, sessions)
        for _ in range(min(MOVING - len(self._moving), len(self._movable))):
            self._begin_move(self._movable.popleft())

    def _begin_move(self, session: bytes) -> None:
        """Has a session copied where it belongs; it keeps what it has until that is done."""
        held = self._sessions.get(session)
        if held is None:
            return
        best = self._best(held.scoped_id)
        new = [peer for peer in best if peer not in held.peers]
        # Of a node that is away it is decided when it is back, or has been away for too long.
        if not new or not all(peer.is_active for peer in best):
            return
        held.peers = (*held.peers, *new)
        self._moving[session] = None
        for peer in new:
            self._fill(session, peer)

    def _maybe_moved(self, session: bytes, leaving: dict[FollowerState, list[bytes]]) -> bool:
        """Drops the copies that a session does not need any more; returns whether nothing of it is to be waited for."""
        held = self._sessions.get(session)
        if held is None:
            return True
        whole = [each for each in held.peers if each.is_active and not each.is_behind(session)]
        best = self._best(held.scoped_id)
        if not best or not set(best) <= set(whole):
            if best and all(each in held.peers and each.is_active for each in best):
                return False
            if len(whole) < self._wanted:
                return len(held.peers) <= self._wanted
            # Others are the best now, or are away: what is whole stays, and it is looked at once more.
            whole.sort(key=lambda each: each not in best)
            best = whole[: self._wanted]
            self._unplaced.append(session)
        before, held.peers = held.peers, tuple(best)
        held.is_short = self.is_short(held.peers)
        for peer in before:
            if peer in best:
                continue
            if peer.is_active:
                leaving.setdefault(peer, []).append(session)
                self._marks.watch(session, peer.name)
            else:
                self._give_up(session, peer)
        return True
