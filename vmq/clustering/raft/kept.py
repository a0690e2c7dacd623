"""Messages that a node has acknowledged though their partition has no quorum (`without_quorum = "keep"`).

They lie in a file for each partition until a leader has them: this is the one copy of them. A file has batches as
they are to be handed in, each behind its length and checksum, and is deleted once a leader has all of them. A node
that was killed hands them in again under the numbers that they had, before all that comes after them, so that each is
taken once.
"""

import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import crc32c
import msgspec

from vmq.clustering.messages.raft import Produce
from vmq.clustering.raft.places import Key
from vmq.clustering.raft.produce import Sent
from vmq.clustering.raft.producer import ROW
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.dots import DOTTED, marks_of
from vmq_cluster.raft.messages import Mark

log = logging.getLogger("vmq.cluster")

SUFFIX: Final = ".kept"
#: The group of what was kept before its partition had one.
_NONE: Final = "-"
#: In front of a batch: its size, its checksum, and that of these two.
_HEAD: Final = struct.Struct("<III")
_batches = msgspec.msgpack.Decoder(Produce)


class KeptFile:
    """The batches of one partition.

    Args:
        path: the file; it need not be there.
        is_synced: what is written is on the disk itself, not only with the operating system.
    """

    def __init__(self, path: Path, is_synced: bool) -> None:
        self._path = path
        self._is_synced = is_synced
        #: The folder is known to have it after a power failure, too.
        self._is_listed = False
        #: Where what counts ends, if there is more that could not be cut off.
        self._torn_at: int | None = None

    def read(self) -> list[Produce]:
        """What was kept, up to where the file is torn."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return []
        found, position = [], 0
        while position < len(raw):
            begin = position + _HEAD.size
            if len(raw) < begin:
                break  # torn: it was not acknowledged
            size, checksum, own = _HEAD.unpack_from(raw, position)
            body = raw[begin : begin + size]
            try:
                _check(raw[position : begin - 4], own)
                if len(body) < size:
                    break
                _check(body, checksum)
                found.append(_batches.decode(body))
            except ValueError as error:
                aside = self._path.with_suffix(".damaged")
                aside.write_bytes(raw)
                log.error("%s: from byte %d on: %s", aside, position, error)
                break
            position = begin + size
        if position < len(raw):
            with self._path.open("r+b") as file:
                file.truncate(position)
        return found

    def add(self, batches: Sequence[Produce]) -> None:
        """Keeps more. Raises `OSError`; then none of them counts."""
        with self._path.open("ab") as file:
            if self._torn_at is not None:
                file.truncate(self._torn_at)
            before = self._torn_at = file.seek(0, os.SEEK_END)
            try:
                self._write(file.fileno(), batches)
                if self._is_synced and not self._is_listed:
                    sync_folder(self._path.parent)
            except BaseException:
                file.truncate(before)
                self._torn_at = None
                raise
            self._torn_at = None
            self._is_listed = True

    def replace(self, batches: Sequence[Produce]) -> None:
        """Keeps these instead of all that was kept. Raises `OSError`."""
        work = self._path.with_suffix(".tmp")
        with work.open("wb") as file:
            self._write(file.fileno(), batches)
        work.replace(self._path)
        self._torn_at = None
        sync_folder(self._path.parent)

    def _write(self, fd: int, batches: Sequence[Produce]) -> None:
        bodies = [msgspec.msgpack.encode(each) for each in batches]
        left = memoryview(b"".join(_head(each) + each for each in bodies))
        while left:
            left = left[os.write(fd, left) :]
        if self._is_synced:
            os.fdatasync(fd)

    def drop(self) -> None:
        """A leader has them all."""
        self._path.unlink(missing_ok=True)
        self._is_listed = False
        self._torn_at = None


def _check(data: bytes, checksum: int) -> None:
    if crc32c.crc32c(data) != checksum:
        raise ValueError("it is not what was written")


def _head(body: bytes) -> bytes:
    made = _HEAD.pack(len(body), crc32c.crc32c(body), 0)[:-4]
    return made + crc32c.crc32c(made).to_bytes(4, "little")


class KeptMessages:
    """What a node keeps, by partition; written in a thread of its own.

    Args:
        folder: where.
        in_loop: calls something in the event loop.
    """

    def __init__(self, folder: Path, in_loop: Callable[[Callable[[], None]], None]) -> None:
        self._folder = folder
        self._in_loop = in_loop
        self._thread = ThreadPoolExecutor(1, "vmq-streams-kept")
        #: What went wrong last; "": nothing.
        self.failure = ""

    def close(self) -> None:
        """Returns when everything is written."""
        self._thread.shutdown()

    def found(self) -> Iterator[tuple[Key, str, list[Sent]]]:
        """What an earlier life has left: partition, the group that it has numbers for, batches. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob("*.tmp"):
            leftover.unlink()
        for path in sorted(self._folder.glob("*" + SUFFIX)):
            stream, _, number = path.stem.rpartition("-")
            if batches := KeptFile(path, False).read():
                groups = [each.group for each in batches if each.group != _NONE]
                group = groups[-1] if groups else ""
                yield (stream, int(number)), group, [_sent_of(each) for each in batches]

    def keeper(self, key: Key, is_synced: bool) -> "PartitionKeeper":
        """Of one partition."""
        path = self._folder / f"{key[0]}-{key[1]}{SUFFIX}"
        return PartitionKeeper(KeptFile(path, is_synced), self)

    def do(self, what: Callable[[], None], done: Callable[[bool], None]) -> None:
        """Has something done in the thread; `done` is told in the loop whether it was."""

        def work() -> None:
            try:
                what()
                self.failure = ""
            except Exception as error:
                if not self.failure:
                    trace = None if isinstance(error, OSError) else error
                    log.error("what has no quorum cannot be kept: %s", error, exc_info=trace)
                self.failure = str(error) or type(error).__name__
            is_done = not self.failure
            self._in_loop(lambda: done(is_done))

        self._thread.submit(work)


