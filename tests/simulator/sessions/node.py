"""A node of the world: its machines in each life of the broker, its disk, its clock."""

from collections import deque
from collections.abc import Iterator
from random import Random

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import incarnation_of

#: Milliseconds of a step of the world, between heartbeats, and until a silent peer is gone.
STEP = 50
INTERVAL = 200
TIMEOUT = 1000


def has_time() -> bool:  # tests set another
    """Whether a node goes on with what concerns many slots in this step."""
    return True


Writes = dict[bytes, bytes | None]


class Disk:
    """Records as they were committed. What was not synced may be lost with the power."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        #: What commits since the last sync replaced, newest last.
        self.undo: list[Writes] = []

    def get(self, key: bytes) -> bytes | None:
        return self.records.get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        found = sorted(key for key in self.records if first <= key < end)
        return iter([(key, self.records[key]) for key in found])

    def commit(self, writes: Writes, is_synced: bool) -> None:
        self.undo.append({key: self.records.get(key) for key in writes})
        self._apply(writes)
        if is_synced:
            self.undo.clear()

    def _apply(self, writes: Writes) -> None:
        for key, value in writes.items():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value

    def lose_tail(self, random: Random) -> None:
        for _ in range(random.randint(0, len(self.undo))):
            self._apply(self.undo.pop())


class WorldNode:
    """One node, whether it runs or not."""

    def __init__(self, name: str, host: str, store: int, slots: int, replicas: int) -> None:
        self.name = name
        self.host = host
        self.store = store
        self.slots = slots
        self.replicas = replicas
        self.disk = Disk()
        self.boot = 0
        self.skew = 0
        self.is_up = False
        self.is_leaving = False
        #: Steps that a commit takes at most.
        self.slowness = 1
        #: Under way to the disk: number, writes, whether it is synced, when it is done.
        self.writing: tuple[int, Writes, bool, int] | None = None
        self.inbox: deque[int] = deque()
        self.machines: SessionNode = self._machines({})

    def _machines(self, hosts: dict[int, str]) -> SessionNode:
        reach = Reach(self.store, self.host, TIMEOUT, INTERVAL)
        reach.set_members(hosts)
        here = LocalNode(
            incarnation_of(self.store, self.boot), reach, self.replicas, 3, 300, self.disk, 2
        )
        here.is_leaving = self.is_leaving
        here.has_time = has_time
        return SessionNode(here, self.slots)

    def start(self, hosts: dict[int, str]) -> None:
        self.boot += 1
        self.is_up = True
        self.writing = None
        self.machines = self._machines(hosts)

    def wipe(self, store: int) -> None:
        """Another disk, and so another store."""
        self.store = store
        self.disk = Disk()
        self.boot = 0

    def write(self, now: int, random: Random) -> None:
        """One commit at a time; meanwhile the next gathers."""
        if self.writing is not None and self.writing[3] <= now:
            number, writes, is_synced, _ = self.writing
            self.writing = None
            self.disk.commit(writes, is_synced)
            self.machines.on_stored(number)
        effects = self.machines.effects
        if self.writing is None and effects.writes:
            ends = now + random.randint(0, self.slowness)
            self.writing = (*effects.begin_commit(), ends)
