"""The segments that an earlier life of a replica left: what of them is whole, and what has to be fetched."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import crc32c

from vmq.disk.open_files import RestingFile
from vmq.streams.log.checkpoint import PartitionCheckpoint, boot_id, sync_folder
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.recovery import recover_sealed
from vmq.streams.log.segment import Header, Sealed, sealed_of
from vmq.streams.replica.segment import LooseSegment

#: A file that says that the log was closed in order.
CLEAN: Final = "clean"


@dataclass
class Loaded:
    """What is taken over."""

    base: int = 0
    old: list[Sealed] = field(default_factory=list)
    segments: list[LooseSegment] = field(default_factory=list)
    #: Committed offsets that cannot be read, as (first, end), and what is wrong with their files.
    damage: list[tuple[int, int]] = field(default_factory=list)
    flaws: dict[Path, DamagedError] = field(default_factory=dict)
    #: What was written is not there any more.
    lost: bool = False

    @property
    def end(self) -> int:
        """The offset behind the last."""
        if self.segments:
            return self.segments[-1].end
        return self.old[-1].end if self.old else self.base


def load(
    paths: list[Path],
    header: Header,
    noted: PartitionCheckpoint | None,
    committed: int,
    loose: int,
    durability: str,
    is_doubtful: bool,
) -> Loaded:
    """Takes the segments over, in order, up to where something is missing.

    Args:
        paths: the files.
        header: their partition's.
        noted: how far the last one was written.
        committed: how far the log was committed.
        loose: whole segments whose batches are to be known one by one.
        durability: the stream's.
        is_doubtful: a sync may have failed in this process. Of another's whom it was not told the next one tells, but
            where acknowledgements wait for syncs that is not left to chance.

    Raises:
        OSError: the disk.
    """
    found = Loaded()
    is_doubtful = is_doubtful or durability == "fsync"
    for place, path in enumerate(paths):
        base = int(path.stem)
        if not place:
            found.base = base
        elif base != found.end:
            found.lost = True  # what lies behind a gap belongs to nothing
            break
        if path is paths[-1]:
            found.lost = _load_last(found, path, header, noted)
            if found.segments:
                synced = 0 if noted is None else noted.synced_of(base)
                found.segments[-1].distrust(synced, is_doubtful=is_doubtful)
            break
        behind = int(paths[place + 1].stem)
        is_old = not found.segments and behind <= committed
        if is_old and place < len(paths) - 1 - loose and _take_old(found, path, header):
            continue
        flaw = _load_whole(found, path, behind, header)
        if flaw is not None and is_old:
            _take_damaged(found, path, behind, flaw)
        elif flaw is not None:
            found.lost = True
            break
    _end_whole(found)
    if durability != "fsync" and not all((each.parent / CLEAN).exists() for each in paths[:1]):
        for segment in found.segments[:-1]:
            segment.distrust(0, is_doubtful=is_doubtful)  # it was sealed, and not synced
    return found


def _end_whole(found: Loaded) -> None:
    """The last segment is written on, so it is whole: what is damaged at the very end is lost."""
    is_last = not any(each.count for each in found.segments)
    while is_last and found.damage and found.damage[-1][1] == found.old[-1].end:
        found.damage.pop()
        found.flaws.pop(found.old.pop().path)
        found.lost = True


def _take_old(found: Loaded, path: Path, header: Header) -> bool:
    try:
        index = recover_sealed(path, int(path.stem), header)
    except DamagedError:
        return False
    found.old.append(sealed_of(path, index))
    return True


def _load_whole(found: Loaded, path: Path, behind: int, header: Header) -> DamagedError | None:
    """Takes a segment over whose batches are to be known one by one, if it is whole."""
    try:
        segment = LooseSegment.load(path, header)
    except DamagedError as damage:
        return damage
    if segment.end == behind:
        found.segments.append(segment)
        return None
    segment.close()
    at = segment.index.size
    return DamagedError(path, at, segment.end, f"it is to end at offset {behind}")


def _take_damaged(found: Loaded, path: Path, end: int, damage: DamagedError) -> None:
    """What is committed and cannot be read is fetched from others."""
    base = int(path.stem)
    file = path.stat()
    found.old.append(Sealed(path, base, end, file.st_size, -1, file.st_ino, False, end - base))
    found.flaws[path] = damage
    found.damage.append((base, end))


def _load_last(
    found: Loaded, path: Path, header: Header, noted: PartitionCheckpoint | None
) -> bool:
    try:
        segment = LooseSegment.load(path, header)
    except DamagedError:
        return True
    found.segments.append(segment)
    trusted = None if noted is None else noted.trusted(segment.base)
    return segment.flaw(trusted) is not None


def forgets(
    found: Loaded, folder: Path, durability: str, noted: PartitionCheckpoint | None
) -> bool:
    """Whether what was safe need not be there, though all may be well with what is."""
    if found.lost:
        return True
    if noted is not None and noted.next_offset > found.end and noted.trusted(noted.base):
        return True
    # A power failure may have taken the note itself.
    is_same_boot = noted is not None and noted.boot == boot_id()
    may = durability == "memory" or (durability == "os" and not is_same_boot)
    return may and not (folder / CLEAN).exists()


def begin_unclean(folder: Path) -> None:
    """From here on the log has no orderly end, also after a power failure. Raises `OSError`."""
    mark = folder / CLEAN
    if mark.exists():
        mark.unlink()
        sync_folder(folder)  # else the mark may come back, without what was written since


class ForgottenMark:
    """That a log may have forgotten something, in a file, until the node's ballots say that it abstains.

    What shows it is gone once the log is open: its end is cut, and noted anew. Who died between would vote again.

    Raises:
        OSError: the disk.
    """

    def __init__(self, folder: Path, forgot: bool) -> None:
        self._path = folder / "forgot"
        self.is_set = self._path.exists()
        if forgot:
            self.set()

    def set(self) -> None:
        """Returns when that is on the disk itself. Raises `OSError`."""
        if not self.is_set:
            self._path.touch()
            sync_folder(self._path.parent)
            self.is_set = True

    def clear(self) -> None:
        """The ballots say it."""
        if self.is_set:
            self._path.unlink(missing_ok=True)
            self.is_set = False


class CommitFile:
    """How far the log is known to be committed, in a file that is written in place."""

    def __init__(self, path: Path) -> None:
        self._file = RestingFile(path, os.O_RDWR | os.O_CREAT)

    def write(self, end: int) -> None:
        with self._file as fd:
            os.pwrite(fd, commit_note(end), 0)

    def close(self) -> None:
        self._file.close()


def commit_note(end: int) -> bytes:
    """What notes how far the log is committed."""
    raw = end.to_bytes(8, "big")
    return raw + crc32c.crc32c(raw).to_bytes(4, "big")


def read_commit(path: Path) -> int:
    """How far the log was committed, as was noted last; 0 where that cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError:
        return 0
    if len(raw) != 12 or crc32c.crc32c(raw[:8]).to_bytes(4, "big") != raw[8:]:
        return 0
    return int.from_bytes(raw[:8], "big")
