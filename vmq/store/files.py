"""The files of a LevelDB database, looked at without LevelDB: whether all are there.

LevelDB deletes whatever its MANIFEST does not name, and reads a MANIFEST that was cut as one that is shorter:
opened so, it deletes tables and logs that are intact. Here the MANIFEST is only read: the tables that it names must
be there with the sizes that it tells, and so must the log. Since LevelDB notes a new table before it deletes what
went into it, these files together are the whole database, whether its last process was killed or not.

The forms are those of LevelDB 1.22: doc/log_format.md, doc/impl.md, db/version_edit.cc.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import crc32c
from vmq_hooks.replacing import replace_file

#: A log is a row of blocks; no record's header lies over the end of one.
BLOCK: Final = 32_768
#: Checksum (4), length (2) and type (1) of a record, or of a part of one.
HEADER: Final = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4

# The fields of an edit.
COMPARATOR: Final = 1
LOG_NUMBER: Final = 2
NEXT_FILE: Final = 3
LAST_SEQUENCE: Final = 4
COMPACT_POINTER: Final = 5
DELETED_FILE: Final = 6
NEW_FILE: Final = 7
PREVIOUS_LOG: Final = 9

#: The file of the note that says how long the log was when the database was closed.
LOG_END: Final = "LOG_END"

#: An internal key ends with sequence number and kind.
KEY_TAIL: Final = 8


class StoreFlawError(Exception):
    """Files are missing or not what LevelDB wrote; the text says which."""


class LiveTable(NamedTuple):
    """A table that belongs to the database: its size in bytes, its first and its last key."""

    size: int
    first: bytes
    last: bytes


class Version:
    """What a MANIFEST says: the tables by their numbers, and from which log on logs count."""

    def __init__(self) -> None:
        self.tables: dict[int, LiveTable] = {}
        self.log: int = 0


def masked_crc(data: bytes) -> int:
    """The checksum of data as LevelDB stores it."""
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def check_whole(folder: Path) -> None:
    """Looks whether a database is whole, as far as its files and their sizes say; reads its MANIFEST only.

    Raises:
        FlawError: it is not.
    """
    version = read_version(folder)
    tables = {int(each.stem): each for each in folder.iterdir() if is_table(each.name)}
    logs = [each for each in folder.iterdir() if each.suffix == ".log"]
    if not version.tables and not version.log:
        # Only a process that died while it made the database leaves it so, before there was anything in it.
        if tables or any(each.stat().st_size for each in logs):
            raise StoreFlawError("its MANIFEST is that of an empty database, and there are files")
        return
    missing = sorted(number for number in version.tables if number not in tables)
    if missing:
        more = f" and {len(missing) - 1} more tables are" if missing[1:] else " is"
        raise StoreFlawError(f"its file {missing[0]:06}.ldb{more} missing")
    for number, table in sorted(version.tables.items()):
        size = tables[number].stat().st_size
        if size != table.size:
            raise StoreFlawError(f"its file {tables[number].name} has {size} bytes of {table.size}")
    check_log_end(folder)
    # A repair leaves a database without logs.
    if version.log and not any(each.stem == f"{version.log:06}" for each in logs):
        raise StoreFlawError(f"its log file is missing: {version.log:06}.log")


def note_log_end(folder: Path) -> None:
    """Notes how long the log of a closed database is: LevelDB takes one that was cut for one that ends there.

    The note holds for logs of that number only. LevelDB begins a new one whenever it opens the database.

    Raises:
        OSError: the disk.
    """
    lines = []
    for each in sorted(folder.glob("*.log")):
        with each.open("rb") as file:
            # Or a loss of power after a clean stop might leave less than is noted.
            os.fsync(file.fileno())
            lines.append(f"{each.name} {os.fstat(file.fileno()).st_size}\n")
    replace_file(folder / LOG_END, "".join(lines).encode())


def check_log_end(folder: Path) -> None:
    """Raises StoreFlawError if a log is shorter than it was when the database was closed."""
    try:
        noted = (folder / LOG_END).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return  # its last process was killed, or is older than the note
    for line in noted:
        name, _, size = line.partition(" ")
        log = folder / name
        if size.isdigit() and log.is_file() and log.stat().st_size < int(size):
            raise StoreFlawError(f"its file {name} has {log.stat().st_size} bytes of {size}")


def read_version(folder: Path) -> Version:
    """The files that belong to a database now.

    Raises:
        FlawError: no MANIFEST says that.
    """
    try:
        current = (folder / "CURRENT").read_bytes()
    except FileNotFoundError:
        raise StoreFlawError("its file CURRENT is missing") from None
    name = current.rstrip(b"\n").decode(errors="replace")
    if not current.endswith(b"\n") or not is_manifest(name):
        raise StoreFlawError("its file CURRENT does not name a MANIFEST")
    try:
        raw = (folder / name).read_bytes()
    except FileNotFoundError:
        raise StoreFlawError(f"its file {name} is missing") from None
    version = Version()
    has_end = False
    for record in records(raw, name):
        try:
            has_end |= apply(record, version)
        except (IndexError, ValueError):
            raise StoreFlawError(f"its file {name} cannot be read") from None
    if not has_end:
        raise StoreFlawError(f"its file {name} is cut")
    return version


def is_manifest(name: str) -> bool:
    """Whether a file is one that tells which files there are."""
    return name.startswith("MANIFEST-") and name[9:].isdigit()


def is_table(name: str) -> bool:
    """Whether a file is one of LevelDB's tables."""
    stem, _, suffix = name.partition(".")
    return stem.isdigit() and suffix in ("ldb", "sst")


