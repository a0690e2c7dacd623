"""What is whole of damaged segments is kept and given to others; what nobody has is given up, and the rest goes on."""

from pathlib import Path
from random import Random

import pytest

from tests.support.flipped import flip
from tests.support.present import present
from tests.vmq.streams.replica.support import partition_in, seen
from tests.vmq.streams.replica.test_log import fetch, filled
from tests.vmq.streams.support import Clock
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import END
from vmq.streams.log.segment import Sealed
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import ReplicaPartition
from vmq.streams.replica.segment import LooseSegment
from vmq.streams.replica.tidying import tidy
from vmq_cluster.raft.holes import blanks
from vmq_cluster.raft.messages import BLANK
from vmq_cluster.raft.state import LogState


def flip_batch(
    partition: ReplicaPartition, sealed: Sealed, number: int, *, head: bool
) -> tuple[int, int]:
    """Flips a bit of one batch of a segment, and has it found; returns the offsets of the batch."""
    log = present(partition.log)
    segment = LooseSegment.load(sealed.path, partition.header)
    begin = segment.positions[number]
    behind = [*segment.positions, segment.index.size][number + 1]
    offset = segment.offsets[number]
    end = [*segment.offsets, segment.end][number + 1]
    segment.close()
    flip(sealed.path, begin + 5 if head else behind - 3)
    partition.note(DamagedError(sealed.path, begin, offset, "a test"))
    assert log.find_damage() is None
    return offset, end


def give_up(log: ReplicaLog) -> None:
    state = LogState.of(log.replay(log.end))
    first, end = log.damage[0]
    log.mend(blanks(log, state, first, end))


def holed(folder: Path, **given: object) -> tuple[ReplicaPartition, list[tuple[int, int]]]:
    """A partition whose first segment is a hole, and a batch of the second; what is left (see `seen`)."""
    partition, leader = filled(folder, 6, **given)
    rows, gone = seen(partition), [(0, partition.sealed[0].end)]
    partition.sealed[0].path.write_bytes(bytes(partition.sealed[0].size))
    partition.note(DamagedError(partition.sealed[0].path, 0, 0, "a test"))
    gone.append(flip_batch(partition, partition.sealed[1], 2, head=False))
    while leader.log.damage:
        give_up(leader.log)
    return partition, [row for row in rows if not any(at <= row[0] < end for at, end in gone)]


def mend(log: ReplicaLog, source: ReplicaLog) -> None:
    while log.damage:
        first, end = log.damage[0]
        found = [each for each in source.read(first, 500) if each.offset < end]
        if not found or not log.mend(found):
            return


def copied(source: ReplicaPartition, folder: Path) -> ReplicaPartition:
    """A new copy, by files and batches."""
    log = present(source.log)
    made = partition_in(folder)
    other = made.open()
    while files := [each for each in log.files(other.end) if each.end > other.end]:
        assert fetch(log, other, files[0])
    while other.end < log.end:
        other.append(log.read(other.end, 2000))
    other.commit(log.committed)
    return made


def test_what_is_given_up_is_skipped_and_new_copies_are_made(tmp_path: Path) -> None:
    one, leader = filled(tmp_path / "one")
    other, _ = filled(tmp_path / "other")
    source = present(other.log)
    wanted = seen(one)
    first, end = flip_batch(one, one.sealed[1], 2, head=False)
    assert flip_batch(other, other.sealed[1], 2, head=False) == (first, end)
    before = one.sealed[1].end
    assert [each.end for each in leader.log.files(0)] == [one.sealed[0].end], "up to the damage"
    mend(leader.log, source)
    assert leader.log.damage == [(first, end)]
    give_up(leader.log)
    assert not leader.log.damage
    left = [each for each in wanted if not first <= each[0] < end]
    assert seen(one) == left
    assert one.sealed[1].end == before
    mend(source, leader.log)
    assert seen(other) == left, "who lacks it has the hole from others, too"
    new = copied(one, tmp_path / "new")
    assert seen(new) == left
    tidy(one, lambda: False)
    for each in (one, other, new):
        each.shut()
        log = each.open()
        assert not log.forgot
        assert not log.damage
        assert seen(each) == left
        assert LogState.of(log.replay(log.end)).producers.next == {("p", "b"): 200}
        each.shut()


