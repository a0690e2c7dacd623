"""A replica's segments beside a list of batches: whatever is appended, cut, committed, fetched and reopened."""

import errno
import os
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.forgetful_disk import ForgetfulDisk
from tests.vmq.streams.replica.support import Leader, numbers_of, partition_in, seen
from tests.vmq.streams.support import ShortRoom
from vmq.streams.log import checkpoint
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.partition import CHECKPOINT
from vmq.streams.replica import opening
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import GROUP, ReplicaPartition
from vmq_cluster.raft.messages import STATE, Batch, SealedFile
from vmq_cluster.raft.state import LogState


def fetch(source: ReplicaLog, target: ReplicaLog, file: SealedFile) -> bool:
    """Takes a sealed file over, piece by piece."""
    at = target.write_aside(file, 0, b"")
    while at < file.size:
        piece = source.read_file(file, at, 1000)
        assert piece
        at = target.write_aside(file, at, piece)
    return target.install(file)


class ReplicaMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.partition = partition_in(Path(self.folder.name), segment_bytes=65_536)
        self.log = self.partition.open()
        self.leader = Leader(self.log)
        self.batches: list[Batch] = []
        self.commit = 0

    def teardown(self) -> None:
        self.partition.shut()
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.batches += self.leader.begin()

    @rule(count=st.integers(1, 40))
    def append(self, count: int) -> None:
        self.batches += self.leader.rows(count)

    @rule()
    def control(self) -> None:
        self.batches += self.leader.control()

    @rule()
    def roll(self) -> None:
        self.batches += self.leader.segment()

    @rule(part=st.floats(0, 1))
    def advance(self, part: float) -> None:
        ends = [each.end for each in self.batches if each.end > self.commit]
        if ends:
            self.commit = ends[int(part * (len(ends) - 1))]
            self.log.commit(self.commit)

    @rule(part=st.floats(0, 1))
    def cut(self, part: float) -> None:
        starts = [each.offset for each in self.batches if each.offset >= max(self.commit, 1)]
        if starts:
            at = starts[int(part * (len(starts) - 1))]
            self.log.cut(at)
            self.batches = [each for each in self.batches if each.end <= at]
            self.leader.term += 1
            self.leader.next = max([0, *(m.end for each in self.batches for m in each.marks)])

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        first = int(part * self.commit)
        self.log.trim(first)
        begins = [each.offset for each in self.batches if each.kind == STATE]
        kept = max([begins[0], *(each for each in begins if each <= first)])
        assert self.log.first in begins
        assert self.log.first <= kept
        self.batches = [each for each in self.batches if each.offset >= self.log.first]

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.partition.shut(clean=clean)
        self.log = self.partition.open()
        self.leader.log = self.log
        assert not self.log.forgot, "the system has what was written"
        assert self.log.committed == self.commit or self.commit < self.log.first

    @precondition(lambda self: self.log.files(0))
    @rule()
    def copy(self) -> None:
        """Another replica catches up by files and batches."""
        with tempfile.TemporaryDirectory() as folder:
            other = partition_in(Path(folder))
            log = other.open()
            log.reset(self.log.first)
            while files := [each for each in self.log.files(log.end) if each.end > log.end]:
                assert fetch(self.log, log, files[0])
            while log.end < self.log.end:
                log.append(self.log.read(log.end, 2000))
            log.commit(self.commit)
            assert seen(other) == seen(self.partition)
            other.shut()

    @invariant()
    def reads_what_was_appended(self) -> None:
        if not self.batches:
            return
        assert (self.log.first, self.log.end) == (self.batches[0].offset, self.batches[-1].end)
        at = self.batches[-min(len(self.batches), 7)].offset
        found = self.log.read(at, 1 << 30)
        wanted = [each for each in self.batches if each.offset >= at]
        assert found == wanted[: len(found)]
        assert found

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if self.batches:
            rows = numbers_of([each for each in self.batches if each.end <= self.commit])
            assert seen(self.partition) == rows

    @invariant()
    def the_state_is_that_of_the_log(self) -> None:
        if self.batches:
            found = LogState.of(self.log.replay(self.log.end))
            assert found.terms.at(self.log.end - 1) == self.batches[-1].term
            known = [m for each in self.batches for m in each.marks]
            if known:
                assert found.producers.next["p", "b"] >= known[-1].end


TestReplicaLog = ReplicaMachine.TestCase
TestReplicaLog.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def filled(folder: Path, segments: int = 4, **given: object) -> tuple[ReplicaPartition, Leader]:
    """A log of some segments, all committed."""
    partition = partition_in(folder, **given)
    leader = Leader(partition.open())
    leader.begin()
    for number in range(segments):
        if number:
            leader.segment()
        for _ in range(5):
            leader.rows(10)
    leader.log.commit(leader.log.end)
    return partition, leader


