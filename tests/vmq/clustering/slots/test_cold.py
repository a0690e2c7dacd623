"""What waits in a slot is on the disk, and comes from there in its order."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.slots.copies import RecordSet, SlotCopy, StoredRuns
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.records import all_records, load_state, run_key, take_changes
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import NO_LINEAGE, Dot
from vmq_cluster.errors import StorageError
from vmq_cluster.storage import MemoryStorage

CLIENTS = ("a", "b", "c")
ORIGINS = (1 << 24 | 1, 2 << 24 | 1)
AHEAD = 2


class Slot:
    """A slot with its disk, and what is to be in its queues."""

    def __init__(self) -> None:
        self.disk: MemoryStorage = MemoryStorage()
        self.effects = Effects(self.disk)
        self.copy = SlotCopy(0)
        self.records = self.copy.whole = RecordSet(0, 1, NO_LINEAGE, 0)
        self.state = SlotState()
        self.wanted: dict[str, list[tuple[Dot, int, int]]] = {each: [] for each in CLIENTS}
        self.places = dict.fromkeys(ORIGINS, 0)
        self.serving: set[str] = set()
        self.state.begin((1, 1))
        self.state.reader = StoredRuns(self.effects, self.records)
        for each in CLIENTS:
            self.state.register(each)
            self.state.touch(each)

    def take(self, clients: str, qos: int = 1, size: int = 5, origin: int = ORIGINS[0]) -> Dot:
        """A message joins queues."""
        self.places[origin] += 1
        dot = origin, self.places[origin]
        self.state.see(dot)
        message = StoredMessage(self.state.stamp(0), b"t", b"x" * size, qos, "")
        for client in clients:
            self.state.put(client, dot, qos, message)
            self.wanted[client].append((dot, qos, size + 1))
        return dot

    def finish(self, client: str, at: int) -> None:
        """One of a client's messages is done."""
        waiting = self.wanted[client]
        if waiting:
            dot, _, _ = waiting.pop(at % len(waiting))
            self.state.done(client, dot)

    def publish(self) -> None:
        self.state.close()
        for key, value in take_changes(self.state):
            self.records.put(self.effects, key, value)
        self.state.cool(self.serving, AHEAD)

    def begin_commit(self) -> tuple[int, dict[bytes, bytes | None]]:
        number, writes, _ = self.effects.begin_commit()
        return number, writes

    def commit(self) -> None:
        number, writes = self.begin_commit()
        self.disk.write(writes, sync=False)
        self.effects.end_commit(number)

    def restart(self) -> None:
        """Another owner goes on with what is on the disk."""
        self.publish()
        self.commit()
        self.state = self.copy.state(self.effects, is_cold=True)
        self.state.begin((self.state.lineage[0] + 1, 1))
        self.state.reader = StoredRuns(self.effects, self.records)

    def late(self, client: str) -> None:
        """A message that others have comes for one more client, before all that it has."""
        self.state.load_all()
        for dot, message in list(self.state.messages.items()):
            if not self.state.has(client, dot):
                self.state.put_late(client, dot, message.qos, message)
                self.wanted[client].append((dot, message.qos, message.size()))
                break
        self.state.sort()
        stamps = {dot: message.stamp for dot, message in self.state.messages.items()}
        self.wanted[client].sort(key=lambda each: stamps[each[0]])

    def check(self) -> None:
        for client, waiting in self.wanted.items():
            assert self.state.waiting(client) == len(waiting)
            assert self.state.size_of(client) == sum(size for _, _, size in waiting)
            assert all(self.state.has(client, dot) for dot, _, _ in waiting)
            here = list(self.state.queues.get(client, {}).items())
            assert here == [(dot, qos) for dot, qos, _ in waiting][: len(here)]

    def stored(self) -> list[bytes]:
        """The records of messages."""
        return [key for key in self.records.read(self.effects) if key[:1] == b"m"]


@pytest.fixture
def slot() -> Slot:
    return Slot()


class BrokenDisk(MemoryStorage):
    """Reads until a record that it cannot."""

    broken = b""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in super().scan(first, end):
            if self.broken and key.endswith(self.broken):
                raise StorageError("cannot read")
            yield key, value


def test_what_the_disk_does_not_give_is_there_when_it_does(slot: Slot) -> None:
    slot.disk = slot.effects.disk = disk = BrokenDisk()
    for _ in range(6):
        slot.take("ab")
        slot.publish()
    slot.commit()
    slot.restart()
    disk.broken = run_key(3)
    with pytest.raises(StorageError):
        slot.state.load("a", 4)
    assert len(slot.state.queues["a"]) == 2
    disk.broken = run_key(1)
    with pytest.raises(StorageError):
        slot.state.load("b")
    assert "b" not in slot.state.queues
    assert slot.state.size_of("b") == 0, "nobody knows"
    disk.broken = b""
    slot.check()
    slot.state.load_all()
    slot.check()
    assert len(slot.state.queues["a"]) == len(slot.state.queues["b"]) == 6


