"""Lines: the records of one kind that a session has, and the end that stands behind them.

LevelDB keeps what was deleted until it has merged its files, and its iterators walk over all of it up to the next
record that is there, however far behind their bounds that is. So an empty record ends each line, from the beginning of
the session until the rest of it is deleted: who has read the line comes to its end, and not to what was deleted of
others. The session's own deleted records are passed at most once by who goes on behind the last key that it has seen.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

#: The kinds of records of which a session has a line; see `vmq.store.store`.
LINES: Final = b"qiuxh"

#: The rest of the key of an end: behind every place, packet id and filter.
END: Final = b"\xff" * 9

_END_LENGTH: Final = 18


def is_end(key: bytes) -> bool:
    """Whether this key of one of the kinds of lines is that of an end."""
    return len(key) == _END_LENGTH and key.endswith(END)


def line_ends(session: bytes) -> list[bytes]:
    """The keys of the ends of a session's lines."""
    return [bytes((kind,)) + session + END for kind in LINES]


def scan_line(db: Any, line: bytes, behind: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """The committed records of a line, verified, without its end.

    Args:
        db: the database.
        line: what their keys begin with: the kind and the session's number.
        behind: the key behind which to begin.

    Raises:
        Exception: LevelDB's, where a record cannot be read.
    """
    last = start = behind + b"\0" if behind else line
    end = line + END
    for key, value in db.iterator(start=start, stop=end, include_stop=True, verify_checksums=True):
        if key == end:
            return
        yield key, value
        last = key
    check_end(db, last)  # the end is missing, which only a damaged store shows


def places(db: Any, line: bytes) -> tuple[int, int]:
    """The first and the last place of a line of entries; (0, 0) if it is empty.

    Raises:
        Exception: LevelDB's, where a record cannot be read.
    """
    for first, _ in scan_line(db, line):
        end = line + END
        for last, _ in db.iterator(start=line, stop=end, reverse=True, verify_checksums=True):
            return int.from_bytes(first[9:], "big"), int.from_bytes(last[9:], "big")
    return 0, 0


def scan(db: Any, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """The committed records whose keys begin with a prefix, verified; of a kind, the ends of its lines are among them.

    It may walk over what was deleted behind them: of use where it is done once, as at the start.

    Raises:
        Exception: LevelDB's, where a record cannot be read.
    """
    last = prefix
    for key, value in db.iterator(prefix=prefix, reverse=reverse, verify_checksums=True):
        yield key, value
        last = key
    check_end(db, prefix if reverse else last)


def check_end(db: Any, last: bytes) -> None:
    """Raises LevelDB's error if the record behind `last` cannot be read.

    plyvel's iterator asks LevelDB for errors at each record that it comes to, but not where it
    comes to none: then an unreadable block looks like the end of the database.
    """
    behind = db.raw_iterator(verify_checksums=True)
    behind.seek(last)
    if behind.valid():
        behind.next()
    behind.close()


class LineIndex:
    """The keys of sessions' lines among the writes of one commit, which only gains keys.

    It is made as far as it is asked for: of what was there before nothing is looked at again.
    """

    def __init__(self, writes: dict[bytes, bytes | None]) -> None:
        self.writes = writes
        self.seen: int = 0
        self.by_session: dict[bytes, list[bytes]] = {}

    def keys(self, session: bytes) -> list[bytes]:
        """Those of a session, deleted ones and ends too, in no order."""
        writes = self.writes
        fresh = len(writes) - self.seen
        if fresh:
            self.seen = len(writes)
            for key in islice(reversed(writes), fresh):
                if key[0] in LINES:
                    self.by_session.setdefault(key[1:9], []).append(key)
        return self.by_session.get(session, [])
