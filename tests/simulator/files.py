"""The log of a simulated replica on real files, beside the one that the simulator has in memory."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

from tests.simulator.segments import SimLog
from tests.vmq.streams.support import batch_of, options, row
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.messages import ROWS, STATE, Batch, Mark, SealedFile

_ROWS: Final = [row(number, payload=b"x") for number in range(100)]


class FileLog(SimLog):
    """Both logs do everything, and must have the same in the end."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, durability: str, batches: Sequence[Batch] = ()) -> None:
        super().__init__(durability, batches)
        self.folder = tempfile.TemporaryDirectory(prefix="vmq-sim-")
        made = options(durability=durability, retention_age="never", **self.options)
        self.partition = ReplicaPartition(Path(self.folder.name), "s", 0, made)
        self.real: ReplicaLog = self.partition.open()
        if batches:
            self.real.append(batches)

    def _compare(self) -> None:
        assert (self.real.first, self.real.end) == (self.first, self.end)

    def _reload(self) -> None:
        """What is in the files is what there is."""
        self.batches = []
        at = self.base = self.real.first
        while at < self.real.end:
            found = self.real.read(at, 1 << 30)
            self.batches += found
            at = found[-1].end
        self.starts = [batch.offset for batch in self.batches if batch.kind == STATE]

    # --- the port

    @property
    def loose(self) -> int:
        return self.real.loose

    def make(
        self, offset: int, term: int, kind: int, marks: tuple[Mark, ...], rows: Sequence[Any]
    ) -> Batch:
        if kind != ROWS:
            return self.real.make(offset, term, kind, marks, rows)
        count = sum(mark.count for mark in marks)
        return self.real.make(offset, term, kind, marks, [batch_of(_ROWS[:count])])

    def append(self, batches: Sequence[Batch]) -> None:
        super().append(batches)
        self.real.append(batches)
        self._compare()

    def cut(self, offset: int) -> None:
        super().cut(offset)
        self.real.cut(offset)
        self._compare()

    def read(self, offset: int, limit: int) -> list[Batch]:
        found = self.real.read(offset, limit)
        begin = self._holding(offset)
        assert found == self.batches[begin : begin + len(found)]
        return found

    def replay(self, end: int) -> Iterator[Batch]:
        return self.real.replay(end)

    def commit(self, end: int) -> None:
        super().commit(end)
        self.real.commit(end)

    def trim(self, first: int) -> None:
        self.real.trim(first)
        if self.real.first != self.first:
            self._reload()

    def files(self, offset: int) -> list[SealedFile]:
        return self.real.files(offset)

    def read_file(self, file: SealedFile, position: int, limit: int) -> bytes:
        return self.real.read_file(file, position, limit)

    def write_aside(self, file: SealedFile, position: int, data: bytes) -> int:
        return self.real.write_aside(file, position, data)

    def install(self, file: SealedFile) -> bool:
        done = self.real.install(file)
        if done:
            self._reload()
            self._changed(file.first)
            self.durable = self.written = self.end
        return done

    def reset(self, offset: int) -> None:
        super().reset(offset)
        self.real.reset(offset)
        self._compare()

    # --- what its host does

    def flushed(self, upto: int, cuts: int) -> bool:
        self.real.sync()
        return super().flushed(upto, cuts)

    def fail(self, random: Random, power: bool) -> bool:
        forgot = super().fail(random, power)
        if self.end < self.real.end:
            self.real.cut(self.end)
        self._reopen(clean=False)
        return forgot

    def clean(self) -> None:
        super().clean()
        self._reopen(clean=True)

    def _reopen(self, *, clean: bool) -> None:
        self.partition.shut(clean=clean)
        self.real = self.partition.open()
        self._compare()
        assert self.real.committed <= self.end
        assert self.real.forgot == (
            self.durability == "memory" and not clean and self.end > self.first
        )
        self.real.mark.clear()  # the simulator has ballots, and what is not in them yet
        self.committed = self.real.committed

    def close(self) -> None:
        """Nothing of it is left."""
        self.partition.shut(clean=False)
        self.folder.cleanup()
