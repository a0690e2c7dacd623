"""Sealed segments are read again, slowly: damage is noted where it is, and nothing else is disturbed."""

import errno
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.flipped import flip
from tests.support.until import PATIENCE
from tests.vmq.streams.support import make, make_with, put, rows_from
from vmq.streams.log.cursor import Cursor
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.partition import Partition
from vmq.streams.log.recovery import examine
from vmq.streams.log.scrub import STEP, Scrubber


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """Three sealed segments, and one that is written to."""
    made = make(tmp_path / "0")
    for number in range(4):
        put(made, rows_from(10 * number, 10))
        if number < 3:
            made.roll()
    yield made
    made.close()


def scrubber(*partitions: Partition, rate: int = 1 << 40) -> Scrubber:
    return Scrubber(lambda: partitions, rate)


def test_a_round_notes_what_is_damaged_once(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    scrubber(partition).round()
    assert partition.flaws == {}
    hurt = partition.sealed[1].path
    flip(hurt, -40)
    for _ in range(2):
        scrubber(partition).round()
    assert list(partition.flaws) == [hurt]
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert f"stream=s partition=0: readers are refused from there on: {hurt}" in caplog.text


def test_what_a_reader_meets_is_noted_too(partition: Partition) -> None:
    hurt = partition.sealed[0].path
    flip(hurt, -40)
    with Cursor(partition, 0) as cursor, pytest.raises(DamagedError):
        cursor.read(None)
    assert list(partition.flaws) == [hurt]


def test_a_segment_that_is_gone_is_no_damage_and_one_that_cannot_be_read_is(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, ill, _ = (each.path for each in partition.sealed)
    gone.unlink()
    inode = ill.stat().st_ino
    read = os.pread

    def fail(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, size, position)

    monkeypatch.setattr(os, "pread", fail)
    scrubber(partition).round()
    assert list(partition.flaws) == [ill]
    assert "it cannot be read: Input/output error" in str(partition.flaws[ill])


def test_no_more_is_read_than_the_rate_allows(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scrubber(partition, rate=1000)
    waits: list[float] = []
    monkeypatch.setattr(one, "_wait", waits.append)
    one.round()
    read = sum(each.size for each in partition.sealed) - 3 * len(partition.header.raw)
    assert read / 1000 - STEP <= sum(waits) <= read / 1000


def test_who_asks_need_not_wait_for_the_round(tmp_path: Path, partition: Partition) -> None:
    """With a byte a second a round would take days."""
    other = make_with(10, tmp_path / "1")
    other.roll()
    flip(other.sealed[0].path, -40)
    noted = threading.Event()
    other.flaws = Watched(noted)
    for rate in (0, 1):
        noted.clear()
        other.flaws.clear()
        one = scrubber(partition, rate=rate)
        one.start()
        try:
            one.ask(other)
            assert noted.wait(PATIENCE)
        finally:
            one.stop()
        assert not one.thread.is_alive()
    other.close()


class Watched(dict[Path, DamagedError]):
    """Flaws whose coming can be waited for."""

    def __init__(self, noted: threading.Event) -> None:
        super().__init__()
        self.noted = noted

    def __setitem__(self, path: Path, damage: DamagedError) -> None:
        super().__setitem__(path, damage)
        self.noted.set()


def test_what_nobody_expected_ends_no_round(
    partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_with(10, tmp_path / "1")
    other.roll()
    flip(other.sealed[0].path, -40)

    def fail(fd: int, path: Path, *arguments: Any) -> object:
        if path.parent == partition.folder:
            raise RecursionError("too deep")
        return examine(fd, path, *arguments)

    other.stream = "other"
    one = scrubber(partition, other)
    with monkeypatch.context() as patch:
        patch.setattr("vmq.streams.log.scrub.examine", fail)
        one.round()
    assert list(other.flaws) == [other.sealed[0].path]
    assert one.failures.reasons == {("s", 0): "too deep"}
    one.round()
    assert not one.failures.reasons
