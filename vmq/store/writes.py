"""What is written to a store's database: it gathers, and goes to the disk one commit at a time."""

from collections.abc import Callable
from typing import Any, Final

from vmq.store.damage import ADVICE, Damage
from vmq.store.lines import LineIndex, scan_line

#: Why a session is refused.
DAMAGED: Final = "part of its stored session is damaged: " + ADVICE


class StoreError(Exception):
    """The store cannot be used; the text says why and what to do."""


class Writes:
    """Puts and deletes, the commit that they gather for, and reading what is there with them."""

    def __init__(self, db: Any, durability: str, schedule: Callable[[], None]) -> None:
        self.db = db
        self.schedule = schedule
        self.acknowledge_early = durability == "memory"
        self.sync = durability == "fsync"
        #: Writes since the last commit: key -> value, or None to delete.
        self.dirty: dict[bytes, bytes | None] = {}
        #: Writes on their way to the disk.
        self.writing: dict[bytes, bytes | None] = {}
        self.dirty_lines = LineIndex(self.dirty)
        self.writing_lines = LineIndex(self.writing)
        #: What gathers since the last commit, in writes; a large one counts for each KiB it has.
        self.gathered: int = 0
        #: How much the commit on its way to the disk had gathered.
        self.closed: int = 0
        #: The commit that gathers now.
        self.number: int = 1
        #: The last write failed; durable sessions are refused until one succeeds.
        self.failing = False
        #: What cannot be read of it; None: everything can, as far as is known.
        self.damage: Damage | None = None
        #: Numbers of the sessions of which something could not be read when it was wanted.
        self.refused: set[bytes] = set()
        #: The gathering commit is asked for; and so that it comes without delay.
        self.is_due = False
        self.is_urgent = False
        #: Told of each failure to read.
        self.on_unreadable: Callable[[Exception], None] | None = None
        #: Counts every put and delete, so that a caller sees whether its work was durable.
        self.writes: int = 0

    def put(self, key: bytes, value: bytes) -> None:
        if not self.is_urgent:
            self.hasten()
        self.writes += 1
        self.gathered += 1 + (len(value) >> 10)
        self.dirty[key] = value

    def extend(self, size: int) -> None:
        """So many bytes join a record that the gathering commit has already."""
        self.writes += 1
        self.gathered += 1 + (size >> 10)

    def delete(self, key: bytes) -> None:
        if not self.is_urgent:
            self.hasten()
        self.writes += 1
        self.gathered += 1
        self.dirty[key] = None

    def delete_later(self, key: bytes) -> None:
        """Deletes what nobody waits for: it goes with a commit soon."""
        if not self.is_due:
            self.is_due = True
            self.schedule()
        self.writes += 1
        self.gathered += 1
        self.dirty[key] = None

    def hasten(self) -> None:
        """The gathering commit is to come without delay."""
        self.is_urgent = self.is_due = True
        self.schedule()

    def get(self, key: bytes) -> bytes | None:
        """The value as it will be after the commit under way.

        Raises:
            StoreError: the record cannot be read.
        """
        if key in self.dirty:
            return self.dirty[key]
        if key in self.writing:
            return self.writing[key]
        value: bytes | None
        try:
            value = self.db.get(key, verify_checksums=True)
        except Exception as error:  # plyvel's, or that it is closed after a failed write
            raise self.unreadable(error) from error
        if value is None and self.damage is not None and self.damage.covers(key):
            raise StoreError(DAMAGED)
        return value

    def unreadable(self, error: Exception) -> StoreError:
        """What is raised where LevelDB cannot read; whoever looks for damage is told."""
        if self.on_unreadable is not None:
            self.on_unreadable(error)
        said = error.args[0] if error.args else ""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(error)
        return StoreError("the store cannot be read (" + text + "): " + ADVICE)

    def latest(self, key: bytes, committed: bytes) -> bytes | None:
        """A record with what has been written since it was read from the disk; None: it is deleted."""
        for writes in (self.dirty, self.writing):
            if key in writes:
                return writes[key]
        return committed

    def read_line(self, line: bytes, behind: bytes = b"") -> list[tuple[bytes, bytes]]:
        """What `scan_line` finds.

        Raises:
            StoreError: it cannot be read; its session is refused from now on.
        """
        try:
            return list(scan_line(self.db, line, behind))
        except Exception as error:
            self.refused.add(line[1:9])
            raise self.unreadable(error) from error

    def barrier(self) -> int:
        """The commit number that an acknowledgement of work done now has to wait for."""
        return 0 if self.acknowledge_early else self.number

    def close_writes(self) -> int:
        """Has the writes that gathered go to the disk next; returns the number of their commit."""
        self.writing = self.dirty
        self.writing_lines = self.dirty_lines
        self.dirty = {}
        self.dirty_lines = LineIndex(self.dirty)
        self.closed = self.gathered
        self.gathered = 0
        self.is_urgent = self.is_due = False
        number = self.number
        self.number = number + 1
        return number

    def write(self) -> None:
        """Writes the closed commit; may run in a thread of its own.

        Raises:
            Exception: LevelDB's, for example when the disk is full. The writes stay in `writing`.
        """
        if not self.writing:
            return
        batch = self.db.write_batch(sync=self.sync)
        put = batch.put
        delete = batch.delete
        for key, value in self.writing.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        batch.write()

    def end_commit(self) -> None:
        """The closed commit is on disk."""
        self.writing = {}
        self.writing_lines = LineIndex(self.writing)

    def retry_commit(self) -> None:
        """The closed commit failed: its writes join the next one."""
        merged = self.writing
        merged.update(self.dirty)
        self.gathered += self.closed
        self.closed = 0
        self.end_commit()
        self.dirty = merged
        self.dirty_lines = LineIndex(merged)