def test_a_damaged_record_is_not_passed_over(slot: Slot) -> None:
    for _ in range(2):
        slot.take("a")
        slot.publish()
    slot.commit()
    slot.restart()
    whole = slot.disk.get(slot.records.prefix + run_key(1))
    assert whole is not None
    slot.disk.write({slot.records.prefix + run_key(1): whole[:-3]}, sync=False)
    for _ in range(2):
        with pytest.raises(StorageError, match="record 1"):
            slot.state.load("a")
    assert slot.state.waiting("a") == 2


def test_what_waits_for_who_is_away_is_in_memory_no_more(slot: Slot) -> None:
    for _ in range(10):
        slot.take("ab")
    slot.publish()
    assert not slot.state.messages
    assert not slot.state.queues
    slot.check()
    assert slot.state.load("a", 3)  # before it is on the disk
    assert len(slot.state.queues["a"]) >= 3
    slot.check()
    slot.commit()
    assert slot.state.load("b")
    assert not slot.state.load("b")
    assert len(slot.state.queues["b"]) == 10
    slot.check()


def test_of_who_is_there_what_comes_first_is_in_memory(slot: Slot) -> None:
    slot.serving.add("a")
    for _ in range(10):
        slot.take("a")
    slot.publish()
    assert len(slot.state.queues["a"]) == AHEAD
    slot.take("a")
    slot.check()  # what comes now is behind what is on the disk


def test_queues_that_a_start_finds_are_measured_when_somebody_asks(slot: Slot) -> None:
    slot.take("ab", size=100)
    slot.take("b", size=10)
    slot.restart()
    assert slot.state.sizes == {"a": 0, "b": 0}
    slot.take("b", size=1)
    assert slot.state.size_of("a") == 101
    slot.check()


def test_a_session_ends_that_is_on_disk(slot: Slot) -> None:
    for _ in range(20):
        slot.take("a")
    slot.restart()
    slot.state.end_session("a", 0)
    slot.publish()
    assert slot.state.waiting("a") == 0
    assert slot.stored() == []
    assert not slot.state.blocks


STEPS = st.one_of(
    st.tuples(
        st.just("take"),
        st.sampled_from(["a", "b", "c", "ab", "abc"]),
        st.integers(1, 2),
        st.integers(0, 1),
    ),
    st.tuples(st.just("finish"), st.sampled_from(CLIENTS), st.integers(0, 30)),
    st.tuples(st.just("load"), st.sampled_from(CLIENTS), st.integers(1, 9)),
    st.tuples(st.just("serve"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("late"), st.sampled_from(CLIENTS)),
    st.tuples(st.sampled_from(["publish", "publish", "commit", "write", "restart"])),
)


@given(st.lists(STEPS, max_size=60))
def test_queues_are_the_same_as_in_memory(steps: list[tuple[str, ...]]) -> None:
    slot = Slot()
    for kind, *rest in steps:
        run(slot, kind, rest)
        slot.check()
    whole = load_state(all_records(_published(slot)))
    for client, waiting in slot.wanted.items():
        assert list(whole.queues.get(client, {})) == [dot for dot, _, _ in waiting]
    slot.state.load_all()
    slot.check()
    for client in CLIENTS:
        assert len(slot.state.queues.get(client, ())) == len(slot.wanted[client])
        while slot.wanted[client]:
            slot.finish(client, 0)
    slot.publish()
    assert (slot.stored(), slot.state.warm_runs, slot.state.blocks) == ([], {}, {})


def _published(slot: Slot) -> SlotState:
    slot.publish()
    return slot.state


def run(slot: Slot, kind: str, rest: Sequence[object]) -> None:
    if kind == "take":
        clients, qos, origin = rest
        slot.take(str(clients), int(str(qos)), 5, ORIGINS[int(str(origin))])
    elif kind == "finish":
        slot.finish(str(rest[0]), int(str(rest[1])))
    elif kind == "load":
        slot.state.load(str(rest[0]), int(str(rest[1])))
    elif kind == "serve":
        slot.serving ^= {str(rest[0])}
    elif kind == "late":
        slot.late(str(rest[0]))
    elif kind == "publish":
        slot.publish()
    elif kind == "commit":
        slot.commit()
    elif kind == "write":  # the commit is on disk, and nobody has said so
        slot.disk.write(slot.begin_commit()[1], sync=False)
    else:
        slot.restart()
