"""The log of a simulated replica: segments on a disk that forgets, tears and flips."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any
from zlib import crc32

import msgspec

from vmq_cluster.raft.messages import BLANK, ROWS, STATE, Batch, Mark, SealedFile
from vmq_cluster.raft.state import LogState

_file = msgspec.msgpack.Decoder(list[Batch])

#: Batches of a segment; sealed segments that are still read batch by batch.
FULL = 12
LOOSE = 1


def is_blank(batches: Sequence[Batch]) -> bool:
    """Whether these have the place of what was given up."""
    return all(
        each.kind == BLANK or (each.kind == ROWS and not each.marks and not each.body)
        for each in batches
    )


class SimLog:
    """What `vmq_cluster.raft.log.Log` asks for, and what may befall it. `durability` is memory, os or fsync."""

    def __init__(self, durability: str, batches: Sequence[Batch] = ()) -> None:
        self.durability = durability
        self.batches: list[Batch] = list(batches)
        self.base = 0
        self.committed = 0
        self.damage: list[tuple[int, int]] = []
        #: What is on the disk itself, and what the system at least has: the process, or the power, may fail.
        self.durable = self.end
        self.written = self.end
        #: Rises when something is cut: a sync that began before says nothing about what came after.
        self.cuts = 0
        self.aside: dict[SealedFile, bytes] = {}
        #: Where segments begin.
        self.starts = [batch.offset for batch in batches if batch.kind == STATE]

    # --- the port

    @property
    def first(self) -> int:
        return self.batches[0].offset if self.batches else self.base

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.base

    @property
    def safe(self) -> int:
        return self.durable if self.durability == "fsync" else self.end

    @property
    def is_full(self) -> bool:
        return bool(self.starts) and self.end - self.starts[-1] >= FULL

    @property
    def loose(self) -> int:
        return self.starts[max(0, self._count() - LOOSE)] if self.starts else self.base

    def make(
        self, offset: int, term: int, kind: int, marks: tuple[Mark, ...], rows: Sequence[Any]
    ) -> Batch:
        span = sum(mark.count for mark in marks) or 1
        return Batch(offset, span, term, kind, marks, b"".join(rows))

    def blank(self, first: int, end: int, term: int) -> Batch:
        return Batch(first, end - first, term, ROWS, (), b"")

    def append(self, batches: Sequence[Batch]) -> None:
        assert batches[0].offset == self.end, (batches[0].offset, self.end)
        is_new = not self.batches
        self.batches.extend(batches)
        if is_new and self.durability != "fsync":  # what it begins with is never forgotten
            self.durable = self.written = self.end
        self.starts += [batch.offset for batch in batches if batch.kind == STATE]

    def cut(self, offset: int) -> None:
        self.cut_at(offset)

    def read(self, offset: int, limit: int) -> list[Batch]:
        found = []
        for batch in self.batches[self._holding(offset) :]:
            if self._is_damaged(batch) or limit <= 0:
                break
            found.append(batch)
            limit -= 100 + len(batch.body)
        return found

    def gap(self, offset: int) -> int:
        return next((end for first, end in self.damage if first <= offset < end), offset)

    def replay(self, end: int) -> Iterator[Batch]:
        at = self._at(end)
        begins = [index for index in self._begins() if index < at]
        assert begins or not at, "a log begins with its state"
        return iter(self.batches[begins[-1] : at] if begins else [])

    def commit(self, end: int) -> None:
        self.committed = end

    def trim(self, first: int) -> None:
        begins = self._begins()
        gone = [index for index in begins[:-1] if self.batches[index].offset < first]
        gone = [index for index in gone if self._next_begin(index) <= first]
        if gone:
            keep = begins[len(gone)]
            del self.batches[:keep]
            self.base = self.first
            del self.starts[: len(gone)]
            self.damage = [each for each in self.damage if each[1] > self.first]

    def files(self, offset: int) -> list[SealedFile]:
        return [file for file, _ in self._sealed() if file.end > offset or offset < self.first]

    def read_file(self, file: SealedFile, position: int, limit: int) -> bytes:
        for each, batches in self._sealed():
            if each == file and not any(map(self._is_damaged, batches)):
                return msgspec.msgpack.encode(batches)[position : position + limit]
        return b""

    def write_aside(self, file: SealedFile, position: int, data: bytes) -> int:
        there = self.aside.get(file, b"")
        if position <= len(there):
            there = there[:position] + data + there[position + len(data) :]
        self.aside = {file: there}
        return len(there)

    def install(self, file: SealedFile) -> bool:
        raw = self.aside.pop(file)
        if crc32(raw).to_bytes(4, "big") != file.digest:
            return False
        del self.batches[self._at(file.first) :]
        if not self.batches:
            self.base = file.first
        assert self.end == file.first
        self._changed(file.first)
        self.append(_file.decode(raw))
        self.durable = self.written = self.end
        self.damage = [each for each in self.damage if each[1] <= file.first]
        return True

    def reset(self, offset: int) -> None:
        self.batches = []
        self.base = offset
        self.damage = []
        self._changed(offset)
        self.durable = self.written = offset

    def mend(self, batches: Sequence[Batch]) -> bool:
        before = len(self.damage)
        for first, end in list(self.damage):
            here = [each for each in batches if first < each.end and each.offset < end]
            if not here or first < here[0].offset or here[-1].end < end:
                continue
            at, behind = self._at(here[0].offset), self._at(here[-1].end)
            own = self.batches[at:behind]
            assert own == here or is_blank(here) or is_blank(own)
            if (own[0].offset, own[-1].end) == (here[0].offset, here[-1].end):
                self.batches[at:behind] = here
                self.damage = [
                    each
                    for each in self.damage
                    if each[1] <= here[0].offset or here[-1].end <= each[0]
                ]
        return len(self.damage) < before

    # --- what its host does

    def flushed(self, upto: int, cuts: int) -> bool:
        """A sync that began when the log ended there, and had been cut so often, is done."""
        if cuts == self.cuts and upto > self.durable:
            self.durable = min(upto, self.end)
            self.written = max(self.written, self.durable)
            return True
        return False

    def fail(self, random: Random, power: bool) -> bool:
        """The process dies, or the machine; returns whether this log may have forgotten something that was safe."""
        kept = self.durable if power else self.written if self.durability == "memory" else self.end
        ends = [batch.end for batch in self.batches if batch.end >= kept]
        if ends:
            self.cut_at(random.choice(ends))
        self._begin_again()
        if self.durability == "memory":
            return True
        return power and self.durability == "os"

    def clean(self) -> None:
        """It is closed in order."""
        self._begin_again()
        self.durable = self.written = self.end

    def _begin_again(self) -> None:
        """No file says where a log without any was to begin."""
        if not self.batches:
            self.base = self.committed = 0
            self._changed(0)

    def flip(self, random: Random) -> bool:
        """A bit flips; returns whether the log lost a part: in the last segments it is cut off, below it is a range."""
        begins = self._begins()
        if len(begins) < 2:
            return False
        index = random.randrange(1, len(self.batches))
        batch = self.batches[index]
        solid = self.solid
        if batch.end <= solid and index not in begins:
            if (batch.offset, batch.end) not in self.damage:
                self.damage.append((batch.offset, batch.end))
            return False
        if batch.offset < solid:
            return False
        self.cut_at(batch.offset)
        return True

    @property
    def solid(self) -> int:
        """Up to here damage is a range, and not forgotten."""
        return self.starts[max(0, self._count() - 1)] if self.starts else self.base

    def cut_at(self, offset: int) -> None:
        """What lies behind is lost; the segment that is the last then must be whole."""
        del self.batches[self._at(offset) :]
        self._changed(self.end)
        while self.batches and self.damage:
            begin = self.starts[-1]
            first = min((each for each in self.damage if each[1] > begin), default=None)
            if first is None:
                break
            del self.batches[self._at(first[0]) :]
            self._changed(self.end)
            self.damage = [each for each in self.damage if each[1] <= self.end]
        self.damage = [each for each in self.damage if each[1] <= self.end]
        self.committed = min(self.committed, self.end)

    def _changed(self, end: int) -> None:
        self.cuts += 1
        self.starts = [batch.offset for batch in self.batches if batch.kind == STATE]
        self.durable = min(self.durable, end)
        self.written = min(self.written, end)

    # --- places

    def _at(self, offset: int) -> int:
        """The index of the batch that begins there, or behind."""
        return bisect_right(self.batches, offset - 1, key=lambda batch: batch.offset)

    def _holding(self, offset: int) -> int:
        return max(0, bisect_right(self.batches, offset, key=lambda batch: batch.offset) - 1)

    def _begins(self) -> list[int]:
        return [self._at(offset) for offset in self.starts]

    def _next_begin(self, index: int) -> int:
        return next(start for start in self.starts if start > self.batches[index].offset)

    def _count(self) -> int:
        """How many segments are sealed."""
        return max(0, bisect_right(self.starts, self.committed) - 1)

    def _is_damaged(self, batch: Batch) -> bool:
        return any(first < batch.end and batch.offset < end for first, end in self.damage)

    def _sealed(self) -> list[tuple[SealedFile, list[Batch]]]:
        begins = self._begins()
        found = []
        for here, there in list(pairwise(begins))[: self._count()]:
            batches = self.batches[here:there]
            raw = msgspec.msgpack.encode(batches)
            first, last = batches[0], batches[-1]
            before = LogState.of([first]).terms.at(first.offset - 1)
            digest = crc32(raw).to_bytes(4, "big")
            file = SealedFile(first.offset, last.end, len(raw), digest, last.term, before)
            found.append((file, batches))
        return found
