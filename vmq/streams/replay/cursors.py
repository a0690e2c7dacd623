"""How far readers are that the broker keeps the place of: one SQLite file, written by one thread.

What was written survives a crash of the broker. A cursor that nobody uses for `KEPT` seconds goes.
"""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from vmq.streams.definition import StreamRef
from vmq.streams.reader_places import CursorError, CursorKey, Kept, Place

log = logging.getLogger("vmq.streams")

#: Seconds that a cursor is kept without being used, and how many one owner may have.
KEPT: Final = 7 * 86_400
MOST: Final = 1000
_SCHEMA: Final = """
create table if not exists cursors (
    owner text not null,
    name text not null,
    stream text not null,
    positions text not null,
    deliveries text not null,
    used integer not null,
    primary key (owner, name)
) without rowid
"""


class Cursors:
    """The cursors of a broker. Calls block, and may come from any thread.

    Args:
        path: of the file.
        clock: seconds since 1970.

    Raises:
        CursorError: the file cannot be used.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.clock = clock
        self.lock = threading.Lock()
        try:
            self.database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            # The system has it then, as with streams: a crash of the broker loses nothing.
            self.database.execute("pragma journal_mode = wal")
            self.database.execute("pragma synchronous = off")
            self.database.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise CursorError(f"{path} cannot be used: {error}; remove it, or mend it") from error

    def find(self, key: CursorKey, stream: StreamRef) -> Place | None:
        """Where a cursor is in its stream; None: there is none.

        Raises:
            CursorError: its owner has as many as may be; or the file cannot be read.
        """
        try:
            with self.lock:
                found = self._row(key)
                count = 0
                if found is None:
                    asked = "select count(*) from cursors where owner = ?"
                    count = self.database.execute(asked, (key.owner,)).fetchone()[0]
        except sqlite3.Error as error:
            raise CursorError(f"the cursors cannot be read: {error}") from error
        if count >= MOST:
            raise CursorError(too_many())
        if found is None or not stream.has(found[0], found[3]):
            return None
        return Place(numbers_of(found[1]), numbers_of(found[2]))

    def _row(self, key: CursorKey) -> tuple[str, str, str, int] | None:
        asked = (
            "select stream, positions, deliveries, used from cursors where owner = ? and name = ?"
        )
        found: tuple[str, str, str, int] | None = self.database.execute(asked, key).fetchone()
        return found

    def all_of(self, owners: str) -> list[Kept]:
        """The cursors of owners whose names begin so.

        Raises:
            CursorError: the file cannot be read.
        """
        try:
            with self.lock:
                found = self.database.execute(
                    "select owner, name, stream, positions, deliveries from cursors "
                    "where substr(owner, 1, ?) = ? order by owner, name",
                    (len(owners), owners),
                ).fetchall()
        except sqlite3.Error as error:
            raise CursorError(f"the cursors cannot be read: {error}") from error
        return [
            (CursorKey(owner, name), stream, Place(numbers_of(at), numbers_of(sent)))
            for owner, name, stream, at, sent in found
        ]

    def keep(self, moved: Iterable[Kept], *, is_synced: bool = False) -> None:
        """Keeps how far cursors are, all or none; `is_synced`: on the disk, not only with the system.

        Raises:
            CursorError: the disk.
        """
        now = int(self.clock())
        rows = [
            (*key, stream, json.dumps(place.positions), json.dumps(place.deliveries), now)
            for key, stream, place in moved
        ]
        try:
            with self.lock:
                if is_synced:
                    self.database.execute("pragma synchronous = full")
                try:
                    with self.database:
                        self.database.execute("begin")
                        self.database.executemany(
                            "insert or replace into cursors values (?, ?, ?, ?, ?, ?)", rows
                        )
                finally:
                    if is_synced:
                        self.database.execute("pragma synchronous = off")
        except sqlite3.Error as error:
            raise CursorError(f"the cursors cannot be written: {error}") from error

    def advance(self, key: CursorKey, stream: str, place: Place, moved: Mapping[int, int]) -> None:
        """Has a cursor be as far as `moved` in some partitions; `place`: where it is if it was never kept.

        Raises:
            CursorError: the disk.
        """
        try:
            with self.lock:
                found = self._row(key)
        except sqlite3.Error as error:
            raise CursorError(f"the cursors cannot be read: {error}") from error
        known = place
        if found is not None and found[0] == stream:
            known = Place(numbers_of(found[1]), numbers_of(found[2]))
        positions = dict(known.positions)
        for number, position in moved.items():
            positions[number] = max(position, positions.get(number, 0))
        self.keep([(key, stream, Place(positions, known.deliveries))], is_synced=True)

    def forget(self, key: CursorKey) -> None:
        """A cursor is needed no more."""
        try:
            with self.lock:
                self.database.execute("delete from cursors where owner = ? and name = ?", key)
        except sqlite3.Error as error:
            log.error("a cursor cannot be deleted: %s", error)

    def forget_stream(self, stream: StreamRef) -> None:
        """A stream was deleted: nobody needs cursors of it."""
        try:
            with self.lock:
                self.database.execute("delete from cursors where stream = ?", (stream.text,))
        except sqlite3.Error as error:
            log.error("the cursors of stream %s cannot be deleted: %s", stream.name, error)

    def expire(self) -> int:
        """Deletes those that nobody has used for long; how many."""
        try:
            with self.lock:
                oldest = int(self.clock()) - KEPT
                return self.database.execute(
                    "delete from cursors where used < ?", (oldest,)
                ).rowcount
        except sqlite3.Error as error:
            log.error("old cursors cannot be deleted: %s", error)
            return 0

    def close(self) -> None:
        """Closes the file."""
        with self.lock:
            self.database.close()


def too_many() -> str:
    """That somebody has as many as may be."""
    return f"{MOST} cursors are kept for this user already; accepted: fewer"


def numbers_of(text: str) -> dict[int, int]:
    """A mapping of numbers, as it is kept."""
    return {int(number): int(value) for number, value in json.loads(text).items()}
