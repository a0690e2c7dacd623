"""What a node must never forget, whatever becomes of its logs: the ballots of its groups, and its own name among them.

One file of small records, the last of a group counts. Those of one pass are written and synced together. A record that
cannot be read anywhere but at the end may have been a vote: then the node votes under this name no more, and gets
another one.
"""

import errno
import os
import secrets
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import crc32c
import msgspec

from vmq.streams.log.checkpoint import sync_folder
from vmq_cluster.raft.effects import Ballot

_HEAD: Final = struct.Struct(">II")
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, Ballot])
#: The record of the node itself: how often it started, and its name. No group is called so.
_NODE: Final = ""
#: Bytes at which the file is written anew, if that makes it half as large.
_LARGE: Final = 1 << 20


class Ballots:
    """The file, open; each opening counts as a start of the node.

    Args:
        path: the file; made when missing.

    Raises:
        OSError: the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[str, Ballot] = {}
        raw = path.read_bytes() if path.exists() else b""
        size = self._load(raw)
        node = self.known.pop(_NODE, None)
        #: What tells this node from one of its name that has lost its disk.
        self.identity = secrets.token_hex(4) if node is None else node.vote
        #: Rises with each start.
        self.boot = 1 if node is None else node.term + 1
        if size < len(raw) and not _is_torn(raw, size):
            path.replace(path.with_suffix(".damaged"))
            self.known = {}
            self.identity, self.boot = secrets.token_hex(4), 1
        self._fd = -1
        self._size = 0
        #: Its size when it was written anew last.
        self._least = 0
        #: It was written anew, and a power failure may still bring back the one before it.
        self._is_unsure = False
        self._rewrite()

    def _load(self, raw: bytes) -> int:
        """Reads records up to the first that is none; returns where that begins."""
        at = 0
        while at + _HEAD.size <= len(raw):
            length, crc = _HEAD.unpack_from(raw, at)
            body = raw[at + _HEAD.size : at + _HEAD.size + length]
            if len(body) < length or crc32c.crc32c(body) != crc:
                break
            try:
                group, ballot = _DECODER.decode(body)
            except msgspec.MsgspecError:
                break
            self.known[group] = ballot
            at += _HEAD.size + length
        return at

    def save(self, ballots: Mapping[str, Ballot]) -> None:
        """Writes ballots; they are on the disk itself when this returns. Raises `OSError`."""
        self.known.update(ballots)
        raw = b"".join(_record(group, ballot) for group, ballot in ballots.items())
        is_large = self._size + len(raw) > _LARGE and self._size > 2 * self._least
        if is_large or self._is_unsure:
            self._rewrite()
            return
        try:
            _write(self._fd, raw, self._size)
        except OSError:
            # Else the rest of a longer record could stand behind a shorter one, and look like a damaged vote.
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        os.fdatasync(self._fd)
        self._size += len(raw)

    def _rewrite(self) -> None:
        node = {_NODE: Ballot(self.boot, self.identity)}
        raw = b"".join(_record(*each) for each in {**node, **self.known}.items())
        work = self._path.with_suffix(".tmp")
        fd = os.open(work, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            _write(fd, raw, 0)
            os.fdatasync(fd)
            self._is_unsure = True
            work.replace(self._path)
            sync_folder(self._path.parent)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                work.unlink(missing_ok=True)
            raise
        self._is_unsure = False
        self.close()
        self._fd, self._size, self._least = fd, len(raw), len(raw)

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write(fd: int, raw: bytes, at: int) -> None:
    """Writes all of it: a disk that is nearly full takes a part, and says so only in the result."""
    left = memoryview(raw)
    while left:
        count = os.pwrite(fd, left, at)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left, at = left[count:], at + count


def _record(group: str, ballot: Ballot) -> bytes:
    body = _ENCODER.encode((group, ballot))
    return _HEAD.pack(len(body), crc32c.crc32c(body)) + body


def _is_torn(raw: bytes, at: int) -> bool:
    """Whether nothing but a write that was cut off begins there: no whole record follows it."""
    length = _HEAD.unpack_from(raw, at)[0] if at + _HEAD.size <= len(raw) else len(raw)
    end = at + _HEAD.size + length
    return end >= len(raw) or not raw[at:].strip(b"\0")
