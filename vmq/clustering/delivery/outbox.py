"""One outbox: what waits for one peer, in the store, and a window of it in memory.

Messages gather in a batch for as long as a commit does. A batch is one record of the store, one payload of the
channel, and is handled as one. What does not fit into the window is in the store only, and loaded when there is room.

    add ... add      seal       safe       take      confirm      tidy
      gathering   -> stored -> committed -> sent  ->  gone  ->  deleted

What `passes` (`vmq.clustering.delivery.passing`) goes without the store, and into it if the peer goes down first:

    add ... add    pass_on    confirm          keep
      gathering   -> sent  ->  gone     (sent -> stored)
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.delivery.outbox_storage import (
    parcel_key,
    prefix_of,
    put_total,
    stored_parcels,
)
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.codec import HEAD, close, count_of, encode_into
from vmq.core.output import Output
from vmq.disk.durable import Confirmations, Durable
from vmq.store.store import Store
from vmq_cluster.messages import MAX_PAYLOAD
from vmq_cluster.transport.bunches import Bunches

#: What a batch has behind its messages once it is addressed.
_TRAILER: Final = 10
# As constants of this module, which compiled code needs not look up.
_encode_into: Final = encode_into
_LONGEST: Final[int] = MAX_PAYLOAD - HEAD - _TRAILER

# Not final, for tests set them lower: a compiled module has constants in its code.
#: A batch is closed when it has so many bytes, but for one message that is longer.
PARCEL = 256 * 1024

#: Bytes that are in memory at most, but for one batch; the backlog is loaded when half of it is free.
WINDOW = 4 * 1024 * 1024

Done = Callable[[bool], None]


class OutboxEntry:
    """A batch that a peer has not confirmed."""

    __slots__ = ("is_stored", "key", "payload")

    def __init__(self, key: bytes, payload: bytes, is_stored: bool = True) -> None:
        self.key = key
        self.payload = payload
        self.is_stored = is_stored


class PeerOutbox:
    """What waits for one peer.

    Args:
        peer: whose outbox it is.
        store: this broker's.
        next_place: the place of one more batch, above all before it.
    """

    def __init__(
        self, peer: str, store: Store, next_place: Callable[[], tuple[int, int, int]]
    ) -> None:
        self.peer = peer
        self._store = store
        self._next_place = next_place
        #: Whether messages for it are taken: it is a member, or somebody will have what was for it.
        self.takes = False
        #: Whether they go to it: it is a member, and nobody looks through what waits.
        self.is_open = False
        #: The name of its store; 0: not known yet.
        self.target = 0
        #: What waits, confirmed by nobody, in messages and bytes.
        self.messages = 0
        self.size = 0
        #: Since it was last written to the store, this has changed.
        self.is_changed = False
        #: The batch that gathers, if it has messages.
        self._parcel = bytearray(HEAD)
        self._count = 0
        self._place = (0, 0, 0)
        #: It has messages, and is none for the store.
        self.passes = False
        #: How many of those are safe, for whoever waits.
        self.passed = Durable(is_near=True)
        #: The passes that brought some, when the last one was, and when that was which began the batch that gathers.
        self._bunches = Bunches()
        self.came = 0.0
        self.began = 0.0
        #: What the keys of all batches begin with, and the key of what they are in total.
        self._prefix = prefix_of(peer)
        #: The batch's key, or the last one's.
        self.key = self._prefix
        #: In memory, sent to the channel or not yet, and their bytes.
        self._sent: deque[OutboxEntry] = deque()
        self._fresh: deque[OutboxEntry] = deque()
        self._held = 0
        #: Records of what is confirmed, which the next commit may as well delete, and the last there was.
        self._gone: list[bytes] = []
        self._confirmed = self.key
        #: The last keys that are in memory or gone, in the store, committed, and on the disk.
        self._loaded = self._stored = self._safe = self._written = self.key
        #: Who is told how it ends, and whose acknowledgements wait, each for all up to a key.
        self._dones: deque[tuple[bytes, Done]] = deque()
        self._waits: deque[tuple[bytes, Confirmations]] = deque()
        #: The last batch that the peer is to confirm without delay.
        self._hurries = b""
        #: Connections that do not read until there is room.
        self._paused: dict[Output, None] = {}

    def restore(self, last: bytes, messages: int, size: int) -> None:
        """Takes over what an earlier life left in the store."""
        self.key = self._stored = self._safe = self._written = last
        self.messages = messages
        self.size = size

    # --- gathering

    def add(self, message: NodeMessage, room: int, passes: bool = False) -> int:
        """Puts a message into the batch; returns its bytes, negative where so many more do not fit into the room.

        One message alone may be as long as a channel allows. With another `key` than before it is a new batch, which
        the caller has to `seal` before the next commit; or, where it `passes`, to `pass_on` when the pass ends.
        """
        parcel = self._parcel
        before = len(parcel)
        _encode_into(message, parcel, -1)
        added = len(parcel) - before
        if added > _LONGEST or (self.size + added > room and self.has_any()):
            del parcel[before:]
            return -added
        if self._count and before + added > PARCEL and not passes:
            alone = bytes(parcel[before:])
            del parcel[before:]
            self.seal()
            parcel += alone
        self._count += 1
        self.messages += 1
        self.size += added
        self.is_changed = True
        if self._count == 1:
            self.size += HEAD
            self._place = self._next_place()
            _, life, number = self._place
            self.key = parcel_key(self._prefix, life, number)
            self.passes = passes
            if not passes:
                self._store.put(self.key, b"")
        elif not passes:
            self._store.extend(added)
        return added

    def has_any(self) -> bool:
        """Whether anything waits."""
        return bool(self._count or self._sent or self._fresh or self._has_backlog())

    def seal(self) -> None:
        """Closes the batch that gathers; to be called before it could be committed."""
        if not self._count or self.passes:
            return
        payload = close(self._parcel, self._place, self._count)
        self._count = 0
        del self._parcel[HEAD:]
        self._store.put(self.key, payload)
        held = self._held + len(payload)
        if not self._has_backlog() and (held <= WINDOW or not self._held):
            self._fresh.append(OutboxEntry(self.key, payload))
            self._held = held
            self._loaded = self.key
        self._stored = self.key

    def may_pass(self) -> bool:
        """Whether a message may go without the store: nothing that comes before it is there alone; there is room.

        And the peer has all that was to be confirmed without delay, or that the system had not taken whole: what comes
        behind something that is lost is not taken.
        """
        if (self._count and not self.passes) or self._fresh or self._has_backlog():
            return False
        return self.is_open and self._held < WINDOW and self._confirmed >= self._hurries

    def comes(self, now: float) -> bool:
        """A pass brings some of those that pass; whether they wait for the end of its turn of the event loop."""
        self.came = now
        return self._bunches.wait(now)

    def gathered(self) -> int:
        """The bytes of the batch that gathers."""
        return len(self._parcel)

    def pass_on(self) -> OutboxEntry:
        """Closes a batch that `passes`; it is under way from now on."""
        payload = close(self._parcel, self._place, self._count)
        self._count = 0
        self.passes = False
        del self._parcel[HEAD:]
        entry = OutboxEntry(self.key, payload, is_stored=False)
        self._sent.append(entry)
        self._held += len(payload)
        self._loaded = self._stored = self._safe = self.key
        return entry

    def take_back(self) -> None:
        """What `pass_on` closed last did not go: it is the first that goes when anything may."""
        self._fresh.append(self._sent.pop())

    def keep(self, entry: OutboxEntry) -> None:
        """Puts a batch into the store that went without; nothing passes until the peer has it."""
        entry.is_stored = True
        self._hurries = max(self._hurries, entry.key)
        self._store.put(entry.key, entry.payload)

    def keep_all(self) -> bool:
        """Puts all batches into the store that the peer has not confirmed; returns whether there was any."""
        lacking = [entry for entry in self._sent if not entry.is_stored]
        for entry in lacking:
            self.keep(entry)
        return bool(lacking)

    def save_total(self) -> None:
        """Writes what waits in total, if that changed."""
        if self.is_changed:
            self.is_changed = False
            put_total(self._store, self._prefix, self.messages, self.size)

    # --- sending

    def safe(self, key: bytes) -> None:
        """Everything up to this key may be sent: the store has committed it as far as its durability asks for."""
        self._safe = key

    def written(self, key: bytes) -> None:
        """Everything up to this key can be read from the disk."""
        self._written = key

    def take(self) -> Iterator[OutboxEntry]:
        """What may be sent now, in order.

        Raises:
            Exception: LevelDB's, where a record of the backlog cannot be read; what came before is taken.
        """
        while True:
            fresh = self._fresh
            while fresh and fresh[0].key <= self._safe:
                entry = fresh.popleft()
                self._sent.append(entry)
                yield entry
            if fresh or self._held > WINDOW // 2 or not self._load():
                return

    def _has_backlog(self) -> bool:
        return self._loaded < self._stored

    def _load(self) -> bool:
        """Brings as much of the backlog into memory as there is room for; False if there is nothing."""
        last = min(self._stored, self._written)
        if self._loaded >= last:
            return False
        for key, payload in stored_parcels(self._store, self._loaded, last):
            self._fresh.append(OutboxEntry(key, payload))
            self._held += len(payload)
            self._loaded = key
            if self._held >= WINDOW:
                return True
        self._loaded = last
        return bool(self._fresh)

    def confirm(self, entry: OutboxEntry) -> None:
        """The peer has handled this one, which is the first of those that were sent."""
        if not self._sent or self._sent[0] is not entry:
            return  # the peer was no member meanwhile
        self._forget(self._sent.popleft())
        self._tell(entry.key)
        if not self._sent and not self._fresh and not self.passes:
            self.passed.advance(self.passed.wanted)

    def confirm_up_to(self, key: bytes) -> None:
        """The peer says itself, for it leaves or stops, that it has handled everything up to a key."""
        while self._sent and self._sent[0].key <= key:
            self._forget(self._sent.popleft())
        # What an earlier life sent, or all while somebody looks through it, is on the disk alone.
        for at, raw in self.stored(self._loaded, key):
            self.cut(at, raw, b"")
        self._tell(key)

    def _forget(self, entry: OutboxEntry) -> None:
        self._held -= len(entry.payload)
        if entry.is_stored:
            self._gone.append(entry.key)
        self._confirmed = entry.key
        self._count_out(count_of(entry.payload), len(entry.payload))
        if not self.has_any():
            self.messages = self.size = 0  # whatever an earlier life said of what it left

    def _tell(self, key: bytes) -> None:
        while self._dones and self._dones[0][0] <= key:
            self._dones.popleft()[1](True)
        self.settle_up_to(key)

    def _count_out(self, messages: int, size: int) -> None:
        self.is_changed = True
        self.messages -= messages
        self.size -= size

    def tidy(self) -> None:
        """Deletes what is gone, in the commit that gathers; to be called before each.

        It needs no commit of its own: what comes back after a crash goes to the peer again, which has it.
        """
        for key in self._gone:
            self._store.delete(key)
        self._gone.clear()

    # --- those who wait

    def hurry(self) -> None:
        """The peer is to confirm the message that was added last without delay."""
        self._hurries = self.key

    def hurries(self, entry: OutboxEntry) -> bool:
        """Whether a batch is to be confirmed without delay. Who begins to wait when it is under way, waits longer."""
        return entry.key <= self._hurries

    def on_done(self, done: Done) -> None:
        """Tells somebody how the message ends that was added last."""
        self._dones.append((self.key, done))
        self.hurry()

    def wait(self, output: Output) -> None:
        """Has the answers of an output's pass wait until the peer has everything so far."""
        wait = output.confirmations()
        waits = self._waits
        if waits and waits[-1][1] is wait:
            waits.pop()
        else:
            wait.expect()
        waits.append((self.key, wait))
        self.hurry()

    def add_to(self, wait: Confirmations) -> None:
        """Has something that waits already wait until the peer has everything so far, too."""
        wait.expect()
        self._waits.append((self.key, wait))
        self.hurry()

    def settle(self) -> None:
        """Nobody waits any more for what the peer has: it is down."""
        while self._waits:
            self._waits.popleft()[1].confirm()
        self.resume()

    def settle_up_to(self, key: bytes) -> None:
        """Nobody waits any more for what is up to a key: the peer has it."""
        while self._waits and self._waits[0][0] <= key:
            self._waits.popleft()[1].confirm()

    def pause(self, output: Output) -> bool:
        """Has a connection read no more until there is room; returns whether it did until now."""
        if output in self._paused:
            return False
        self._paused[output] = None
        self.hurry()
        output.pause()
        return True

    def resume(self) -> None:
        """There is room, or no hope of it."""
        paused, self._paused = self._paused, {}
        for output in paused:
            output.resume()

    # --- what waits is for somebody else

    def rewind(self) -> None:
        """Nothing is under way any more: what waits is in the store alone."""
        self.tidy()
        self.is_open = False
        self._sent.clear()
        self._fresh.clear()
        self._held = 0
        self._loaded = self._confirmed

    def lose(self) -> None:
        """The peer is no member any more: whoever had something for it has it again, if it is not in the store."""
        self.seal()
        self.settle()
        while self._dones:
            self._dones.popleft()[1](False)
        self.rewind()

    def stored(self, behind: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The batches behind a key and up to another, which are on the disk."""
        return stored_parcels(self._store, max(behind, self._confirmed), end)

    def cut(self, key: bytes, before: bytes, after: bytes) -> None:
        """A batch becomes shorter, or is gone; it is not in memory."""
        self._store.delete(key) if not after else self._store.put(key, after)
        self._count_out(count_of(before) - count_of(after), len(before) - len(after))
