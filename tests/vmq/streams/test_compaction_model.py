"""Random walks of a compacted partition: what readers get, against what a list of all rows says that they should."""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyarrow import ipc

from tests.vmq.streams.support import Clock, Row, make, plain, put, row
from vmq.streams.extents import messages_in
from vmq.streams.far import FarCursor, FarLog, locate
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.merging import join, merge
from vmq.streams.log.segment import Header
from vmq.streams.stored import StoredPartition
from vmq.streams.tidying import compaction
from vmq.streams.tidying.compaction import CompactionNote, compact, read_note
from vmq.streams.times import offset_at

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


class CompactionModel(RuleBasedStateMachine):
    """`rows` is everything that was ever written; an offset is a place in it."""

    @initialize(by=st.sampled_from(["topic", "key"]), keys=st.sampled_from([2, 1 << 18]))
    def begin(self, by: str, keys: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.by = by
        self.keys = keys
        self.options: dict[str, Any] = {
            "compact": True,
            "compact_by": by,
            "retention_age": "never",
        }
        self.partition = make(Path(self.folder.name), self.clock, **self.options)
        self.rows: list[Row] = []
        self.receipts = 0

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

    @precondition(lambda self: self.partition.active.index.frames)
    @rule()
    def roll(self) -> None:
        self.partition.roll()

    @rule()
    def compact(self) -> None:
        with patch.object(compaction, "KEYS", self.keys):
            compact(self.partition)

    @precondition(lambda self: self.partition.unmerged)
    @rule()
    def merge(self) -> None:
        merge(self.partition, self.partition.unmerged.pop())

    @rule()
    def join(self) -> None:
        join(self.partition)

    @rule()
    def restart(self) -> None:
        self.partition.close()
        self.partition = make(Path(self.folder.name), self.clock, **self.options)
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
        columns = ["offset", "topic", "payload"]
        reader = LogReader(self.partition, columns, topic)
        if far:
            begin = locate(self.partition, start)
            log = FarLog("s", 0, begin, lambda offset: locate(self.partition, offset))
            reader = LogReader(log, columns, topic, FarCursor)
        there = left_of(self.rows, read_note(self.partition.folder), self.by)
        wanted = [
            {"offset": offset, "topic": each["topic"], "payload": each["payload"]}
            for offset, each in there.items()
            if start <= offset < end and (topic is None or each["topic"].startswith("a"))
        ]
        chunks = list(reader.read(start, end, limit))
        assert [each for chunk in chunks for each in chunk.rows.to_pylist()] == wanted[:limit]
        rest = [each["offset"] for each in wanted[limit:]] if limit is not None else []
        if limit is None or len(wanted) < limit:
            assert chunks[-1].next == end
        else:
            assert wanted[limit - 1]["offset"] < chunks[-1].next <= min([*rest, end])
        if limit is None:
            assert packed(reader, start, end) == wanted

    @rule(back=st.integers(-10, 200_000))
    def look_up_a_time(self, back: int) -> None:
        time = int((self.clock.now - back) * 1e6)
        there = left_of(self.rows, read_note(self.partition.folder), self.by)
        wanted = (offset for offset, each in there.items() if each["timestamp"] >= time)
        assert offset_at(self.partition, time) == next(wanted, self.partition.end)

    @rule()
    def read_the_folder(self) -> None:
        there = left_of(self.rows, read_note(self.partition.folder), self.by)
        stored = StoredPartition(self.partition.folder, "s", 0)
        assert [each for span in stored.spans() for each in plain(span.rows)] == [*there.values()]
        assert not stored.verify().problems
        assert len(there) == messages_in(self.partition) == stored.summary().messages

    def teardown(self) -> None:
        if hasattr(self, "partition"):
            self.partition.close()
            self.folder.cleanup()


def packed(reader: LogReader, start: int, end: int) -> list[Row]:
    """The rows of a packed read, as its clients make them."""
    found = []
    for chunk in reader.read_packed(start, end):
        rows = ipc.open_stream(chunk.stream).read_all().slice(chunk.skip, chunk.rows)
        assert rows.num_rows == chunk.rows
        if "offset" not in rows.schema.names:
            offsets = pa.array(range(chunk.first, chunk.first + chunk.rows), pa.int64())
            rows = rows.append_column("offset", offsets)
        found += rows.select(["offset", "topic", "payload"]).to_pylist()
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
