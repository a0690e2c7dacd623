"""Copies of this node's durable sessions on other nodes, so that they survive it: the owner's side.

Each session has `replicas - 1` other nodes that hold a copy of its stored records
(`vmq.clustering.replication.follower`). What a commit of the store changes goes to them as the commit begins, one
message for each node, numbered; what the commit acknowledges leaves when this store and all those nodes have it
(`released`). It is the replicated queue of Disque, with a log for each pair of nodes instead of a message for each job.

**Left out.** A node that is down, or confirms nothing for too long, must not hold up the others' acknowledgements: it
is left out. From then on its copies may lack something, and which is written down before anything is acknowledged
without it: a mark for each session and node, the first places of the queue that are not there. When the node takes part
again, those copies are compared and corrected in the background (`vmq.clustering.replication.catch_up`), as all copies
are when this broker has started again. When it stays away, others take its place
(`vmq.clustering.replication.placement`).

**Marks** also tell, when this node was given up for dead and comes back, what only it has: a copy without a mark had
everything that was ever acknowledged.

No clock, no network and no loop here: `now` is given, `send` may lose what it takes, and `work` does a piece of what
is to be done in the background.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from vmq.clustering.messages.records import ENTRIES, RECORDS
from vmq.clustering.messages.replication import (
    MAX_NAMES,
    BeginCopy,
    Changes,
    ConfirmChanges,
    CopyDiffers,
    FollowerPosition,
    GreetFollower,
    MissingChanges,
    Provenance,
    ReplicaMessage,
    UnknownCopies,
)
from vmq.clustering.replication.catch_up import CatchUp
from vmq.clustering.replication.follower_state import OVERHEAD, FollowerState
from vmq.clustering.replication.lag import (
    ANY,
    EVERYTHING,
    NOTHING,
    Place,
    ReplicaLag,
    copied_last,
    note_copied,
)
from vmq.clustering.replication.placement import PlacedSession, Placement
from vmq.clustering.replication.promotion import WHENCE
from vmq.store.lines import is_end, scan
from vmq.store.store import Store

log = logging.getLogger("vmq.cluster")

_SESSION: Final = ord("s")
_ENDED: Final = ord("g")

#: Seconds after which a node is greeted again, or sent again what it has not confirmed.
_AGAIN: Final = 0.5

#: Seconds for which it is remembered what a copy lacked that its node has not any more: somebody may have made a
#: session of it before, and this node be yet to hear of that.
FORGET_AFTER: Final = 120.0

#: Bytes that wait for one node, over which it is left out as too slow; one message may be longer.
MAX_BEHIND: Final = 64 * 1024 * 1024


class Leader:
    """The copies of this node's sessions.

    Args:
        store: the broker's.
        life: the number of this life of the store; later ones are higher.
        count: how many nodes have a session, this one included.
        timeout: seconds after which a node that confirms nothing is left out.
        replace_after: seconds after which a node that takes no part is replaced.
        send: sends at most once; returns whether the peer is up and there was room.
        released: told of the commits whose acknowledgements may leave.
    """

    def __init__(
        self,
        store: Store,
        life: int,
        count: int,
        timeout: float,
        replace_after: float,
        send: Callable[[str, ReplicaMessage], bool],
        released: Callable[[int], None],
    ) -> None:
        self._store = store
        self._life = life
        self._timeout = timeout
        self._replace_after = replace_after
        self._send = send
        self._released = released
        self._stored = 0
        self._open = 0
        self._now = 0.0
        self._peers: dict[str, FollowerState] = {}
        self._sessions: dict[bytes, PlacedSession] = {}
        #: Sessions that have records from before they were this node's, and are to be copied whole.
        self._taken_over: set[bytes] = set()
        self._marks = marks = ReplicaLag(store)
        self._filling = filling = CatchUp(
            store, life, self._sessions, self._peers, self._push, send
        )
        self._placing = Placement(
            count - 1, self._peers, self._sessions, marks, filling.fill, self._drop
        )
        #: Copies that nodes have confirmed not to have any more, and until when their marks are remembered.
        self._gone: deque[tuple[float, bytes, str]] = deque()
        #: Sessions of which the store knows that they were copies once.
        self.made = {key[1:] for key, _ in scan(store.db, WHENCE)}
        #: No member has copies of earlier lives, of which this one would not know what they lack.
        self._is_swept = True
        #: The last commit of earlier lives that had something to be copied: its life, and its number.
        self._copied_before = copied_last(store)
        #: Old copies are of use still, for this node has lost its disk and brings its sessions back.
        self.is_restoring = False
        self.left_out = 0
        self.filled = 0
        self._too_long = 0

    @property
    def too_long(self) -> int:
        """Messages that are in no copy: no frame holds them."""
        return self._too_long + self._filling.too_long

    @property
    def filled_records(self) -> int:
        """Records that were sent to make copies whole."""
        return self._filling.records

    @property
    def moved(self) -> int:
        """Copies that were made elsewhere, since that is where they belong."""
        return self._placing.moved

    @property
    def is_settled(self) -> bool:
        """Whether every copy is where it belongs."""
        return self._placing.is_done

    def _look_whether_swept(self) -> None:
        self._is_swept = all(peer.is_swept for peer in self._peers.values())

    # --- sessions

    def add(self, session: bytes, scoped_id: str, offline_at: int) -> None:
        """A session that the store has already, from before this life or from a copy."""
        if session in self._sessions:
            return
        self._sessions[session] = PlacedSession(scoped_id, offline_at, ())
        self._placing.soon(session)

    def take_over(self, session: bytes) -> None:
        """The session with this number will be put into the store, and has records there already."""
        self._taken_over.add(session)
        self.made.add(session)

    def holders(self, session: bytes) -> list[str]:
        """The nodes that are to have a copy."""
        held = self._sessions.get(session)
        return [] if held is None else [peer.name for peer in held.peers]

    def is_safe(self, session: bytes) -> bool:
        """Whether there are as many copies as wanted and each has everything that was acknowledged."""
        held = self._sessions.get(session)
        if held is None or self._placing.is_short(held.peers):
            return False
        return all(peer.is_active and not peer.is_behind(session) for peer in held.peers)

    def lacking(self, session: bytes, node: str, life: int, at: int) -> Place:
        """The places from which on a node's copy, as of a commit in this life or the last, may lack what is here."""
        peer = self._peers.get(node)
        if (
            life == self._life
            and peer is not None
            and peer.is_active
            and not peer.is_behind(session)
        ):
            return NOTHING
        if life not in (self._life, self._copied_before[0]):
            return EVERYTHING
        return self._marks.lacks(session, node, life, at) or NOTHING

    def lacks(self, session: bytes, origin: Provenance) -> Place:
        """The places from which on what another node made of a copy of a session may lack what is here."""
        marked = self._marks.lacks(session, origin.node, origin.life, origin.at)
        if origin.life < self._life:
            # What was not copied of the last commits before the end has no mark, as it was not acknowledged. But it
            # counts as taken here: who sent it does not send it again.
            marked = marked or NOTHING
            if (origin.life, origin.at) > self._copied_before:
                return marked
        elif marked is None:
            held = self._sessions.get(session)
            is_there = held is not None and origin.node in (each.name for each in held.peers)
            # A mark is forgotten some time after its copy.
            marked = NOTHING if is_there else EVERYTHING
        # Who took this node for dead may have been the only one: then it went on with that copy, and nothing is marked;
        # but what came later has a later place.
        return min(marked[0], origin.waiting), min(marked[1], origin.inflight)

    def has_all(self, origin: Provenance) -> bool:
        """Whether what a session lacks of a copy, as that was when it was taken, was let go on purpose.

        Without power a disk may lose the end of what was written (`store.durability`), but nothing before what is left.
        """
        if self._marks.is_stripped(origin.session, origin.life, origin.at):
            return False
        life, commit = self._copied_before
        return origin.life == self._life or (origin.life == life and origin.at <= commit)

    def note_stripped(self, session: bytes) -> None:
        """What others have of a session is taken out of it."""
        self._marks.strip(session, self._life, self._store.number)

    def lagging(self) -> int:
        """How many copies may lack something, those that are to be made included."""
        return sum(self.lagging_by_peer().values())

    def lagging_by_peer(self) -> dict[str, int]:
        """The same by node, where there are some; those that are to be made are at none ("")."""
        is_placed = self._placing.is_placed
        counts = {
            name: sum(is_placed(session, peer) for session in peer.behind)
            for name, peer in self._peers.items()
        }
        counts[""] = len(self._placing)
        return {name: count for name, count in counts.items() if count}

    # --- nodes

    def set_members(self, others: Iterable[str], now: float) -> None:
        """These are the other members."""
        self._now = now
        wanted = set(others)
        for name in self._peers.keys() - wanted:
            peer = self._peers.pop(name)
            peer.is_up = False
            if peer.is_active:
                self._leave_out(peer, "it is no member any more")
            self._placing.all_at(now)
        for name in sorted(wanted - self._peers.keys()):
            self._peers[name] = peer = FollowerState(name)
            peer.out_since = now
        self._look_whether_swept()
        self._release()

    def peer_up(self, name: str, now: float) -> None:
        """A member can be reached."""
        self._now = now
        peer = self._peers.get(name)
        if peer is not None:
            peer.is_up = True
            peer.greet_at = now
            self._greet(peer)

    def peer_down(self, name: str, now: float) -> None:
        """It cannot any more."""
        self._now = now
        peer = self._peers.get(name)
        if peer is None:
            return
        peer.is_up = False
        peer.greet_at = None
        if peer.is_active:
            self._leave_out(peer, "it is down")
            self._release()

    def peers(self) -> list[FollowerState]:
        """The other members."""
        return list(self._peers.values())

    def _greet(self, peer: FollowerState) -> None:
        peer.greet_at = self._now + _AGAIN
        self._send(peer.name, GreetFollower(self._life))

    def on_position(self, name: str, message: FollowerPosition, now: float) -> None:
        """A node says what it has: it takes part from now on."""
        self._now = now
        peer = self._peers.get(name)
        if peer is None or not peer.is_up or peer.greet_at is None:
            return
        if peer.is_active:
            if message.life == self._life:
                peer.greet_at = None  # if it has lost its copies it confirms nothing
            return
        is_known = message.life == self._life
        if not is_known or message.number < peer.confirmed:
            # Its copies are of an earlier life, or lost.
            for session, held in self._sessions.items():
                if peer in held.peers:
                    peer.behind[session] = False
        if message.life == self._life:
            peer.next_number = max(peer.next_number, message.number + 1)
        peer.is_active = True
        peer.greet_at = None
        peer.progress_at = peer.resend_at = now
        peer.is_known = message.life > 0
        behind = list(peer.behind)
        if peer.is_known:
            peer.stale.update(behind)
        for session in behind:
            if self._placing.is_placed(session, peer):
                self._filling.fill(session, peer)
            else:
                del peer.behind[session]
        self._reset(peer, behind if is_known else [])
        self._push(peer)
        # Those that start together shall all have their share.
        is_last = all(each.is_active for each in self._peers.values())
        self._placing.all_at(now if is_last else now + 2 * _AGAIN)

    def _reset(self, peer: FollowerState, frozen: list[bytes]) -> None:
        """The first messages of a node that takes part again: what it has and cannot be relied on."""
        for at in range(0, max(len(frozen), 1), MAX_NAMES):
            chosen = frozen[at : at + MAX_NAMES]
            ended = [session for session in chosen if not self._placing.is_placed(session, peer)]
            message = Changes(
                self._life,
                peer.next_number,
                self._store.number,
                frozen=chosen,
                ended=ended,
                reset=at == 0,
            )
            peer.next_number += 1
            peer.number(message, 0, OVERHEAD * (1 + len(chosen)), [])

    def _leave_out(self, peer: FollowerState, why: str) -> None:
        """Goes on without a node: first what its copies may lack is written down."""
        floor = peer.floor()
        peer.is_active = False
        peer.out_since = self._now
        for session in peer.behind:
            peer.behind[session] = False
        for batch in peer.clear():
            message = batch.message
            for begin in message.begun:
                peer.behind[begin.session] = False
            for session in (*message.ended, *message.complete):
                peer.behind[session] = False
            for key, value in message.changes:
                peer.behind[key[1:9]] = False
                if batch.commit and value is not None and key[0] in ENTRIES:
                    self._marks.lower(key[1:9], peer.name, key)
        if not peer.is_swept:
            peer.swept_by = 0
        note_copied(self._store, self._life, self._store.number)
        if floor and self._marks.write():
            peer.held_commit, peer.held_until = floor, self._store.number
        if peer.is_up:
            peer.greet_at = self._now + 2 * _AGAIN
        self.left_out += 1
        log.warning('copies of sessions go on without node=%s reason="%s"', peer.name, why)

    # --- commits

    def before_commit(self, now: float) -> None:
        """To be called right before each commit of the store."""
        self._now = now
        again = self._store.failing  # what failed is in here once more
        sessions = self._sessions
        begun: list[tuple[bytes, bytes]] = []
        ended: list[bytes] = []
        strangers: list[tuple[bytes, bytes | None]] = []
        is_plain = self._is_plain()
        for change in self._store.dirty.items():
            key, value = change
            kind = key[0]
            if kind in RECORDS:
                if is_end(key):
                    continue
                held = sessions.get(key[1:9])
                if held is None:
                    strangers.append(change)
                elif is_plain and not held.is_short:
                    for peer in held.peers:
                        peer.draft.changes.append(change)
                else:
                    self._gather(held, key, value)
            elif kind == _SESSION:
                if value is not None:
                    begun.append((key, value))
            elif kind == _ENDED and value is not None:
                ended.append(key[1:])
        if begun:
            self._begin(begun, strangers)
        for session in ended:
            self._end(session)
        self._marks.write()
        commit = self._store.number
        is_copied = False
        for peer in list(self._peers.values()):
            if peer.is_active:
                if not peer.waiting:
                    peer.progress_at = now
                if not peer.draft.is_empty:
                    is_copied = True
                    self._too_long += peer.cut(self._store, self._life, commit, again)
                self._push(peer)
        if is_copied:
            note_copied(self._store, self._life, commit)

    def _is_plain(self) -> bool:
        """Whether a record of a session just goes to all of its nodes: nobody lacks anything."""
        if self._marks or not self._is_swept:
            return False
        return all(peer.is_active and not peer.behind for peer in self._peers.values())

    def _gather(self, held: PlacedSession, key: bytes, value: bytes | None) -> None:
        """A record of a session has changed."""
        session = key[1:9]
        whole = 0
        for peer in held.peers:
            if not peer.is_active:
                peer.behind[session] = False
            elif not peer.behind or session not in peer.behind:
                peer.draft.changes.append((key, value))
                whole += 1
            elif peer.behind[session]:
                peer.draft.changes.append((key, value))
        if whole < len(held.peers) or self._has_strays(held) or session in self._marks:
            if value is not None and key[0] in ENTRIES:
                self._note(held, key)

    def _has_strays(self, held: PlacedSession) -> bool:
        """Whether there may be old copies on nodes that do not have this session any more, or not in this life."""
        return held.is_short or (held.is_old and not self._is_swept)

    def _note(self, held: PlacedSession, key: bytes) -> None:
        """The entry of a key is put into a session of which not all copies have it."""
        session = key[1:9]
        marks = self._marks
        whole = [each.name for each in held.peers if each.is_active and not each.is_behind(session)]
        has_strays = self._has_strays(held)
        if has_strays:
            marks.watch(session, ANY)
        for peer in held.peers:
            if has_strays or peer.name not in whole:
                marks.watch(session, peer.name)
        if session in marks:
            marks.follow(session, key, whole)

    def _begin(
        self, found: list[tuple[bytes, bytes]], strangers: list[tuple[bytes, bytes | None]]
    ) -> None:
        """Sessions that went on or offline, or are new."""
        new = set()
        for key, value in found:
            session, offline_at = value[:8], int.from_bytes(value[8:16], "big")
            held = self._sessions.get(session)
            if held is not None:
                if held.offline_at != offline_at:
                    held.offline_at = offline_at
                    self._gather(held, b"s" + session, value[8:16])
                continue
            scoped_id = key[1:].decode()
            if session in self._taken_over:
                self._taken_over.discard(session)
                self.add(session, scoped_id, offline_at)
                continue
            held = PlacedSession(scoped_id, offline_at, self._placing.choose(scoped_id, ()))
            self._sessions[session] = held
            new.add(session)
            held.is_short = held.is_old = False  # of a new session there are no old copies
            for peer in held.peers:
                peer.draft.begun.append(BeginCopy(session, scoped_id, offline_at))
                peer.draft.complete.append(session)
                peer.draft.filled.append(session)
        if new:
            for stranger, change in strangers:
                if stranger[1:9] in new:
                    self._gather(self._sessions[stranger[1:9]], stranger, change)

    def _end(self, session: bytes) -> None:
        held = self._sessions.pop(session, None)
        self._marks.remove(session)
        if session in self.made:
            self.made.discard(session)
            self._store.delete(WHENCE + session)
        for peer in self._peers.values():
            if held is not None and peer in held.peers:
                if peer.is_active:
                    peer.draft.ended.append(session)
                    peer.behind.pop(session, None)
                else:
                    peer.behind[session] = False

    def stored(self, number: int) -> None:
        """This store has committed."""
        self._stored = number
        self._filling.step(self._now)
        self._release()

    def _release(self) -> None:
        """Lets the acknowledgements go that wait for nobody any more."""
        limit = self._stored
        for peer in self._peers.values():
            if peer.held_commit and self._stored >= peer.held_until:
                peer.held_commit = 0
            floor = peer.floor()
            if floor:
                limit = min(limit, floor - 1)
        if limit > self._open:
            self._open = limit
            self._released(limit)

    def waits(self) -> bool:
        """Whether acknowledgements wait for another node."""
        return self._open < self._stored

    # --- what nodes answer

    def _push(self, peer: FollowerState) -> None:
        if peer.size > MAX_BEHIND and len(peer.waiting) > 1:
            self._leave_out(peer, "too much waits for it")
            return
        if peer.sent < len(peer.waiting):
            for message in peer.unsent():
                self._send(peer.name, message)  # what is lost goes again

    def on_confirm(self, name: str, message: ConfirmChanges, now: float) -> None:
        """A node has everything up to a number."""
        self._now = now
        peer = self._peers.get(name)
        if peer is None or not peer.is_active or message.life != self._life:
            return
        before = peer.confirmed
        for batch in peer.confirm(message.number):
            for session in batch.filled:
                if peer.behind.get(session):  # else it was new, or is to be copied once more
                    del peer.behind[session]
                    peer.stale.discard(session)
                    self._marks.caught_up(session, name, self._life, batch.message.at)
                    self.filled += 1
            for session in batch.message.ended:
                self._gone.append((now + FORGET_AFTER, session, name))
        self._marks.write()
        if peer.swept_by and not peer.is_swept and peer.confirmed >= peer.swept_by:
            peer.is_swept = True
            self._look_whether_swept()
        if peer.confirmed != before:
            peer.progress_at = peer.resend_at = now
            self._push(peer)
            self._release()

    def on_missing(self, name: str, message: MissingChanges, now: float) -> None:
        """A message was lost on its way."""
        self._now = now
        peer = self._peers.get(name)
        if peer is not None and peer.is_active and message.life == self._life:
            peer.rewind(message.number)
            self._push(peer)

    def on_unknown(self, name: str, message: UnknownCopies, now: float) -> None:
        """A node has no copies of these, or has not any more."""
        self._now = now
        peer = self._peers.get(name)
        if peer is None or not peer.is_active or message.life != self._life:
            return
        for session in message.sessions:
            if self._placing.is_placed(session, peer) and peer.behind.get(session, True):
                self._filling.fill(session, peer)
        self._marks.write()

    def on_differ(self, name: str, message: CopyDiffers, now: float) -> None:
        """A node has compared its copy of a session."""
        self._now = now
        peer = self._peers.get(name)
        if peer is not None and peer.is_active and message.life == self._life:
            self._filling.on_differ(peer, message.session, message.ranges)

    def tick(self, now: float) -> None:
        """To be called a few times a second."""
        self._now = now
        self._filling.tick(now)
        self._forget_gone()
        for peer in list(self._peers.values()):
            if peer.greet_at is not None and now >= peer.greet_at:
                self._greet(peer)
            if not peer.is_active:
                if peer.out_since and now >= peer.out_since + self._replace_after:
                    peer.out_since = 0.0
                    self._placing.all_at(now)
            elif peer.waiting and now >= peer.progress_at + self._timeout:
                self._leave_out(peer, "it confirms nothing")
                self._release()
            elif peer.sent and now >= max(peer.progress_at, peer.resend_at) + _AGAIN:
                peer.resend_at = now
                peer.rewind(0)
                self._push(peer)

    def _forget_gone(self) -> None:
        while self._gone and self._gone[0][0] <= self._now:
            _, session, name = self._gone.popleft()
            peer = self._peers.get(name)
            if peer is None or not self._placing.is_placed(session, peer):
                self._marks.forget(session, name)

    # --- the background

    @property
    def has_work(self) -> bool:
        """Whether something is to be copied or placed."""
        for peer in self._peers.values():
            if peer.filling:
                return True
        return len(self._placing) > 0

    def work(self, now: float) -> bool:
        """Does a piece of what is to be done; returns whether there is more that can be done now."""
        self._now = now
        more = self._placing.step(now)
        self._marks.write()
        more = self._filling.step(now) or more
        for peer in self._peers.values():
            self._maybe_sweep(peer)
        self._release()
        return more

    def _drop(self, peer: FollowerState, sessions: list[bytes]) -> None:
        """A node that takes part is to have no copies of these any more."""
        for at in range(0, len(sessions), MAX_NAMES):
            chosen = sessions[at : at + MAX_NAMES]
            message = Changes(self._life, peer.next_number, self._store.number, ended=chosen)
            peer.next_number += 1
            peer.number(message, 0, OVERHEAD * (1 + len(chosen)), [])
        for session in sessions:
            peer.behind.pop(session, None)
        self._push(peer)

    def _maybe_sweep(self, peer: FollowerState) -> None:
        """Once all sessions are placed and copied, copies of earlier lives are of no use."""
        if (
            peer.is_active
            and not self.is_restoring
            and not peer.swept_by
            and not peer.behind
            and self._placing.is_done
        ):
            peer.swept_by = peer.next_number
            message = Changes(self._life, peer.next_number, self._store.number, swept=True)
            peer.next_number += 1
            peer.number(message, 0, OVERHEAD, [])
            self._push(peer)
