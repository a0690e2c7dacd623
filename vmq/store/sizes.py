"""How many bytes the messages of durable sessions have on disk: each session's, and all together.

Counted as they come and go. What all have together is written with each commit, so that it is exact after a crash. What
one session has is written whenever it has changed by `DRIFT`, and is so far off after a crash at most.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

#: Bytes by which what is noted of a session may be wrong.
DRIFT: Final = 65_536


@mypyc_attr(acyclic=True)
class Size:
    """The bytes of one session, and what the store has of them; -1 = nothing."""

    def __init__(self, size: i64, noted: i64) -> None:
        self.size: i64 = size
        self.noted: i64 = noted


class Sizes:
    """Bytes of entries and of the messages that these name.

    A message that several entries name counts in full for each of their sessions, and once in `total`.
    """

    def __init__(self) -> None:
        self.total: int = 0
        self.sessions: dict[bytes, Size] = {}
        #: The session that was counted last: a pass mostly counts for one many times.
        self.last = b""
        self.last_size = Size(0, -1)
        #: What the store has of the total.
        self.noted_total: int = 0

    def of(self, session: bytes) -> int:
        """What the messages for one session have."""
        found = self.sessions.get(session)
        return 0 if found is None else found.size

    def count(self, session: bytes, change: i64) -> bool:
        """A session has so much more; whether that is to be noted."""
        if session is not self.last:
            self.look_up(session)
        found = self.last_size
        size: i64 = found.size + change
        if size < 0:  # noqa: PLR1730 - compiled, max() would box both
            size = 0  # it was off after a crash
        found.size = size
        drift: i64 = size - found.noted
        return drift > DRIFT or drift < -DRIFT

    def look_up(self, session: bytes) -> None:
        found = self.sessions.get(session)
        if found is None:
            self.sessions[session] = found = Size(0, -1)
        self.last = session
        self.last_size = found

    def note(self, session: bytes) -> int:
        """The store has what a session has now, which is returned."""
        found = self.sessions[session]
        found.noted = found.size
        return found.size

    def known(self, session: bytes, size: i64) -> None:
        """The store says what a session has."""
        self.sessions[session] = Size(size, size)
        self.last = b""

    def forget(self, session: bytes) -> bool:
        """A session is over; whether anything is noted of it."""
        found = self.sessions.pop(session, None)
        self.last = b""
        return found is not None and found.noted >= 0