def records(raw: bytes, name: str) -> Iterator[bytes]:
    """The records of a log of this name, up to its end or to one that was being written.

    Raises:
        FlawError: a record is not what was written.
    """
    parts: list[bytes] = []
    for start in range(0, len(raw), BLOCK):
        block = raw[start : start + BLOCK]
        at = 0
        while len(block) - at >= HEADER:
            body = at + HEADER
            end = body + int.from_bytes(block[at + 4 : at + 6], "little")
            kind = block[at + 6]
            if not kind and end == body:
                break  # zeros of a file that was made longer in advance
            if end > len(block) and len(block) < BLOCK:
                return  # torn
            if (
                end > len(block)
                or kind not in (FULL, FIRST, MIDDLE, LAST)
                or masked_crc(block[at + 6 : end]) != int.from_bytes(block[at : at + 4], "little")
            ):
                raise StoreFlawError(f"its file {name} is damaged at byte {start + at}")
            if kind in (FULL, FIRST):
                parts = [block[body:end]]
            elif parts:
                parts.append(block[body:end])
            if kind in (FULL, LAST) and parts:
                yield b"".join(parts)
                parts = []
            at = end


class Fields:
    """Reads the fields of an edit one after the other; IndexError: it ends too early."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def number(self) -> int:
        """A varint."""
        value = shift = 0
        while True:
            byte = self.raw[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def text(self) -> bytes:
        """Bytes behind their length."""
        length = self.number()
        self.at += length
        if self.at > len(self.raw):
            raise IndexError
        return self.raw[self.at - length : self.at]


def apply(record: bytes, version: Version) -> bool:
    """Brings a version forward by an edit; True if the edit says which log counts, as a snapshot alone does not.

    Raises:
        IndexError, ValueError: it is no edit.
    """
    fields = Fields(record)
    has_log = False
    while fields.at < len(record):
        kind = fields.number()
        if kind == COMPARATOR:
            fields.text()
        elif kind == LOG_NUMBER:
            version.log = fields.number()
            has_log = True
        elif kind in (NEXT_FILE, LAST_SEQUENCE, PREVIOUS_LOG):
            fields.number()
        elif kind == COMPACT_POINTER:
            fields.number()
            fields.text()
        elif kind == DELETED_FILE:
            fields.number()
            version.tables.pop(fields.number(), None)
        elif kind == NEW_FILE:
            fields.number()
            number, size = fields.number(), fields.number()
            first, last = fields.text(), fields.text()
            version.tables[number] = LiveTable(size, first[:-KEY_TAIL], last[:-KEY_TAIL])
        else:
            raise ValueError(kind)
    return has_log
