"""What docs/streams.md shows works."""

import tomllib
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.pages import blocks, ran
from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.support import Clock, make, options, put, row, rows_from
from vmq.config.listeners import problems_of
from vmq.config.options import ListenerOptions, StreamOptions
from vmq.config.streams import problems_of as flaws_of
from vmq.streams.flight.service import StreamServer
from vmq.streams.log.partition import Partition
from vmq.streams.tidying.janitor import Janitor

PAGE = Path(__file__).parents[3] / "docs" / "streams.md"


def test_the_options_are_valid() -> None:
    found, compacted, archived, clustered, replicated = map(tomllib.loads, blocks(PAGE, "toml"))
    for each in (compacted["streams"]["states"], archived["streams"]["sensors"]):
        assert list(flaws_of(msgspec.convert(each, StreamOptions))) == []
    assert msgspec.convert(replicated["streams"]["orders"], StreamOptions).replicas == 3
    assert msgspec.convert(found["streams"]["sensors"], StreamOptions).partitions == 4
    listener = msgspec.convert(clustered["listeners"]["flight"], ListenerOptions)
    assert list(problems_of(listener, listener.endpoint)) == []


def test_the_programs_run(tmp_path: Path) -> None:
    running = Running(tmp_path / "streams", sensors=options(filters=["sensors/#"], key="topic"))
    for number in range(6):
        running.append(f"sensors/{number % 2}/temp", b"20.5")
    server = StreamServer(running.catalog)
    try:
        read = ran(PAGE, "table = reader", {"DATA_DIR": str(tmp_path)})
        assert read["table"].num_rows == 6
        found = ran(PAGE, "duckdb", {"8815": str(server.port)})["found"]
        assert found == [("sensors/0/temp", 3), ("sensors/1/temp", 3)]
    finally:
        server.close()
        running.close()


def test_the_check_of_a_segment_finds_each_flipped_bit(tmp_path: Path) -> None:
    partition = make(tmp_path)
    for number in range(3):
        put(partition, rows_from(number * 2, 2))
    raw = partition.active.path.read_bytes()
    partition.close()
    names = ran(PAGE, "crc32c")
    check = names["check"]
    check(raw)
    check(raw + names["END"])
    begin = 8 + int.from_bytes(raw[4:8], "little")
    for at in range(begin, len(raw), 7):
        with pytest.raises(ValueError, match=r"^(no batch|the batch at byte)"):
            check(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])


def test_the_archive_is_read_as_a_table(tmp_path: Path) -> None:
    """Of two streams and partitions, by days, as it is written."""
    archive, begin = tmp_path / "archive", 1_774_000_000  # 2026-03-20
    kept = options(filters=["a/#"], retention_age="1h", archive=archive.as_uri())
    for name, number in (("sensors", 0), ("sensors", 1), ("others", 0)):
        clock = Clock(begin)
        partition = Partition(tmp_path / name / str(number), name, number, kept, clock)
        for day in range(3):
            now = (begin + 86_400 * day) * 1_000_000
            put(partition, [row(each, time=now + each) for each in range(5)])
            partition.roll()
        clock.now += 86_400 * 5
        Janitor([partition].copy).tidy()
        partition.close()
    here = {"/srv/history": str(archive), "2026-03-01": "2026-03-21"}
    history = ran(PAGE, "/srv/history", here)["history"]
    assert sorted(set(history.column("date").to_pylist())) == ["2026-03-21", "2026-03-22"]
    assert history.num_rows == 2 * 2 * 5
    assert pq.read_table(archive, partitioning=None).num_rows == 3 * 3 * 5


@pytest.mark.parametrize("path", ["stream.json", "0/checkpoint", "0/00000000000000000000.arrows"])
def test_the_files_are_where_it_says(tmp_path: Path, path: str) -> None:
    running = Running(tmp_path / "streams", sensors=options(filters=["sensors/#"]))
    running.close()
    assert (tmp_path / "streams" / "sensors" / path).is_file()
    assert f"DATA_DIR/streams/sensors/{path}" in PAGE.read_text(encoding="utf-8")
