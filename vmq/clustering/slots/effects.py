"""What the machines of a node want done: messages, steps for clients, writes, and what waits for these.

Writes gather as in a group commit: those of many turns may go to the disk in one, and while one is under way the next
gathers. Whatever relies on a write waits for the number of its commit; who reads finds what was written in any case.
"""

from collections import deque
from collections.abc import Iterator

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import Attached
from vmq.clustering.slots.flow import Given
from vmq.clustering.slots.queued import StoredMessage
from vmq_cluster.errors import StorageError
from vmq_cluster.storage import MemoryStorage, Readable, after_prefix


class SlotReading:
    """While one slot is read: what the disk does not give costs nobody else.

    Args:
        unreadable: slots that cannot be read, and why.
        is_all: if it can be read, it counts as readable.
    """

    def __init__(self, unreadable: dict[int, str], slot: int, is_all: bool) -> None:
        self._unreadable = unreadable
        self._slot = slot
        self._is_all = is_all

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, StorageError):
            self._unreadable[self._slot] = str(error)
            return True
        if self._is_all and error is None:
            self._unreadable.pop(self._slot, None)
        return False


class Effects:
    """The effects of one node's machines, until somebody takes them.

    Args:
        disk: what commits have written, and earlier lives of the node; None: nothing yet, nor ever.
    """

    def __init__(self, disk: Readable | None = None) -> None:
        self.disk: Readable = MemoryStorage() if disk is None else disk
        #: For other nodes, by store, in order.
        self.sent: list[tuple[int, NodeMessage]] = []
        #: The same that nobody waits for: each goes with what else goes there, or soon.
        self.later: list[tuple[int, NodeMessage]] = []
        #: For this node itself.
        self.local: deque[NodeMessage] = deque()
        #: For connections of this node, in order.
        self.steps: list[tuple[int, Given]] = []
        #: Connections to be closed.
        self.closed: list[int] = []
        #: Connections of which the session is another user's.
        self.refused: list[int] = []
        #: Connections whose session is there, and what its owner has said.
        self.present: list[Attached] = []
        #: Publishes to be acknowledged: connection, packet id, QoS.
        self.acknowledged: list[tuple[int, int, int]] = []
        #: Subscriptions that all nodes in reach are to know, by ticket: slot, filters that begin, filters that end.
        self.routes: list[tuple[int, int, list[str], list[str]]] = []
        #: Share groups of slots, and whether some of their members there are connected now.
        self.presence: list[tuple[int, str, bool]] = []
        #: Messages that a client lost by the limits of its queue: client, reason, message, granted QoS.
        self.dropped: list[tuple[str, str, StoredMessage, int]] = []
        #: Messages that joined the queues of clients that are away, if somebody wants to know: client, message, QoS.
        self.kept: list[tuple[str, StoredMessage, int]] = []
        #: Slots that cannot be read from the disk, and why: they are tried again in each look.
        self.unreadable: dict[int, str] = {}
        #: Clients whose queues the disk does not give, and why; "": it gives them again.
        self.unread: list[tuple[str, str]] = []
        #: Clients whose sessions have expired.
        self.expired: list[str] = []
        self.writes: dict[bytes, bytes | None] = {}
        #: The gathering commit has to be synced, whatever `store.durability` says: it is a promise.
        self.must_sync = False
        #: The commit that gathers now, and the last that is on disk.
        self.number: int = 1
        self.stored: int = 0
        #: Commits that are on their way to the disk.
        self._under_way: deque[tuple[int, dict[bytes, bytes | None]]] = deque()
        self._waiting: deque[tuple[int, int, NodeMessage]] = deque()

    def send(self, store: int, message: NodeMessage) -> None:
        self.sent.append((store, message))

    def send_later(self, is_due: bool) -> None:
        """Sends what nobody waits for to whom something goes in this turn; `is_due`: all of it."""
        if self.later:
            stores = {store for store, _ in self.sent}
            later, self.later = self.later, []
            for each in later:
                (self.sent if is_due or each[0] in stores else self.later).append(each)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Writes a record, or deletes it."""
        self.writes[key] = value

    def read(self, prefix: bytes) -> dict[bytes, bytes]:
        """The records whose keys begin so, by what is behind that: as they were written, on disk or not yet."""
        at = len(prefix)
        return {key[at:]: value for key, value in self.scan(prefix, after_prefix(prefix))}

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Records from a key to before another, ascending. Nothing is written while it is used."""
        late: dict[bytes, bytes | None] = {}
        for writes in self._unwritten():
            late.update({key: writes[key] for key in writes if first <= key < end})
        keys = deque(sorted(late))
        for key, stored in self.disk.scan(first, end):
            while keys and keys[0] < key:
                early = keys.popleft()
                value = late[early]
                if value is not None:
                    yield early, value
            if key not in late:
                yield key, stored
        for key in keys:
            value = late[key]
            if value is not None:
                yield key, value

    def _unwritten(self) -> list[dict[bytes, bytes | None]]:
        """What may not be on disk yet, the oldest first."""
        return [*(writes for _, writes in self._under_way), self.writes]

    def commit(self) -> int:
        """The commit with everything that was written so far."""
        return self.number if self.writes else self.number - 1

    def send_stored(self, store: int, message: NodeMessage) -> None:
        """Sends it when everything that was written so far is on disk."""
        self._waiting.append((self.commit(), store, message))
        self._release()

    def begin_commit(self) -> tuple[int, dict[bytes, bytes | None], bool]:
        """Closes the gathering commit: its number, what it writes, and whether it has to be synced."""
        taken = self.number, self.writes, self.must_sync
        self._under_way.append((self.number, self.writes))
        self.number += 1
        self.writes = {}
        self.must_sync = False
        return taken

    def end_commit(self, number: int) -> None:
        """A commit is on disk, and all before it."""
        self.stored = number
        while self._under_way and self._under_way[0][0] <= number:
            self._under_way.popleft()
        self._release()

    def _release(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.stored:
            _, store, message = waiting.popleft()
            self.send(store, message)
