"""Compaction that is interrupted: by SIGKILL, and between any two of its steps."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vmq.streams.support import Clock, Row, make, put, read_all, row
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.partition import Partition
from vmq.streams.stored import StoredPartition
from vmq.streams.tidying import compaction
from vmq.streams.tidying.compaction import compact, read_note
from vmq.streams.tidying.janitor import Janitor
from vmq.streams.times import offset_at

OPTIONS: dict[str, Any] = {"compact": True, "retention_age": "never"}

#: Writes rows of few keys, seals and compacts, for ever; says of each round when it is on disk.
WRITER = """
import sys
from pathlib import Path
from tests.vmq.streams.support import Clock, make, put, row
from vmq.streams.tidying.compaction import compact

partition = make(Path(sys.argv[1]), Clock(), compact=True, retention_age="never")
number = partition.end
while True:
    put(partition, [row(number + each, f"k/{(number + each) % 7}") for each in range(10)])
    number += 10
    partition.roll()
    print(number, flush=True)
    compact(partition)
"""


def fill(partition: Partition, rounds: int = 4) -> list[Row]:
    rows = []
    for number in range(rounds):
        several = [row(number * 6 + each, "abcd"[each % (4 - number % 2)]) for each in range(6)]
        several[number]["payload"] = b""
        put(partition, several)
        rows += several
        partition.roll()
    return rows


def newest_of(rows: list[Row]) -> dict[str, bytes]:
    return {each["topic"]: each["payload"] for each in rows}


def test_who_is_killed_while_it_compacts_has_lost_no_key(tmp_path: Path) -> None:
    for said in (3, 5, 8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            lines = [int(writer.stdout.readline()) for _ in range(said)]
            writer.send_signal(signal.SIGKILL)
            lines += [int(each) for each in writer.stdout.read().split()]
        partition = make(tmp_path, Clock(), **OPTIONS)
        end = lines[-1]
        assert partition.end >= end
        found = [
            (offset, topic)
            for chunk in LogReader(partition, ["offset", "topic"]).read(partition.earliest)
            for offset, topic in zip(
                *(each.to_pylist() for each in chunk.rows.columns), strict=True
            )
        ]
        assert all(topic == f"k/{offset % 7}" for offset, topic in found)
        assert set(range(end - 7, end)) <= {offset for offset, _ in found}
        assert not StoredPartition(tmp_path, "s", 0).verify().problems
        partition.close()


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("name", ["replace", "unlink", "write_bytes"])
def test_between_any_two_steps_no_key_is_lost_and_no_mark_before_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    left = steps = 0
    original = getattr(Path, name)
    while True:
        folder = tmp_path / str(steps)
        clock = Clock(1_800_000_000.0)  # all tombstones are old
        partition = make(folder, clock, **OPTIONS)
        rows = fill(partition)
        left = steps

        def step(path: Path, *about: object, **named: object) -> object:
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            return original(path, *about, **named)

        done = True
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, step)
            try:
                compact(partition)
            except KilledError:
                done = False
        partition.close()
        again = make(folder, clock, **OPTIONS)
        # A key whose tombstone has gone has no row left that the tombstone was about.
        there = newest_of(read_all(again))
        wanted = newest_of(rows)
        assert there == {
            topic: payload for topic, payload in wanted.items() if payload or topic in there
        }
        compact(again)
        assert newest_of(read_all(again)) == {
            topic: payload for topic, payload in wanted.items() if payload
        }
        again.close()
        if done:
            break
        steps += 1
    assert steps >= 2


def test_who_tidies_compacts_and_makes_room(tmp_path: Path) -> None:
    partition = make(tmp_path, **OPTIONS)
    for number in range(8):
        put(partition, [row(number * 50 + each, "one") for each in range(50)])
        partition.roll()
    size = partition.size
    Janitor(lambda: [partition]).tidy()
    assert [each["payload"] for each in read_all(partition)] == [b"payload-399"]
    assert (partition.earliest, partition.end) == (0, 400)
    assert partition.size < size / 2
    assert len(partition.sealed) == 1, "what is left is joined"
    inodes = [each.inode for each in partition.sealed]
    Janitor(lambda: [partition]).tidy()
    assert [each.inode for each in partition.sealed] == inodes, "nothing came, nothing is done"


def test_a_segment_of_which_no_row_is_left_is_as_old_as_its_rows_were(tmp_path: Path) -> None:
    """Retention takes it no earlier: who reads from an offset in it goes on."""
    partition = make(tmp_path, compact=True, retention_age="1h")
    for number in range(3):
        put(partition, [row(number * 50 + each, "one") for each in range(50)])
        partition.roll()
    Janitor(lambda: [partition]).tidy()
    Janitor(lambda: [partition]).tidy()
    assert partition.earliest == 0
    assert [each.rows for each in partition.sealed] == [0, 0, 1]
    assert offset_at(partition, row(7)["timestamp"]) == 149, "a time of rows that are gone"


def test_a_note_of_another_log_or_none_at_all_begins_anew(tmp_path: Path) -> None:
    partition = make(tmp_path, **OPTIONS)
    fill(partition)
    for raw in (b"", b"abcd" * 5, os.urandom(4) + b"\x92\x01\x02"):
        (tmp_path / compaction.NOTE).write_bytes(raw)
        assert read_note(tmp_path).end == 0
    compact(partition)
    assert read_note(tmp_path).end == partition.end
