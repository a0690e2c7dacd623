"""Random walks: appends, rolls, merges, retention, restarts and readers, against a list."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.vmq.streams.support import Row, plain, put, row
from tests.vmq.streams.walks import PartitionWalk
from vmq.streams.far import FarCursor
from vmq.streams.log.cursor import Cursor
from vmq.streams.log.errors import OutOfRangeError


class LogModel(PartitionWalk):
    @initialize(
        compression=st.sampled_from(["none", "lz4", "zstd"]), room=st.sampled_from([0, 20_000])
    )
    def begin(self, compression: str, room: int) -> None:
        self.open(compression=compression, retention_bytes=room, retention_age="3d")
        self.life = self.receipts = 0
        self.cursors: list[Cursor] = []

    def more(self, count: int, topic: str) -> list[Row]:
        first = len(self.rows)
        now = int(self.clock.now * 1e6)
        return [row(number, topic, time=now) for number in range(first, first + count)]

    @rule(count=st.integers(1, 30), topic=st.sampled_from(["a", "a/b", "c/d/e"]))
    def append(self, count: int, topic: str) -> None:
        rows = self.more(count, topic)
        put(self.partition, rows)
        self.rows += rows

    def receipt(self, number: int) -> str:
        return f"{self.life:016x}{number:020}"

    @rule(count=st.integers(1, 30))
    def append_with_receipts(self, count: int) -> None:
        rows = self.more(count, "a/r")
        first = self.receipts + 1
        put(
            self.partition,
            rows,
            True,
            [(each, self.receipt(first + each)) for each in range(count)],
        )
        self.rows += rows
        self.receipts += count

    @rule(count=st.integers(1, 5))
    def append_in_vain(self, count: int) -> None:
        given = [(0, self.receipt(self.receipts + 1))]
        put(self.partition, self.more(count, "x"), False, given)
        self.partition.rollback()

    @rule(seconds=st.sampled_from([-5, 1, 3600, 90_000]))
    def pass_time(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def maintain(self) -> None:
        if self.partition.is_due():
            self.partition.roll()
        self.partition.retain()

    @rule()
    def restart(self) -> None:
        self.close_cursors()
        self.reopen()
        if self.receipts and self.partition.earliest < self.partition.end:
            assert self.partition.last_receipt() == self.receipt(self.receipts)
        self.life += 1
        self.receipts = 0

    @rule(at=st.floats(0, 1), far=st.booleans())
    def open_cursor(self, at: float, far: bool) -> None:
        earliest, end = self.partition.earliest, self.partition.end
        start = earliest + int(at * (end - earliest))
        if len(self.cursors) < 3:
            near = Cursor(self.partition, start)
            self.cursors.append(FarCursor(self.far(start), start) if far else near)

    @precondition(lambda self: self.cursors)
    @rule(which=st.integers(0, 2))
    def advance(self, which: int) -> None:
        cursor = self.cursors[which % len(self.cursors)]
        at = cursor.offset
        try:
            span = cursor.read(None)
        except OutOfRangeError as error:
            assert at < self.partition.earliest == error.earliest
            self.cursors.remove(cursor)
            return
        if span is None:
            assert at == cursor.partition.end
        else:
            assert span.offset <= at < cursor.offset
            assert plain(span.rows) == self.rows[span.offset : cursor.offset]

    @rule(
        low=st.floats(0, 1),
        high=st.floats(0, 1),
        limit=st.none() | st.integers(0, 20),
        far=st.booleans(),
    )
    def read(self, low: float, high: float, limit: int | None, far: bool) -> None:
        earliest, latest = self.partition.earliest, self.partition.end
        start, end = sorted(earliest + round(at * (latest - earliest)) for at in (low, high))
        self.check_read(self.reader(start, "a/#", far), start, end, "a/#", limit)

    @invariant()
    def offsets_never_change(self) -> None:
        assert self.partition.end == len(self.rows)
        assert 0 <= self.partition.earliest <= self.partition.end
        for offset in (self.partition.earliest - 1, self.partition.end + 1):
            with pytest.raises(OutOfRangeError):
                Cursor(self.partition, offset)

    def close_cursors(self) -> None:
        for cursor in self.cursors:
            cursor.close()
        self.cursors.clear()

    def close(self) -> None:
        self.close_cursors()
        super().close()


LogModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLogModel = LogModel.TestCase
