"""Which places of stored queues were sent: what waited and is in flight keeps its entry where it waited.

To move each entry would take two writes a message; to note the places takes one a session and commit. They are noted in
runs, in each of which places, packet ids and orders count up together. Only a client that is there has any: when it
goes, or the broker starts after a crash, what is left of them is moved to where all that is in flight lies otherwise.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

#: Runs that a session has at most: what fits in none of them is moved.
MOST_RUNS: Final = 16
#: Bytes of a run: its first place (8), how many there are (4), the first packet id (2) and order (8).
RUN: Final = 22
#: Packet ids are 1 to this [MQTT-2.3.1-1].
LAST_ID: Final = 65_535


# It holds numbers only.
@mypyc_attr(acyclic=True)
class Run:
    """Places that were sent one behind the other."""

    def __init__(self, place: i64, count: i64, packet_id: i64, order: i64) -> None:
        self.place: i64 = place
        self.count: i64 = count
        self.packet_id: i64 = packet_id
        self.order: i64 = order

    def add(self, place: i64, packet_id: i64, order: i64) -> bool:
        """Takes the next place; False if this one is another."""
        count = self.count
        if place != self.place + count or order != self.order + count:
            return False
        if packet_id != (self.packet_id - 1 + count) % LAST_ID + 1:
            return False
        self.count = count + 1
        return True

    def packet_id_of(self, place: i64) -> int:
        """The packet id under which a place was sent."""
        return (self.packet_id - 1 + place - self.place) % LAST_ID + 1

    def order_of(self, place: i64) -> int:
        """As number what it was sent."""
        return self.order + place - self.place

    def encode(self) -> bytes:
        parts: tuple[int, int, int, int] = (self.place, self.count, self.packet_id, self.order)
        place, count, packet_id, order = parts
        return b"%b%b%b%b" % (
            place.to_bytes(8, "big"),
            count.to_bytes(4, "big"),
            packet_id.to_bytes(2, "big"),
            order.to_bytes(8, "big"),
        )


class SentRuns:
    """The places of one session."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        #: How many of them are in flight. Once none is, a new run begins: the others say nothing any more.
        self.open: i64 = 0
        #: The store has, or gets, a record of them.
        self.is_noted = False

    def encode(self) -> bytes:
        """Their record."""
        return b"".join([run.encode() for run in self.runs])


class SentPlaces:
    """Those of all sessions."""

    def __init__(self) -> None:
        self.sessions: dict[bytes, SentRuns] = {}
        #: Those that have new ones since the last commit.
        self.changed: dict[bytes, SentRuns] = {}
        #: The session that was asked for last: a pass mostly asks for one many times.
        self.last = b""
        self.last_sent = SentRuns()

    def of(self, session: bytes) -> SentRuns:
        if session is not self.last:
            found = self.sessions.get(session)
            if found is None:
                self.sessions[session] = found = SentRuns()
            self.last = session
            self.last_sent = found
        return self.last_sent

    def add(self, session: bytes, place: i64, packet_id: i64, order: i64) -> bool:
        """A place is sent; False if it cannot be noted."""
        sent = self.of(session)
        runs = sent.runs
        if not runs or not runs[-1].add(place, packet_id, order):
            if len(runs) >= MOST_RUNS:
                return False
            runs.append(Run(place, 1, packet_id, order))
        sent.open += 1
        sent.is_noted = True
        self.changed[session] = sent
        return True

    def close(self, session: bytes) -> None:
        """One that was sent is in flight no more: its entry is gone."""
        sent = self.of(session)
        sent.open -= 1
        if sent.open == 0:
            sent.runs.clear()

    def take(self, session: bytes) -> bool:
        """Forgets a session's; whether there may be a record of them."""
        sent = self.sessions.pop(session, None)
        self.changed.pop(session, None)
        self.last = b""
        return sent is not None and sent.is_noted


def runs_of(raw: bytes) -> list[Run]:
    """The runs of a record; a part of one, which only a damaged store shows, is none."""
    found: list[Run] = []
    for start in range(0, len(raw) - RUN + 1, RUN):
        parts = [
            int.from_bytes(raw[start + first : start + behind], "big")
            for first, behind in ((0, 8), (8, 12), (12, 14), (14, RUN))
        ]
        found.append(Run(*parts))
    return found
