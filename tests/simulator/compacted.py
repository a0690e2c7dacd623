"""Groups whose logs are compacted, in real segments, while everything befalls them."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tests.simulator.files import FileLog
from tests.simulator.groups import GROUP
from tests.simulator.segments import SimLog
from tests.simulator.upheaval import Upheaval
from tests.vmq.streams.support import Row, batch_of, plain, row
from tests.vmq.streams.test_compaction_model import left_of
from vmq.streams.log.cursor import LogReader
from vmq.streams.replica.tidying import final_of, tidy
from vmq.streams.tidying.compaction import CompactionNote, read_note
from vmq_cluster.raft.messages import ROWS, Batch, Mark

_BEGIN = 1_700_000_000_000_000


def rows_of(offset: int, marks: Sequence[Mark]) -> list[Row]:
    """What producers write: few topics, and marks of compaction among them."""
    numbers = [each for mark in marks for each in range(mark.first, mark.end)]
    return [
        row(at, f"t/{number % 5}", b"x" if number % 4 else b"", time=_BEGIN + at)
        for at, number in enumerate(numbers, offset)
    ]


class CompactedLog(FileLog):
    """The log in memory stays as it was written; of the segments it is known what each batch was made of."""

    options: ClassVar[dict[str, Any]] = {"compact": True}
    known: ClassVar[dict[tuple[int, int], Batch]] = {}

    def make(
        self, offset: int, term: int, kind: int, marks: tuple[Mark, ...], rows: Sequence[Any]
    ) -> Batch:
        given = [batch_of(rows_of(offset, marks))] if kind == ROWS else rows
        return self.real.make(offset, term, kind, marks, given)

    def append(self, batches: Sequence[Batch]) -> None:
        super().append(batches)
        self.known.update({(each.offset, each.term): each for each in batches})

    def read(self, offset: int, limit: int) -> list[Batch]:
        return (
            super().read(offset, limit)
            if offset >= self.real.loose
            else self.real.read(offset, limit)
        )

    def _reload(self) -> None:
        self.batches = []
        at = self.base = self.real.first
        while at < self.real.end:
            for batch in self.real.read(at, 1 << 30):
                while at < batch.end:
                    each = batch if batch.kind != ROWS else self.known[at, batch.term]
                    self.batches.append(each)
                    at = each.end
        self.starts = SimLog("fsync", self.batches).starts


class CompactedUpheaval(Upheaval):
    """What happens besides: leaders decide, and each replica does it when it comes to it."""

    def _log(self, name: str) -> CompactedLog:
        log = self.sim.nodes[name].logs[GROUP]
        assert isinstance(log, CompactedLog)
        return log

    def decide(self) -> None:
        leader = self.sim.leader()
        final = final_of(self._log(leader).real) if leader else []
        if final:
            end = self.random.choice(final).end
            before = _BEGIN + end // 2
            self.sim.do(leader, lambda group: group.compact(end, before, self.sim.now))

    def tidy(self) -> None:
        running = [each for each in self.sim.running() if GROUP in self.sim.nodes[each].logs]
        if running:
            self.tidy_at(self.random.choice(running))

    def tidy_at(self, name: str) -> CompactionNote:
        partition = self._log(name).partition
        partition.decided = CompactionNote(*self.sim.group(name).compaction)
        tidy(partition, lambda: False)
        return partition.decided

    def check_left(self) -> int:
        """All replicas have left what they should, and the same; returns how many rows have gone."""
        written: list[Row] = []
        for batch in self.sim.verdict.groups[GROUP].batches:
            none = [{"topic": "", "payload": b"none", "timestamp": 0}] * batch.span
            written += rows_of(batch.offset, batch.marks) if batch.kind == ROWS else none
        gone = 0
        for name in self.members().all:
            partition = self._log(name).partition
            wanted = self.tidy_at(name)
            note = read_note(partition.folder)
            is_gone = (
                wanted.end <= partition.kept
            )  # retention has taken all that was to be compacted
            assert is_gone or note == wanted, "what is decided is done"
            expected = [
                (offset, each)
                for offset, each in left_of(written, wanted).items()
                if partition.earliest <= offset < partition.end and each["topic"]
            ]
            found: list[tuple[int, Row]] = []
            for chunk in LogReader(partition).read(partition.earliest):
                offsets = chunk.rows.column("offset").to_pylist()
                found += zip(offsets, plain(chunk.rows), strict=True)
            assert found == expected, f"{name} has other rows left"
            kept = [each for each in written[partition.earliest : partition.end] if each["topic"]]
            gone += len(kept) - len(found)
        return gone