def test_the_state_that_begins_a_segment_is_given_up_and_known(tmp_path: Path) -> None:
    one, leader = filled(tmp_path / "one")
    wanted = seen(one)
    log = leader.log
    sealed = one.sealed[1]
    assert flip_batch(one, sealed, 0, head=False) == (sealed.base, sealed.base + 1)
    give_up(log)
    assert not log.damage
    assert seen(one) == wanted
    assert log.read(sealed.base, 1)[0].kind == BLANK
    new = copied(one, tmp_path / "new")
    assert seen(new) == wanted
    assert new.sealed[0].end == sealed.base
    other = present(new.log)
    assert LogState.of(other.replay(sealed.end)).members.voters == ("a", "b", "c")
    new.shut()


def test_retention_takes_a_hole_with_what_lies_behind_it(tmp_path: Path) -> None:
    """No time is known of it. Who reads from an offset in it goes on."""
    one, left = holed(tmp_path, retention_age="1h")
    one.clock = clock = Clock()
    assert seen(one) == left
    assert one.sealed[0].rows == 0
    assert one.retained_from() == 0
    clock.now += 7200
    assert one.retained_from() == one.sealed[-1].end


def test_retention_takes_nothing_because_it_is_damaged(tmp_path: Path) -> None:
    """Others may have it whole; what nobody has is given up by an operator."""
    one, _ = filled(tmp_path, retention_age="1h")
    first = one.sealed[0]
    one.shut()
    first.path.write_bytes(first.path.read_bytes()[:-200])
    one.clock = Clock()
    assert one.open().damage
    assert one.retained_from() == 0


def test_a_file_whose_batches_are_whole_loses_nothing(tmp_path: Path) -> None:
    """The mark of its end is damaged, or its schema, everywhere."""
    one, leader = filled(tmp_path / "one")
    wanted = seen(one)
    path = one.sealed[1].path
    flip(path, -len(END))
    flip(path, 20)
    one.note(DamagedError(path, 0, one.sealed[1].base, "a test"))
    assert leader.log.find_damage() is None
    give_up(leader.log)
    assert not leader.log.damage
    assert seen(one) == wanted


@pytest.mark.parametrize("seed", range(16))
def test_whatever_is_flipped_nothing_else_is_given_up(tmp_path: Path, seed: int) -> None:
    """Several bits on each of two copies, which have merged their segments or not; only what both lack is gone."""
    random = Random(seed)
    partitions = [filled(tmp_path / name, segments=5)[0] for name in ("one", "other")]
    wanted = seen(partitions[0])
    if seed % 3 == 1:
        tidy(partitions[0], lambda: False)
    if seed % 5 == 1:
        tidy(partitions[1], lambda: False)
    lost: list[set[int]] = []
    for partition in partitions:
        log = present(partition.log)
        for sealed in random.sample(partition.sealed[:3], 2):
            raw = bytearray(sealed.path.read_bytes())
            for _ in range(random.choice((1, 2, 5))):
                raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
            sealed.path.write_bytes(raw)
            partition.note(DamagedError(sealed.path, 0, sealed.base, "a test"))
        assert log.find_damage() is None
        lost.append(set())
        at = log.first
        while at < log.end:
            batches = log.read(at, 1 << 30)
            if batches:
                at = batches[-1].end
            else:
                lost[-1].add(at)
                at += 1
    logs = [present(each.log) for each in partitions]
    for _ in range(60):
        for log, source in zip(logs, reversed(logs), strict=True):
            mend(log, source)
            if log.damage and not source.read(log.damage[0][0], 1):
                first, end = log.damage[0]
                behind = min(end, source.gap(first))
                state = LogState.of(log.replay(log.end))
                log.mend(blanks(log, state, first, behind))
    both = lost[0] & lost[1]
    for partition in partitions:
        assert partition.log is not None
        assert not partition.log.damage
        assert seen(partition) == [each for each in wanted if each[0] not in both]
        partition.shut(clean=False)
        assert not partition.open().forgot
        partition.shut()
