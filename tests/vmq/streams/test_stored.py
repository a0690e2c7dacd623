from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.support import options, put, row
from vmq.streams.log.errors import DamagedError, StreamError, UnknownStreamError
from vmq.streams.log.frame import END
from vmq.streams.log.partition import CHECKPOINT
from vmq.streams.log.schema import READ
from vmq.streams.log.segment import index_path
from vmq.streams.stored import StoredStream, export_parquet, find_folder, names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stream of two partitions, of 10 messages in two segments each, or about so."""
    folder = tmp_path / "streams"
    running = Running(folder, s=options(filters=["#"], partitions=2, key="topic"))
    for number in range(20):
        running.append(f"a/{number % 4}", b"%d" % number)
        if number == 9:
            for partition in running.catalog.get("s").partitions:
                running.catalog.commits.writer.call(partition.roll).result(30)
    running.close()
    return folder


def segments(folder: Path) -> list[Path]:
    """Those of the partition that has two."""
    return sorted((folder / "s" / "0").glob("*.arrows"))


def problems(folder: Path) -> list[str]:
    return [each for report in StoredStream(folder, "s").verify() for each in report.problems]


def test_all_is_well(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    stream = StoredStream(folder, "s")
    reports = stream.verify()
    assert [(report.problems, report.notes) for report in reports] == [([], [])] * 2
    assert sum(report.end for report in reports) == 20
    assert [vars(each.summary()) for each in stream.partitions] == [vars(each) for each in reports]
    assert len(list(stream.rows())) >= 2
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_broker_may_run_meanwhile(tmp_path: Path) -> None:
    running = Running(tmp_path / "streams", s=options(filters=["#"]))
    for number in range(5):
        running.append("a", b"%d" % number)
        assert problems(tmp_path / "streams") == []
        (rows,) = StoredStream(tmp_path / "streams", "s").rows(["offset"])
        assert rows.num_rows == number + 1
    running.close()


def test_what_is_not_noted_as_written_is_not_read(tmp_path: Path) -> None:
    running = Running(tmp_path / "streams", s=options(filters=["#"]))
    running.append("a", b"1")
    partition = running.catalog.get("s").partitions[0]
    put(partition, [row(2)], publish=False)
    (rows,) = StoredStream(tmp_path / "streams", "s").rows(["payload"])
    assert rows.to_pylist() == [{"payload": b"1"}]
    partition.rollback()
    running.close()


def test_a_flipped_bit_is_found_wherever_it_is(folder: Path) -> None:
    for path in segments(folder):
        raw = path.read_bytes()
        start = len(raw) // 2
        for at in range(start, len(raw) - len(END), 41):
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 2]) + raw[at + 1 :])
            (problem,) = problems(folder)
            assert problem.startswith(f"{path} is damaged at byte ")
        path.write_bytes(raw)
    assert problems(folder) == []


def test_what_is_missing_is_found(folder: Path) -> None:
    sealed, active = segments(folder)
    raw = sealed.read_bytes()
    sealed.write_bytes(raw[: -len(END)])
    assert "the mark of the stream's end is missing" in problems(folder)[0]
    sealed.unlink()
    assert problems(folder) == [], "the retention may have taken it"
    sealed.write_bytes(raw)
    raw = active.read_bytes()
    active.write_bytes(raw[:-10])
    assert "the file ends within a message's body" in problems(folder)[0]
    active.unlink()
    assert problems(folder) == [f"{active}: the file is missing"]
    active.with_name("00000000000000000999.arrows").write_bytes(raw)
    assert "to 998 are in no segment" in problems(folder)[0]
    for path in segments(folder):
        path.unlink()
    assert "there is no segment" in problems(folder)[0]


def test_what_a_start_mends_is_a_note(folder: Path) -> None:
    sealed, active = segments(folder)
    index_path(sealed).unlink()
    with active.open("ab") as file:
        file.write(b"\xff\xff\xff\xff\x10\x03\0\0t")
    (report, _) = StoredStream(folder, "s").verify()
    assert report.problems == []
    assert len(report.notes) == 2
    assert "a torn tail of 9 bytes" in report.notes[1]
    (folder / "s" / "0" / CHECKPOINT).unlink()
    (report, _) = StoredStream(folder, "s").verify()
    assert report.problems == []
    assert len(report.notes) == 3


def test_an_export_has_every_row_or_is_not_there(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    stream = StoredStream(folder, "s")
    assert export_parquet([stream], path) == 20
    table = pq.read_table(path)
    assert table.schema.equals(READ)
    assert sorted(int(each) for each in table.column("payload").to_pylist()) == list(range(20))
    assert export_parquet([stream], path, ["payload"], "+/3") == 5
    assert pq.read_table(path).column("payload").to_pylist() == [b"3", b"7", b"11", b"15", b"19"]
    path.unlink()
    (sealed, _) = segments(folder)
    raw = sealed.read_bytes()
    sealed.write_bytes(raw[:-20] + b"x" + raw[-19:])
    with pytest.raises(DamagedError):
        export_parquet([stream], path)
    with pytest.raises(StreamError, match="there is no column 'x'"):
        export_parquet([stream], path, ["x"])
    assert not path.exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_folders_and_names(folder: Path, tmp_path: Path) -> None:
    assert find_folder(tmp_path) == folder
    (folder / "s").rename(folder / ".deleted-s-1")
    assert names(folder) == []
    (folder / ".deleted-s-1").rename(folder / "s")
    assert names(folder) == ["s"]
    assert names(tmp_path / "nowhere") == []
    with pytest.raises(StreamError, match="there are no streams in"):
        find_folder(folder)
    with pytest.raises(UnknownStreamError, match="there is no stream 'x'; there are: s"):
        StoredStream(folder, "x")
