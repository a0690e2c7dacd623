"""A damaged partition takes and gives nothing; what is beside it works, and it is mended with what stands before."""

import asyncio
import errno
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.flipped import flip
from tests.vmq.streams.support import Opener, options, payloads
from vmq.config.streams import StreamOptions
from vmq.streams.appender import REFUSED
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.damaged import open_partition
from vmq.streams.extents import Extents
from vmq.streams.log.cursor import Cursor
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.partition import Partition
from vmq.streams.mending import mend, mend_partition
from vmq.streams.stored import StoredStream
from vmq.streams.times import offset_at

TOPICS = [b"t/%d" % number for number in range(20)]


def two() -> StreamOptions:
    return options(partitions=2, key="topic", segment_bytes=65_536)


async def fill(catalog: Catalog, payload: bytes) -> dict[bytes, int]:
    """A message on each topic; the commit that each waits for."""
    appender = catalog.get("s").appender
    numbers = {topic: appender.append(topic, payload, 1, False, "c", 1) for topic in TOPICS}
    await catalog.commits.wait()
    return numbers


def flip_last(folder: Path) -> Path:
    """Flips a bit in the last batch of a partition."""
    path = max(folder.glob("*.arrows"))
    flip(path, -9)
    return path


@pytest.fixture
async def hurt(opened: Opener, tmp_path: Path) -> Catalog:
    """A stream of two partitions; the second batch of the first is damaged."""
    catalog = opened(s=two())
    for payload in (b"first", b"second"):
        await fill(catalog, payload)
    await catalog.close()
    flip_last(tmp_path / "streams" / "s" / "0")
    return opened(s=two())


def split(stream: Stream) -> tuple[list[bytes], list[bytes]]:
    """The topics of each partition."""
    first = [topic for topic in TOPICS if stream.appender.partition_of(topic, "c") == 0]
    return first, [topic for topic in TOPICS if topic not in first]


async def test_what_belongs_to_it_is_refused_and_the_rest_is_taken(hurt: Catalog) -> None:
    stream = hurt.get("s")
    damaged, whole = split(stream)
    assert damaged
    assert whole
    assert [each.number for each in hurt.damaged()] == [0]
    numbers = await fill(hurt, b"third")
    assert {numbers[topic] for topic in damaged} == {REFUSED}
    assert all(numbers[topic] > 0 for topic in whole)
    assert not stream.appender.has_room(damaged[0], b"x", "c")
    assert stream.appender.has_room(whole[0], b"x", "c")
    assert stream.appender.append_run(damaged[0], [b"x", b"y"], 0, False, "c", 1) == REFUSED
    assert stream.appender.append_run(whole[0], [b"x", b"y"], 0, False, "c", 1) > 0
    assert stream.appender.refused == len(damaged)
    assert stream.appender.dropped == len(damaged) + 2
    await hurt.commits.wait()
    assert payloads(stream.partitions[1]).count(b"third") == len(whole)


async def test_readers_are_told_and_others_read(hurt: Catalog) -> None:
    stream = hurt.get("s")
    partition = stream.partitions[0]
    for offset in (0, partition.end):
        with pytest.raises(DamagedError, match=r"s/0/0+\.arrows is damaged at byte \d+"):
            Cursor(partition, offset)
    _, whole = split(stream)
    assert payloads(stream.partitions[1]) == [b"first"] * len(whole) + [b"second"] * len(whole)
    # Where it lies is known, so that programs that ask for all of the stream get to the others.
    extents = Extents(hurt)
    found = [(each.earliest, each.end) for each in extents.of_all(stream)]
    assert found == [(0, len(TOPICS) - len(whole)), (0, 2 * len(whole))]
    assert extents.at_time(stream, 0)[1] == 0
    assert offset_at(partition, 0) == partition.end


