"""Random walks of a compacted partition: what readers get, against what a list of all rows says that they should."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from pyarrow import ipc

from tests.vmq.streams.support import Row, plain, put, row
from tests.vmq.streams.walks import COLUMNS, PartitionWalk
from vmq.streams.extents import messages_in
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.segment import Header
from vmq.streams.stored import StoredPartition
from vmq.streams.tidying import compaction
from vmq.streams.tidying.compaction import CompactionNote, compact, read_note

TOPICS = ["a", "a/b", "a/c", "d"]


def left_of(rows: list[Row], note: CompactionNote, by: str = "topic") -> dict[int, Row]:
    """By offset: what compaction leaves, as its description says it, word by word."""
    found = {}
    for offset, each in enumerate(rows):
        newer = [later for later in rows[offset + 1 : note.end] if later[by] == each[by]]
        is_gone = not each["payload"] and each["timestamp"] < note.before
        if offset >= note.end or not each[by] or not (newer or is_gone):
            found[offset] = each
    return found


class CompactionModel(PartitionWalk):
    @initialize(by=st.sampled_from(["topic", "key"]), keys=st.sampled_from([2, 1 << 18]))
    def begin(self, by: str, keys: int) -> None:
        self.by = by
        self.keys = keys
        self.open(compact=True, compact_by=by, retention_age="never")
        self.receipts = 0

    def there(self) -> dict[int, Row]:
        return left_of(self.rows, read_note(self.partition.folder), self.by)

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=12), data=st.data())
    def append(self, topics: list[str], data: st.DataObject) -> None:
        now = int(self.clock.now * 1e6)
        rows = []
        for number, topic in enumerate(topics, len(self.rows)):
            each = row(number, topic, time=now)
            each["key"] = data.draw(st.sampled_from([b"", b"k", b"l"]))
            each["payload"] = data.draw(st.sampled_from([b"", b"p%d" % number]))
            rows.append(each)
        self.receipts += 1
        put(self.partition, rows, True, [(0, f"{0:016x}{self.receipts:020}")])
        self.rows += rows

    @rule(seconds=st.sampled_from([1, 50_000]))
    def pass_time(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def compact(self) -> None:
        with patch.object(compaction, "KEYS", self.keys):
            compact(self.partition)

    @rule()
    def restart(self) -> None:
        self.reopen()
        if self.receipts and self.partition.last_receipt():
            assert self.partition.last_receipt() == f"{0:016x}{self.receipts:020}"

    @rule(
        low=st.floats(0, 1),
        high=st.floats(0, 1),
        limit=st.none() | st.integers(1, 6),
        topic=st.sampled_from([None, "a/#"]),
        far=st.booleans(),
    )
    def read(
        self, low: float, high: float, limit: int | None, topic: str | None, far: bool
    ) -> None:
        latest = self.partition.end
        start, end = sorted(round(at * latest) for at in (low, high))
        reader = self.reader(start, topic, far)
        wanted = self.check_read(reader, start, end, topic, limit)
        if limit is None:
            assert packed(reader, start, end) == wanted

    @rule()
    def read_the_folder(self) -> None:
        there = self.there()
        stored = StoredPartition(self.partition.folder, "s", 0)
        assert [each for span in stored.spans() for each in plain(span.rows)] == [*there.values()]
        assert not stored.verify().problems
        assert len(there) == messages_in(self.partition) == stored.summary().messages


def packed(reader: LogReader, start: int, end: int) -> list[Row]:
    """The rows of a packed read, as its clients make them."""
    found = []
    for chunk in reader.read_packed(start, end):
        rows = ipc.open_stream(chunk.stream).read_all().slice(chunk.skip, chunk.rows)
        assert rows.num_rows == chunk.rows
        if "offset" not in rows.schema.names:
            offsets = pa.array(range(chunk.first, chunk.first + chunk.rows), pa.int64())
            rows = rows.append_column("offset", offsets)
        found += rows.select(COLUMNS).to_pylist()
    return found


CompactionModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCompactionModel = CompactionModel.TestCase


def test_a_header_says_which_segments_are_compacted(tmp_path: Path) -> None:
    header = Header("s", 0)
    for each in (header, header.compacted, Header("other", 0)):
        path = tmp_path / "segment"
        path.write_bytes(each.raw + b"more")
        with path.open("rb") as file:
            is_own = each.stream == "s"
            assert header.size_in(file.fileno()) == (len(each.raw) if is_own else None)
            assert header.of(file.fileno()) is (each if is_own else header)
