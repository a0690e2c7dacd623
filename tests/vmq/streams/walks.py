"""What random walks of a partition have in common: its segments come and go, and readers see what a list says."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.vmq.streams.support import Clock, Row, make
from vmq.streams.far import FarCursor, FarLog, locate
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.merging import join, merge
from vmq.streams.times import offset_at

COLUMNS = ["offset", "topic", "payload"]


class PartitionWalk(RuleBasedStateMachine):
    """`rows` is everything that was ever written; an offset is a place in it."""

    def open(self, **options: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.options = options
        self.partition = make(Path(self.folder.name), self.clock, **options)
        self.rows: list[Row] = []

    def reopen(self) -> None:
        self.partition.close()
        self.partition = make(Path(self.folder.name), self.clock, **self.options)

    def there(self) -> dict[int, Row]:
        """By offset: the rows that readers are to find."""
        return {at: self.rows[at] for at in range(self.partition.earliest, self.partition.end)}

    @precondition(lambda self: self.partition.active.index.frames)
    @rule()
    def roll(self) -> None:
        self.partition.roll()

    @precondition(lambda self: self.partition.unmerged)
    @rule()
    def merge(self) -> None:
        merge(self.partition, self.partition.unmerged.pop())

    @rule()
    def join(self) -> None:
        join(self.partition)

    def far(self, start: int) -> FarLog:
        """The partition, as another process sees it that begins to read now."""
        begin = locate(self.partition, start)
        return FarLog("s", 0, begin, lambda offset: locate(self.partition, offset))

    def reader(self, start: int, topic: str | None, far: bool) -> LogReader:
        if far:
            return LogReader(self.far(start), COLUMNS, topic, FarCursor)
        return LogReader(self.partition, COLUMNS, topic)

    def check_read(
        self, reader: LogReader, start: int, end: int, topic: str | None, limit: int | None
    ) -> list[Row]:
        """Reads what the list says, and no further than that; returns all that is there without the limit."""
        wanted = [
            {"offset": offset, "topic": each["topic"], "payload": each["payload"]}
            for offset, each in self.there().items()
            if start <= offset < end and (topic is None or each["topic"].startswith("a"))
        ]
        chunks = list(reader.read(start, end, limit))
        assert [each for chunk in chunks for each in chunk.rows.to_pylist()] == wanted[:limit]
        if limit is None or len(wanted) < limit:
            assert chunks[-1].next == end
        elif limit:
            # The next read finds the rest: what lies between may be passed over, or not yet.
            rest = [each["offset"] for each in wanted[limit:]]
            assert wanted[limit - 1]["offset"] < chunks[-1].next <= min([*rest, end])
        return wanted

    @rule(back=st.integers(-10, 200_000))
    def look_up_a_time(self, back: int) -> None:
        time = int((self.clock.now - back) * 1e6)
        wanted = (offset for offset, each in self.there().items() if each["timestamp"] >= time)
        assert offset_at(self.partition, time) == next(wanted, self.partition.end)

    def close(self) -> None:
        self.partition.close()

    def teardown(self) -> None:
        if hasattr(self, "partition"):
            self.close()
            self.folder.cleanup()