async def test_nothing_of_it_is_changed(
    hurt: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "streams" / "s" / "0"
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    partition = hurt.get("s").partitions[0]
    partition.rollback()
    hurt.get("s").set_options(options(partitions=3, key="topic", retention_bytes=1))
    hurt.commits.writer.roll_due()
    with caplog.at_level(logging.ERROR):
        hurt.janitor.tidy()
    assert not caplog.records
    assert partition.size > 0
    await hurt.close()
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


async def test_a_stream_with_a_damaged_partition_can_be_deleted(
    hurt: Catalog, tmp_path: Path
) -> None:
    await asyncio.wrap_future(hurt.drop("s"))
    assert not (tmp_path / "streams" / "s").exists()
    assert list(hurt.damaged()) == []


def owe(catalog: Catalog, topic: bytes, payload: bytes) -> int:
    """Hands over a message that another node has acknowledged."""
    return catalog.get("s").appender.append(topic, payload, 1, False, "c", 1, is_owed=True)


async def parked(catalog: Catalog, tmp_path: Path, *payloads: bytes) -> Path:
    """Has some messages wait for the damaged partition, and closes the catalog; returns its folder."""
    [topic, *_], _ = split(catalog.get("s"))
    for payload in payloads:
        assert owe(catalog, topic, payload) > 0
    await catalog.commits.wait()
    await catalog.close()
    return tmp_path / "streams" / "s" / "0"


def repair(tmp_path: Path) -> list[str]:
    return mend(tmp_path / "streams", ["s"])


async def test_what_was_acknowledged_elsewhere_waits_and_is_in_it_once_it_is_mended(
    hurt: Catalog, opened: Opener, tmp_path: Path
) -> None:
    [topic, *more], _ = split(hurt.get("s"))
    partition = hurt.get("s").partitions[0]
    assert owe(hurt, topic, b"one") > 0
    await hurt.commits.wait()
    assert hurt.commits.failure is None
    with pytest.raises(DamagedError):
        Cursor(partition, partition.end)
    await hurt.close()
    # It waits through restarts of a broker that still cannot open the partition.
    await parked(opened(s=two()), tmp_path, b"two")
    report = StoredStream(tmp_path / "streams", "s").partitions[0].verify()
    assert len(report.problems) == 1
    assert any("parked-1: 2 messages wait" in each for each in report.notes)
    assert len(repair(tmp_path)) == 1
    whole = opened(s=two()).get("s").partitions[0]
    assert whole.damage is None
    assert payloads(whole) == [b"first"] * (1 + len(more)) + [b"one", b"two"]
    assert not list((tmp_path / "streams" / "s" / "0").glob("parked*"))


async def test_who_is_interrupted_while_he_takes_it_goes_on_where_he_was(
    hurt: Catalog, opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hurt.get("s").partitions[0].end
    waiting = [b"%d" % number * 70_000 for number in range(3)]
    for payload in waiting:
        [topic, *_], _ = split(hurt.get("s"))
        owe(hurt, topic, payload)
        await hurt.commits.wait()  # each has a segment
    await hurt.close()
    append = Partition.append

    def fail(self: Partition, *given: Any) -> None:
        if self.end == before + 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", fail)
        with pytest.raises(OSError, match="No space"):
            repair(tmp_path)
    assert not repair(tmp_path)  # the segments are whole
    assert payloads(opened(s=two()).get("s").partitions[0])[before:] == waiting


async def test_what_waits_may_be_damaged_too(hurt: Catalog, opened: Opener, tmp_path: Path) -> None:
    before = hurt.get("s").partitions[0].end
    folder = await parked(hurt, tmp_path, b"lost")
    flip_last(folder / "parked-1")
    await parked(opened(s=two()), tmp_path, b"kept")
    shutil.copytree(tmp_path / "streams", tmp_path / "copy")
    report = StoredStream(tmp_path / "streams", "s").partitions[0].verify()
    assert len(report.problems) == 2
    assert len(repair(tmp_path)) == 2
    assert payloads(opened(s=two()).get("s").partitions[0])[before:] == [b"kept"]
    # Where only the segments are mended the partition is refused until the rest is.
    folder = tmp_path / "copy" / "s" / "0"
    (folder / "parked-1").rename(tmp_path / "elsewhere")
    assert len(mend_partition(folder, "s", 0, two())) == 1
    (tmp_path / "elsewhere").rename(folder / "parked-1")
    assert open_partition(folder, "s", 0, two(), time.time).damage is not None
