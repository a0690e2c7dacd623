"""Mending: each kind of damage leaves a partition that opens, with what can stay, and nothing is thrown away."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.flipped import flip
from tests.vmq.streams.support import options, put, read_all, rows_from
from vmq.streams.definition import lock_folder, write_definition
from vmq.streams.log.errors import DamagedError, StreamError
from vmq.streams.log.partition import CHECKPOINT, Partition
from vmq.streams.log.segment import index_path
from vmq.streams.mending import mend

#: Each segment has two batches of two rows.
SEGMENTS = 3


def open_one(streams: Path) -> Partition:
    return Partition(streams / "s" / "0", "s", 0, options())


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    write_definition_of(tmp_path)
    partition = open_one(tmp_path)
    for number in range(SEGMENTS):
        for batch in range(2):
            put(partition, rows_from(4 * number + 2 * batch, 2))
        if number < SEGMENTS - 1:
            partition.roll()
    partition.close()
    return tmp_path


def write_definition_of(streams: Path) -> None:
    streams.mkdir(exist_ok=True)
    write_definition(streams / "s", options(), "command")


def segments(streams: Path) -> list[Path]:
    return sorted((streams / "s" / "0").glob("*.arrows"))


def damage_last_batch(streams: Path) -> None:
    flip(segments(streams)[-1], -9)


def damage_last_schema(streams: Path) -> None:
    flip(segments(streams)[-1], 20)


def cut_last(streams: Path) -> None:
    last = segments(streams)[-1]
    os.truncate(last, last.stat().st_size - 10)


def delete_last(streams: Path) -> None:
    segments(streams)[-1].unlink()


def damage_first(streams: Path) -> None:
    first = segments(streams)[0]
    flip(first, -30)
    index_path(first).unlink()


def delete_middle(streams: Path) -> None:
    segments(streams)[1].unlink()


@pytest.mark.parametrize(
    ("hurt", "first", "count"),
    (
        (damage_last_batch, 0, 10),
        (damage_last_schema, 0, 8),
        (cut_last, 0, 10),
        (delete_last, 0, 8),
        (damage_first, 4, 8),
        (delete_middle, 8, 4),
    ),
)
def test_what_can_stay_stays(
    streams: Path, hurt: Callable[[Path], None], first: int, count: int
) -> None:
    hurt(streams)
    before = {each.name: each.read_bytes() for each in segments(streams)}
    with pytest.raises(DamagedError):
        open_one(streams)
    (told,) = mend(streams, ["s"])
    assert "is damaged at byte" in told
    assert str(streams / "s" / "0" / "damaged-1") in told
    partition = open_one(streams)
    rows = rows_from(first, count)
    assert read_all(partition) == rows
    put(partition, rows_from(first + count, 2))
    assert read_all(partition) == rows + rows_from(first + count, 2)
    partition.close()
    # Whatever is no more as it was is kept as it was.
    kept = {each.name: each.read_bytes() for each in (streams / "s" / "0" / "damaged-1").iterdir()}
    for name, raw in before.items():
        path = streams / "s" / "0" / name
        assert kept.get(name) == raw or (path.exists() and path.read_bytes().startswith(raw))


def test_the_only_segment_goes_and_its_offsets_are_not_given_out_again(tmp_path: Path) -> None:
    write_definition_of(tmp_path)
    partition = open_one(tmp_path)
    put(partition, rows_from(0, 5))
    partition.close()
    damage_last_schema(tmp_path)
    assert mend(tmp_path, ["s"])
    partition = open_one(tmp_path)
    assert (partition.earliest, partition.end) == (5, 5)
    partition.close()


def test_a_whole_stream_stays_as_it_is(streams: Path) -> None:
    before = {each.name: each.read_bytes() for each in segments(streams)}
    assert mend(streams, ["s"]) == []
    assert {each.name: each.read_bytes() for each in segments(streams)} == before
    assert not list((streams / "s" / "0").glob("damaged*"))


def test_a_stream_in_use_is_refused(streams: Path) -> None:
    damage_last_batch(streams)
    lock = lock_folder(streams)
    with pytest.raises(StreamError, match="is in use by another process"):
        mend(streams, ["s"])
    os.close(lock)
    assert len(mend(streams, ["s"])) == 1
    assert mend(streams, ["s"]) == []


def test_whatever_is_flipped_or_cut_what_was_before_stays(streams: Path, tmp_path: Path) -> None:
    """Random damage to several files at once: it opens again, and gives out nothing that was not written."""
    whole = shutil.copytree(streams / "s", tmp_path / "whole")
    for seed in range(40):
        rng = random.Random(seed)
        shutil.rmtree(streams / "s")
        shutil.copytree(whole, streams / "s")
        last = segments(streams)[-1]
        for path in rng.sample(segments(streams), rng.randrange(1, 3)):
            if rng.random() < 0.5:
                flip(path, rng.randrange(path.stat().st_size))
                index_path(path).unlink(missing_ok=True)
            else:
                os.truncate(path, rng.randrange(path.stat().st_size))
            if rng.random() < 0.3:
                (streams / "s" / "0" / CHECKPOINT).unlink(missing_ok=True)
        untouched = [
            each
            for each in segments(streams)
            if each.read_bytes() == (whole / "0" / each.name).read_bytes()
        ]
        mend(streams, ["s"])
        partition = open_one(streams)
        found = read_all(partition)
        assert found == rows_from(partition.earliest, len(found)), seed
        if last in untouched:
            assert found[-4:] == rows_from(8, 4), seed
        partition.close()
