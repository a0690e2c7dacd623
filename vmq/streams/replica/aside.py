"""Sealed segments on their way from one node to another, and the pieces of a segment that is mended."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import crc32c

from vmq.streams.log.columns import within
from vmq.streams.log.copying import SegmentCopy
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import END, BadFrameError, Frame, check, parse, write_options
from vmq.streams.log.index import Index
from vmq.streams.log.recovery import examine
from vmq.streams.log.segment import Header, PlacedFrame, Sealed, SegmentFlawError, walk
from vmq.streams.replica.batches import batch_of, rows_in
from vmq.streams.replica.segment import LooseSegment
from vmq_cluster.raft.messages import Batch, SealedFile
from vmq_cluster.raft.state import LogState

_PIECE: Final = 1 << 20
_SUFFIX: Final = ".part"


def digest_of(fd: int) -> bytes:
    """What tells a file from another one with as many bytes. Raises `OSError`."""
    crc = at = 0
    while data := os.pread(fd, _PIECE, at):
        crc = crc32c.crc32c(data, crc)
        at += len(data)
    return crc.to_bytes(4, "big")


def describe(sealed: Sealed, header: Header) -> SealedFile:
    """A sealed segment, as others are told of it.

    Raises:
        DamagedError: it is not what was written.
        OSError: likewise, or the disk.
    """
    segment = LooseSegment.load(sealed.path, header)
    try:
        if segment.end != sealed.end:
            text = f"it is to end at offset {sealed.end}"
            raise DamagedError(sealed.path, segment.index.size, segment.end, text)
        batches = list(segment.heads(segment.end))
        with segment.file as fd:
            size = os.fstat(fd).st_size
            digest = digest_of(fd)
    finally:
        segment.close()
    first = batches[0]
    before = LogState.of([first]).terms.at(first.offset - 1)
    return SealedFile(sealed.base, sealed.end, size, digest, batches[-1].term, before)


class FilesAside:
    """The one file of another node that is being fetched; what is there of it outlives a restart.

    Args:
        folder: the partition's.
        header: the partition's.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self._folder = folder
        self._header = header

    def _path(self, file: SealedFile) -> Path:
        return self._folder / f"{file.first:020}-{file.size}-{file.digest.hex()[:32]}{_SUFFIX}"

    def write(self, file: SealedFile, position: int, data: bytes) -> int:
        """Keeps a piece; returns how much of the file is there, from its beginning. Raises `OSError`."""
        path = self._path(file)
        self.clear(but=path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            there = os.fstat(fd).st_size
            if data and position <= there:
                os.pwrite(fd, data, position)
                there = max(there, position + len(data))
        finally:
            os.close(fd)
        return there

    def take(self, file: SealedFile) -> Path | None:
        """The whole file, checked and on the disk; None if it was not good: then it is gone. Raises `OSError`."""
        path = self._path(file)
        with path.open("r+b") as opened:
            fd = opened.fileno()
            good = os.fstat(fd).st_size == file.size and digest_of(fd) == file.digest
            if good:
                try:
                    good = examine(fd, path, file.first, self._header).end == file.end
                except DamagedError:
                    good = False
            if good:
                try:
                    os.fsync(fd)
                except OSError:
                    path.unlink()  # the next sync would say nothing of it: it is fetched anew
                    raise
                return path
        path.unlink()
        return None

    def clear(self, but: Path | None = None) -> None:
        """Nothing is fetched any more, or only this."""
        for each in self._folder.glob("*" + _SUFFIX):
            if each != but:
                each.unlink(missing_ok=True)


class Digests:
    """Sealed segments, as others are told of them: each is read for that once."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._known: dict[int, SealedFile] = {}

    def of(self, sealed: Sealed) -> SealedFile:
        """What others are told. Raises `OSError`, `DamagedError`."""
        known = self._known.get(sealed.inode)
        if known is None:
            self._known[sealed.inode] = known = describe(sealed, self._header)
        return known

    def named(
        self, segments: Iterable[Sealed], note: Callable[[DamagedError], None]
    ) -> Iterator[SealedFile]:
        """What others are told of several segments, up to one that is damaged: that is noted."""
        for sealed in segments:
            try:
                yield self.of(sealed)
            except (OSError, DamagedError) as error:
                note(DamagedError(sealed.path, 0, sealed.base, str(error)))
                return

    def is_known(self, sealed: Sealed, file: SealedFile) -> bool:
        """Whether others were told so of it."""
        return self._known.get(sealed.inode) == file

    def forget(self, sealed: Sealed) -> None:
        """It is gone, or changes."""
        self._known.pop(sealed.inode, None)

    def clear(self) -> None:
        """All may be others now."""
        self._known.clear()


class Mend:
    """A damaged segment, made anew from what is whole of it, and from batches that others have.

    Others may have merged or compacted theirs, each by itself: where batches do not fit on what is there, it begins
    again in the form of a compacted segment, into which parts of batches fit as well.

    Args:
        path: the damaged file.
        own: what is whole of it.
        first: where it begins.
        end: where it ends.
        header: the partition's.
    """

    def __init__(
        self, path: Path, own: list[PlacedFrame], first: int, end: int, header: Header
    ) -> None:
        self.first = first
        self.end = end
        self._damaged = path
        self._own = own
        self._path = path.with_name(path.name + ".mend.tmp")
        is_compacted = any(placed.frame.compacted for placed in own)
        self._begin(header.compacted if is_compacted else header)

    def _begin(self, header: Header) -> None:
        self._header = header
        self._path.write_bytes(header.raw)
        self.index = Index(self.first, len(header.raw))
        self._next = 0

    def add(self, messages: Sequence[bytes]) -> None:
        """Takes the next batches; others are passed over. Raises `OSError`, `BadFrameError`."""
        if not self._add(messages):
            self._begin(self._header.compacted)
            self._add(messages)

    def _add(self, messages: Sequence[bytes]) -> bool:
        """Returns False where something does not fit."""
        with self._path.open("ab") as file, self._damaged.open("rb") as damaged:
            if not self._add_own(file, damaged.fileno()):
                return False
            for raw in messages:
                view = memoryview(raw)
                frame = parse(view, 0)
                assert frame is not None
                check(view, 0, frame)
                if frame.offset > self.index.end or frame.end <= self.index.end:
                    continue
                is_put = self._put(file, frame, raw)
                if not is_put or not self._add_own(file, damaged.fileno()):
                    return False
        return True

    def _add_own(self, file: BinaryIO, fd: int) -> bool:
        """Takes what is whole here as far as it follows; returns False where it does not fit."""
        while self._next < len(self._own):
            position, frame = self._own[self._next]
            if frame.offset > self.index.end:
                break
            if frame.end > self.index.end:
                raw = os.pread(fd, frame.size, position)
                try:
                    check(memoryview(raw), 0, frame)
                except BadFrameError:
                    del self._own[self._next]  # just now
                    break
                if not self._put(file, frame, raw):
                    return False
            self._next += 1
        return True

    def _put(self, file: BinaryIO, frame: Frame, raw: bytes) -> bool:
        """Writes a batch, or what is wanted of it, in the form of this segment; returns False if it cannot be."""
        does_fit = frame.offset == self.index.end and frame.end <= self.end
        if does_fit and frame.compacted == self._header.is_compacted:
            file.write(raw)
            self.index.add(frame.offset, frame.span, frame.rows, frame.size, frame.time)
        elif self._header.is_compacted:
            self._convert(file, frame, raw)
        else:
            return False
        return True

    def _convert(self, file: BinaryIO, frame: Frame, raw: bytes) -> None:
        """Takes what is wanted of a batch in the form of a compacted segment."""
        copy = SegmentCopy(file, self._header, self.first, write_options("lz4"), index=self.index)
        told = frame.raft.decode("ascii")
        if not frame.rows and not frame.compacted:
            copy.control(told)
            return
        end = min(frame.end, self.end)
        rows = rows_in(self._header, frame, raw)
        rows, first = within(rows, frame.offset, self.index.end, end)
        copy.add(rows, first, end)
        copy.flush(told)

    def read(self, offset: int, limit: int) -> list[Batch]:
        """Batches from the one that holds an offset on, of what is there already. Raises `OSError`."""
        place = self.index.find(offset)
        found: list[Batch] = []
        if place is None:
            return found
        with self._path.open("rb") as file, suppress(SegmentFlawError):
            fd = file.fileno()
            for position, frame in walk(fd, place[0], self.index.size, place[1]):
                if frame.end > offset:
                    found.append(batch_of(frame, os.pread(fd, frame.size, position)))
                    limit -= frame.size
                    if limit <= 0:
                        break
        return found

    def finish(self) -> Path | None:
        """The file that is to have the place of what is damaged, once it is whole. Raises `OSError`."""
        if self.index.end < self.end:
            return None
        with self._path.open("ab") as file:
            file.write(END)
            file.flush()
            try:
                os.fsync(file.fileno())
            except OSError:
                self.drop()  # the next sync would say nothing of it: it is fetched anew
                raise
        return self._path

    def drop(self) -> None:
        """It is not wanted any more. Raises `OSError`."""
        self._path.unlink(missing_ok=True)