def flip(path: Path, random: Random, times: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(times):
        at = random.randrange(len(raw) // 2, len(raw) - 8)
        raw[at] ^= 1 << random.randrange(8)
    path.write_bytes(raw)


@pytest.mark.parametrize("at", [0, -1])
def test_damage_that_is_found_while_another_is_mended_leaves_both_whole(
    tmp_path: Path, at: int
) -> None:
    """A file that began in the middle of a segment would cut off, at the next start, all that lies behind it."""
    random = Random(5)
    one, leader = filled(tmp_path / "one", segments=5)
    other, _ = filled(tmp_path / "other", segments=5)
    wanted, log, source = seen(one), leader.log, other.log
    assert source is not None
    names = sorted(path.name for path in (tmp_path / "one").glob("*.arrows"))
    later, sooner = one.sealed[2], one.sealed[0]
    flip(later.path, random, times=12)
    one.note(DamagedError(later.path, 0, later.base, "a test"))
    assert log.find_damage() is None
    [(begin, _)] = log.damage
    log.mend(source.read(begin, 1)[:1])
    assert log.damage[0][0] > begin
    flip(sooner.path, random)
    one.note(DamagedError(sooner.path, 0, sooner.base, "a test"))
    assert log.find_damage() is None
    while log.damage:
        first, end = log.damage[at]
        log.mend([each for each in source.read(first, 500) if each.end <= end])
    assert sorted(path.name for path in (tmp_path / "one").glob("*.arrows")) == names
    assert seen(one) == wanted
    assert not one.flaws
    one.shut(clean=False)
    assert not one.open().forgot
    assert seen(one) == wanted


def test_what_was_cut_for_its_damage_is_not_cut_again(tmp_path: Path) -> None:
    partition, leader = filled(tmp_path, segments=3)
    log = leader.log
    last = log.segments[-1]
    at = last.offsets[2]
    partition.note(DamagedError(last.path, last.positions[2], at, "a test"))
    assert log.find_damage() == at
    log.cut(at)
    assert not partition.flaws
    leader.rows(10)
    log.commit(log.end)
    assert log.find_damage() is None


def test_segments_that_are_damaged_at_the_very_end_are_lost_and_the_log_opens(
    tmp_path: Path,
) -> None:
    partition, leader = filled(tmp_path, segments=4)
    ends = [each.end for each in partition.sealed]
    partition.shut(clean=False)
    for path in sorted(tmp_path.glob("*.arrows"))[-2:]:
        raw = bytearray(path.read_bytes())
        raw[20:60] = bytes(40)
        path.write_bytes(raw)
    log = partition.open()
    assert log.forgot
    assert (log.end, log.damage) == (ends[1], [])
    leader.log = log
    leader.segment()


def test_damage_at_the_end_is_cut_and_was_forgotten(tmp_path: Path) -> None:
    partition, leader = filled(tmp_path, segments=1)
    end = leader.log.end
    partition.shut(clean=False)
    [path] = tmp_path.glob("*.arrows")
    flip(path, Random(3))
    log = partition.open()
    assert log.forgot
    assert log.end < end
    assert log.committed <= log.end


def test_a_torn_tail_is_cut_and_nothing_was_forgotten(tmp_path: Path) -> None:
    partition, leader = filled(tmp_path, segments=1)
    end = leader.log.end
    partition.shut(clean=False)
    [path] = tmp_path.glob("*.arrows")
    with path.open("ab") as file:
        file.write(b"\xff\xff\xff\xff\0\1")
    log = partition.open()
    assert (log.forgot, log.end) == (False, end)


def test_a_log_without_rows_is_not_old_when_it_is_opened_again(tmp_path: Path) -> None:
    """Each start would begin a segment, and retention would delete the one before."""
    partition, leader = filled(tmp_path, segments=0)
    leader.control()
    leader.control()
    leader.log.commit(leader.log.end)
    partition.shut(clean=False)
    assert not partition.open().is_full


def check_known_until_ballots_say_it(partition: ReplicaPartition) -> None:
    """It may have forgotten something, and does not know that any more once its mark is cleared."""
    found = partition.open()
    assert found.forgot
    found.mark.clear()
    partition.shut()
    assert not partition.open().forgot
    partition.shut()


def test_memory_may_forget_unless_it_was_closed_in_order(tmp_path: Path) -> None:
    partition, _ = filled(tmp_path, durability="memory")
    partition.shut(clean=False)
    check_known_until_ballots_say_it(partition)


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
def test_what_was_forgotten_is_known_until_the_ballots_say_it(
    tmp_path: Path, durability: str
) -> None:
    """The first look at it leaves nothing that shows it; and in order it is closed even where no ballot was saved."""
    partition, leader = filled(tmp_path, durability=durability)
    leader.rows(10)
    leader.log.sync()
    path = leader.log.segments[-1].path
    partition.shut(clean=False)
    os.truncate(path, path.stat().st_size - 10)
    for clean in (False, True):
        assert partition.open().forgot
        partition.shut(clean=clean)
    check_known_until_ballots_say_it(partition)


def test_who_lost_the_note_of_its_boot_may_have_forgotten(tmp_path: Path) -> None:
    """A power failure takes a file that was never synced, and leaves what says who the members are."""
    partition, _ = filled(tmp_path, durability="os")
    partition.shut(clean=False)
    os.truncate(partition.folder / CHECKPOINT, 0)
    assert partition.open().forgot


def test_no_power_failure_brings_back_the_mark_of_an_orderly_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, _ = filled(tmp_path, durability="os")
    synced: list[bool] = []
    monkeypatch.setattr(
        opening, "sync_folder", lambda folder: synced.append((folder / opening.CLEAN).exists())
    )
    for clean in (True, False):
        partition.shut(clean=clean)
        partition.open()
        assert synced == [False], "once a start, and only where it ended in order"


def test_what_a_log_begins_with_is_on_the_disk_whatever_was_promised(tmp_path: Path) -> None:
    _, leader = filled(tmp_path, segments=0, durability="memory")
    [segment] = leader.log.segments
    assert segment.start < segment.synced == segment.index.size
    leader.rows(10)
    assert segment.synced < segment.index.size, "nothing else is waited for"


def test_another_boot_of_the_machine_may_have_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = {each: filled(tmp_path / each, durability=each)[0] for each in ("os", "fsync")}
    for partition in partitions.values():
        partition.shut(clean=False)
    for module in (checkpoint, opening):
        monkeypatch.setattr(module, "boot_id", lambda: b"another boot 123")
    assert partitions["os"].open().forgot
    assert not partitions["fsync"].open().forgot
    for partition in partitions.values():
        partition.shut()


def test_a_segment_whose_rows_are_taken_back_is_a_file_of_its_own(tmp_path: Path) -> None:
    _, leader = filled(tmp_path, segments=1)
    leader.rows(10)
    [path] = tmp_path.glob("*.arrows")
    with path.open("rb") as opened:
        before = opened.read()
        leader.log.cut(leader.log.end - 10)
        leader.term += 1
        leader.control()
        opened.seek(0)
        assert opened.read() == before, "who has it open keeps what he sees"
    assert path.read_bytes() != before


def test_rows_are_refused_by_a_disk_that_is_short_and_what_the_group_itself_writes_is_not(
    tmp_path: Path,
) -> None:
    partition, leader = filled(tmp_path, segments=0)
    log = leader.log
    leader.rows(3)
    partition.room = room = ShortRoom()
    end = log.end
    with pytest.raises(OSError, match="the disk is short"):
        leader.rows(3)
    leader.control()
    assert log.end == end + 1
    with pytest.raises(OSError, match="the disk is short"):
        log.write_aside(SealedFile(0, 9, 9, b"", 0, 0), 0, b"piece")
    room.is_short = False
    leader.rows(3)
    assert log.end == end + 4


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_what_a_failed_sync_was_to_take_is_written_again_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    disk = ForgetfulDisk(monkeypatch)
    partition, leader = filled(tmp_path, durability=durability, segments=1)
    log = leader.log
    log.sync()
    leader.rows(10)
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        log.sync()
    assert durability == "os" or log.safe < log.end
    partition.shut(clean=False)  # as the thread of the groups does, before it opens it again
    disk.fails = False
    log = partition.open()
    assert log.safe == log.end == leader.log.end
    if durability == "os":
        partition.shut()  # that says that all is on the disk
    assert disk.is_whole


def test_an_orderly_end_says_nothing_of_what_an_earlier_life_left_to_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, leader = filled(tmp_path, durability="os", segments=2)
    segments = {each.path.stat().st_ino for each in leader.log.segments}
    partition.shut(clean=False)
    partition.open()
    synced = set()
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.add(os.fstat(fd).st_ino))
    partition.shut()
    assert (tmp_path / opening.CLEAN).exists()
    assert len(segments) > 1
    assert synced == segments
    partition.open()
    synced.clear()
    partition.shut()
    assert not synced, "nothing was written since"


def test_a_fetched_file_that_could_not_be_synced_is_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, leader = filled(tmp_path / "a")
    other = partition_in(tmp_path / "b")
    target = other.open()
    [file, *_] = leader.log.files(0)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            fetch(leader.log, target, file)
    assert target.write_aside(file, 0, b"") == 0
    assert fetch(leader.log, target, file)


@pytest.mark.parametrize(("mark", "stays"), [("", True), ("id/0", True), ("other/0", False)])
def test_a_replica_whose_mark_a_crash_has_left_empty_is_not_put_aside(
    tmp_path: Path, mark: str, stays: bool
) -> None:
    partition = partition_in(tmp_path / "streams" / "s" / "0")
    Leader(partition.open()).begin()
    partition.shut()
    (partition.folder / GROUP).write_text(mark)
    partition.belong_to("id/0", is_first=False)
    assert (partition.folder / GROUP).read_text() == "id/0"
    assert any(partition.folder.glob("*.arrows")) == stays