class PartitionKeeper:
    """Keeps messages of one partition."""

    def __init__(self, file: KeptFile, kept: KeptMessages) -> None:
        self._file = file
        self._kept = kept

    def add(self, group: str, sent: Sequence[Sent], done: Callable[[bool], None]) -> None:
        """Has more kept."""
        batches = [_produce_of(group, each) for each in sent]
        self._kept.do(lambda: self._file.add(batches), done)

    def replace(self, group: str, sent: Sequence[Sent], done: Callable[[bool], None]) -> None:
        """Has these kept instead: they have other numbers now."""
        batches = [_produce_of(group, each) for each in sent]
        self._kept.do(lambda: self._file.replace(batches), done)

    def drop(self) -> None:
        """Nothing needs to be kept any more."""
        self._kept.do(self._file.drop, lambda _done: None)


def _produce_of(group: str, sent: Sent) -> Produce:
    return produce(0, group or _NONE, sent, early=False)


def produce(question: int, group: str, sent: Sent, early: bool) -> Produce:
    """A batch as it is handed to another node's leader."""
    rows, mark = sent.rows, sent.mark
    return Produce(
        question,
        group,
        mark.store,
        mark.boot,
        mark.first,
        rows.topics,
        rows.payloads,
        bytes(rows.flags),
        rows.times.tolist(),
        rows.clients,
        {number: list(each) for number, each in rows.headers.items()},
        early,
        [(each.store, each.boot, each.first, each.count) for each in marks_of(rows.dots)],
    )


def gathering_of(message: Produce) -> Gathering:
    """The rows of one."""
    rows = Gathering()
    rows.topics, rows.payloads = message.topics, message.payloads
    rows.flags = bytearray(message.flags)
    rows.times.extend(message.times)
    rows.clients = message.clients
    rows.headers = dict(message.headers)
    for store, boot, first, count in message.dots:
        name = store.removeprefix(DOTTED)
        rows.dots += [(name, boot, number) for number in range(first, first + count)]
    return rows


def size_of(rows: Gathering) -> int:
    """Bytes that rows count for."""
    return sum(map(len, rows.payloads)) + (ROW + len(rows.topics[0])) * len(rows.topics)


def _sent_of(message: Produce) -> Sent:
    rows = gathering_of(message)
    mark = Mark(message.store, message.boot, message.first, len(rows.topics))
    return Sent(mark, rows, size_of(rows), is_kept=True)
