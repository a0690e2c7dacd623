"""How far a partition was written: what tells a torn tail from damage when it is opened again.

A file that ends within a batch looks the same whether the writer died or a bit flipped in the length
of a batch that was acknowledged long ago. The first has to be cut, the second must never be. So
each write is followed by a note of how far the file is good, in one small file, written in place:

- Below `position` the file was written. While the machine has not restarted since (`boot`), what was
  written is there, whatever became of the process: anything else is damage.
- Below `synced` it was on disk. That holds across a power failure as well.
- What lies behind is a tail: whole batches are kept, the first that is not whole is cut.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import crc32c

from vmq.disk.open_files import RestingFile

_MAGIC: Final = b"vmqc"
_FORM: Final = struct.Struct("<4s16sqqqq")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN: Final = b"\0" * 16


def boot_id() -> bytes:
    """16 bytes that change when the machine restarts; zeros where it has none to tell."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return _UNKNOWN


@dataclass
class PartitionCheckpoint:
    """The segment that is written to (`base`), how far, and the next offset."""

    base: int
    position: int
    synced: int
    next_offset: int
    boot: bytes = b""

    def pack(self) -> bytes:
        """The bytes of the file."""
        raw = _FORM.pack(_MAGIC, self.boot, self.base, self.position, self.synced, self.next_offset)
        crc: int = crc32c.crc32c(raw)
        return raw + crc.to_bytes(4, "little")

    def trusted(self, base: int) -> int:
        """Up to which byte the segment of this base must be whole."""
        if base != self.base:
            return 0
        same_boot = self.boot == boot_id() != _UNKNOWN
        return self.position if same_boot else self.synced

    def synced_of(self, base: int) -> int:
        """Up to which byte the segment of this base is known to be on disk."""
        return self.synced if base == self.base else 0


class CheckpointFile:
    """The file that holds a partition's checkpoint; its size never changes, so a full disk is no matter."""

    def __init__(self, path: Path) -> None:
        self._file = RestingFile(path, os.O_RDWR | os.O_CREAT)
        self.boot = boot_id()

    def write(self, checkpoint: PartitionCheckpoint) -> None:
        """Replaces what the file says: fewer bytes than a sector, in one write."""
        checkpoint.boot = self.boot
        with self._file as fd:
            os.pwrite(fd, checkpoint.pack(), 0)

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> PartitionCheckpoint | None:
    """What the file says; None if there is none, or none that can be trusted."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body, crc = raw[: _FORM.size], raw[_FORM.size :]
    if len(body) < _FORM.size or crc32c.crc32c(body).to_bytes(4, "little") != crc:
        return None
    magic, boot, base, position, synced, next_offset = _FORM.unpack(body)
    if magic != _MAGIC:
        return None
    return PartitionCheckpoint(base, position, synced, next_offset, boot)


def sync_folder(folder: Path) -> None:
    """Makes new and renamed files in a folder survive a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
