"""A walk over every record of a store: what it holds, what does not fit together, and mending that.

An entry may name a message that is gone, a count may be wrong, a queue may belong to nobody: all
this only where a store was damaged, and a repair had to leave out what cannot be read.

However many messages wait, memory is bounded: queues are read in order and forgotten, and how often
a message is named is counted in sorted runs on the disk. Only the numbers of all sessions are held
at once, of which a running broker holds much more.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import plyvel

from vmq.mqtt.topics import decode_filter, decode_topic_name
from vmq.store.entries import (
    FLAG_REF,
)
from vmq.store.flaws import (
    decode_client_id,
    entry_flaw,
    has_flaw,
    has_scoped_flaw,
    is_no_session,
    is_not_retained,
    message_flaw,
    show,
)
from vmq.store.lines import LINES, check_end, is_end, line_ends
from vmq.store.opening import no_format, other_format, text_of
from vmq.store.references import Numbered, References
from vmq.store.sent import RUN
from vmq.store.store import CLOCK_SET, FORMAT, FORMAT_1

#: The first bytes of vmq's keys.
KINDS: Final = b"abcdefghijklmnopqrstuvwxyz"

#: Changes that are written at once, and records between two calls of the progress callback.
STEP: Final = 1000

_QOS: Final = (b"\0", b"\1", b"\2")

#: Called with the records done and their total number.
Progress = Callable[[int, int], None]


class StoreReport:
    """What a store holds and what is wrong with it.

    `problems` are those that are there now: after a repair, those that remain. `notes` say what a
    repair did and what was lost.
    """

    def __init__(self) -> None:
        self.sessions: int = 0
        self.subscriptions: int = 0
        self.queued: int = 0
        self.inflight: int = 0
        self.retained: int = 0
        self.messages: int = 0
        self.problems: list[str] = []
        self.notes: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Walk:
    """One pass over all records: counts them, finds what is wrong and, if asked to, mends it."""

    def __init__(self, db: Any, folder: Path, mend: bool) -> None:
        self.db = db
        self.folder = folder
        self.mend = mend
        self.report = StoreReport()
        #: What is wrong -> how often, and where it was seen first.
        self.tallies: dict[str, tuple[int, str]] = {}
        #: There is a record that no broker has written.
        self.malformed = False
        #: LevelDB has read everything so far.
        self.readable = True
        #: Each line has an end: it is no store of version 1.
        self.ends_lines = True
        #: Numbers of the sessions that live, and of those whose records are still to be deleted.
        self.live: set[bytes] = set()
        self.ended: set[bytes] = set()
        self.references = References()
        self.fixes: dict[bytes, bytes | None] = {}
        self.done: int = 0
        self.total: int = 0
        self.progress: Progress | None = None
        #: Takes entries that belong to no session, before they go.
        self.orphan: Callable[[bytes, bytes], None] | None = None

    def run(self) -> None:
        """Walks.

        Raises:
            StoreError: the database is not vmq's, or of another version.
        """
        try:
            self.walk()
        finally:
            self.references.close()
        for what, (count, where) in self.tallies.items():
            self.report.problems.append(f"{what}: {count} (first: {where})")
        if self.progress is not None:
            self.progress(self.total, self.total)

    def walk(self) -> None:
        has_format = self.has_format()
        self.strangers()
        self.sessions()
        self.copies()
        self.ended_sessions()
        self.missing_ends()
        self.subscriptions()
        self.received()
        self.sent()
        self.retained()
        self.receipts()
        self.progress_of_sinks()
        self.sizes()
        self.lanes()
        self.held()
        self.report.queued = self.entries(b"q")
        self.report.inflight = self.entries(b"i")
        # What does not fit together is no news while parts cannot be read.
        dangling = self.messages() if self.readable else self.count_messages()
        if not has_format:
            if self.malformed:
                raise no_format(self.folder)
            if self.done:
                self.found("the format record is missing", "v", b"v", FORMAT)
        self.apply()
        if dangling and self.mend:
            self.drop_dangling()
            self.apply()

    # Reading, findings, changes

    def records(self, **part: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The records of a part of the database, until one cannot be read."""
        last = part.get("prefix", part.get("start", b""))
        try:
            for key, value in self.db.iterator(verify_checksums=True, fill_cache=False, **part):
                yield key, value
                last = key
                self.done += 1
                if self.progress is not None and self.done % STEP == 0:
                    self.progress(min(self.done, self.total), self.total)
            check_end(self.db, last)
        except plyvel.Error as error:
            self.readable = False
            what = f"parts of the database that cannot be read ({text_of(error)})"
            self.tally(what, f"after {show(last)}")

    def tally(self, what: str, where: str, count: int = 1) -> None:
        """Notes a problem."""
        before, first = self.tallies.get(what, (0, where))
        self.tallies[what] = (before + count, first)

    def found(self, what: str, where: str, key: bytes, value: bytes | None = None) -> None:
        """Notes a problem that is mended by putting one record, or deleting it."""
        self.tally(what, where)
        if self.mend:
            self.fixes[key] = value
            if len(self.fixes) >= STEP:
                self.apply()

    def found_malformed(self, flaw: str, key: bytes) -> None:
        self.malformed = True
        self.found(flaw, show(key), key)

    def apply(self) -> None:
        """Writes the changes so far."""
        if not self.fixes:
            return
        with self.db.write_batch() as batch:
            for key, value in self.fixes.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
        self.fixes.clear()

    # Kind by kind

    def has_format(self) -> bool:
        try:
            found: bytes | None = self.db.get(b"v", verify_checksums=True)
        except plyvel.Error:
            return True  # told by the walk over the records of its block
        if found is not None and found not in (FORMAT, FORMAT_1):
            raise other_format(self.folder, found)
        self.ends_lines = found != FORMAT_1
        return found is not None

    def strangers(self) -> None:
        """Records of no kind that is known."""
        start = b""
        for kind in KINDS:
            self.strangers_between(start, bytes((kind,)))
            # Of the kind v there is one record, whose key is no longer.
            start = b"v\0" if kind == ord("v") else bytes((kind + 1,))
        self.strangers_between(start, b"")

    def strangers_between(self, start: bytes, stop: bytes) -> None:
        part = {"start": start}
        if stop:
            part["stop"] = stop
        for key, _ in self.records(**part):
            self.found_malformed("records of an unknown kind", key)

    def sessions(self) -> None:
        for key, value in self.records(prefix=b"s"):
            number = value[:8]
            if is_no_session(value) or has_scoped_flaw(decode_client_id, key[1:]):
                self.found_malformed("ill-formed session records", key)
            elif number in self.live:
                self.found("sessions with the number of another one", show(key), key)
            else:
                self.live.add(number)
                self.report.sessions += 1

    def copies(self) -> None:
        """Copies of other nodes' sessions: their records are as those of sessions."""
        for key, value in self.records(prefix=b"k"):
            number = key[1:]
            if len(number) != 8 or not value:
                self.found_malformed("ill-formed copies of sessions", key)
            elif number in self.live:
                self.found("copies with the number of a session", show(key), key)
            else:
                self.live.add(number)
        for key, value in self.records(prefix=b"e"):
            if has_flaw(decode_client_id, key[1:]) or not value:
                self.found_malformed("ill-formed records of other nodes' copies", key)
        for key, value in self.records(prefix=b"a"):
            if len(key) < 9 or len(value) % 32 or not value:
                self.found_malformed("ill-formed marks of copies", key)
        for key, value in self.records(prefix=b"d"):
            origin, _, rest = key[1:].partition(b"\0")
            is_sound = len(rest) > 25 and rest[-17:-16] == b"\0" and value
            if not is_sound or has_flaw(decode_client_id, origin):
                self.found_malformed("ill-formed messages that other nodes left here", key)
        for key, value in self.records(prefix=b"w"):
            if len(key) != 9 or not value:
                self.found_malformed("ill-formed origins of sessions", key)
        for key, value in self.records(prefix=b"f"):
            if len(key) != 9 or any(
                has_flaw(decode_client_id, name) for name in value.split(b"\0")
            ):
                self.found_malformed("ill-formed names of nodes that route sessions elsewhere", key)

    def ended_sessions(self) -> None:
        for key, value in self.records(prefix=b"g"):
            number = key[1:]
            # Where to begin with what waits and what is in flight; the last record that was deleted.
            is_place = len(value) == 16 or (len(value) > 16 and value[16] in LINES)
            if len(number) != 8 or (value and not is_place):
                self.found_malformed("ill-formed records of ended sessions", key)
            elif number in self.live:
                self.found("ended sessions that live", show(key), key)
            else:
                self.ended.add(number)

    def missing_ends(self) -> None:
        """Lines without an end, which would only be slow to read."""
        if not self.ends_lines or not self.readable:
            return
        for number in sorted(self.live):
            for key in line_ends(number):
                if self.db.get(key) is None:
                    self.found("lines of records without an end", show(key), key, b"")

    def is_end(self, key: bytes, value: bytes) -> bool:
        """Whether a record is the end of a line, which is looked at here."""
        if not is_end(key):
            return False
        if value:
            self.found_malformed("ill-formed ends of lines of records", key)
        else:
            self.has_session(key, "ends of lines of records")
        return True

    def receipts(self) -> None:
        """Receipts that streams may lack; a record that says nothing is of no use to anybody."""
        for key, value in self.records(prefix=b"y"):
            if len(key) not in (1, 17) or (len(key) == 1) != (value == b""):
                self.found_malformed("ill-formed receipts", key)
        for key, value in self.records(prefix=b"z"):
            if len(key) != 11 or (value and has_flaw(decode_client_id, value.replace(b"\0", b"/"))):
                self.found_malformed("ill-formed records of what streams lack", key)

    def progress_of_sinks(self) -> None:
        for key, value in self.records(prefix=b"p"):
            if len(value) != 16 or has_flaw(decode_client_id, key[1:]):
                self.found_malformed("ill-formed records of sinks", key)

    def sizes(self) -> None:
        """What the messages of sessions have on disk; after a repair the broker counts anew."""
        for key, value in self.records(prefix=b"b"):
            if len(key) not in (1, 9) or len(value) != 8:
                self.found_malformed("ill-formed sizes of sessions", key)
            elif self.mend:
                self.fixes[key] = None

    def lanes(self) -> None:
        """What belongs to messages between nodes."""
        for key, value in self.records(prefix=b"l"):
            is_place = key in (b"l", b"lcopied") and len(value) == 16
            is_clock = key == CLOCK_SET and len(value) == 16
            is_born = key == b"lborn" and len(value) == 8
            if not (is_place or is_clock or is_born) and (key, value) != (b"lalone", b""):
                self.found_malformed("ill-formed records of this node", key)
        for key, value in self.records(prefix=b"o"):
            name, _, place = key[1:].partition(b"\0")
            is_sound = bool(value) if len(place) == 16 else not place and len(value) == 16
            if not is_sound or has_flaw(decode_client_id, name):
                self.found_malformed("ill-formed messages to other nodes", key)
        for key, value in self.records(prefix=b"t"):
            if len(value) not in (24, 48, 72) or has_flaw(decode_client_id, key[1:]):
                self.found_malformed("ill-formed records of other nodes", key)
        for key, value in self.records(prefix=b"n"):
            if not value or has_flaw(decode_client_id, key[1:]):
                self.found_malformed("ill-formed records of other nodes' stores", key)

    def held(self) -> None:
        """Messages that wait for their turn to wait."""
        for key, value in self.records(prefix=b"h"):
            if self.is_end(key, value):
                continue
            node, end, entry = value.partition(b"\0")
            if (
                len(key) != 17
                or not end
                or has_flaw(decode_client_id, node)
                or entry_flaw(b"q" + key[1:], entry)
                or entry[0] & FLAG_REF
            ):
                self.found_malformed("ill-formed held messages", key)
            else:
                self.has_session(key, "held messages")

    def has_session(self, key: bytes, what: str) -> bool:
        """Whether a record's session exists; if not, the record is noted."""
        number = key[1:9]
        if number in self.live or number in self.ended or not self.readable:
            return True
        self.found(f"{what} of no session", show(key), key)
        return False

    def subscriptions(self) -> None:
        for key, value in self.records(prefix=b"u"):
            if self.is_end(key, value):
                continue
            asked = value[1:] or key[9:]
            if value[:1] not in _QOS or any(
                has_flaw(decode_filter, each) for each in (key[9:], asked)
            ):
                self.found_malformed("ill-formed subscriptions", key)
            elif self.has_session(key, "subscriptions"):
                self.report.subscriptions += 1

    def received(self) -> None:
        for key, value in self.records(prefix=b"x"):
            if self.is_end(key, value):
                continue
            if len(key) != 11 or key.endswith(b"\0\0") or value:
                self.found_malformed("ill-formed records of received packet ids", key)
            else:
                self.has_session(key, "received packet ids")

    def sent(self) -> None:
        for key, value in self.records(prefix=b"j"):
            if len(key) != 9 or len(value) % RUN:
                self.found_malformed("ill-formed records of places that were sent", key)
            else:
                self.has_session(key, "places that were sent")

    def retained(self) -> None:
        for key, value in self.records(prefix=b"r"):
            if has_scoped_flaw(decode_topic_name, key[1:]) or is_not_retained(value):
                self.found_malformed("ill-formed retained messages", key)
            else:
                self.report.retained += 1

    def entries(self, kind: bytes) -> int:
        """The entries of all queues, or all inflight entries; returns how many are sound."""
        what = "inflight entries" if kind == b"i" else "queue entries"
        count = 0
        session = b""
        by_packet_id: dict[int, bytes] = {}
        for key, value in self.records(prefix=kind):
            if self.is_end(key, value):
                continue
            if entry_flaw(key, value):
                self.found_malformed(f"ill-formed {what}", key)
                continue
            if self.has_session(key, what):
                count += 1
            elif self.mend:
                if self.orphan is not None:
                    self.orphan(key, value)
                continue  # it goes, and lets go of its message
            if kind == b"i":
                if key[1:9] != session:
                    session = key[1:9]
                    by_packet_id.clear()
                packet_id = value[1] << 8 | value[2]
                older = by_packet_id.get(packet_id)
                by_packet_id[packet_id] = key
                if older is not None:
                    self.drop_older(older)
            if value[0] & FLAG_REF:
                self.references.add(int.from_bytes(value[3:11], "big"))
        return count

    def drop_older(self, key: bytes) -> None:
        """An inflight entry goes whose packet id a later one has, and lets go of its message."""
        value = self.db.get(key) if self.mend else b"\0"
        if value[0] & FLAG_REF:
            self.references.add(int.from_bytes(value[3:11], "big"), -1)
        self.found("packet ids in flight twice", show(key), key)

    # Messages and how often they are named

    def count_messages(self) -> bool:
        for _ in self.records(prefix=b"m"):
            self.report.messages += 1
        return False

    def messages(self) -> bool:
        """Compares message records, counts and references; True if a message is missing."""
        references = Numbered(iter(self.references))
        counts = Numbered(self.counts())
        dangling = False
        for key, value in self.records(prefix=b"m"):
            if len(key) != 9 or message_flaw(value, 0):
                self.found_malformed("ill-formed messages", key)
                continue
            self.report.messages += 1
            number = int.from_bytes(key[1:], "big")
            dangling |= self.missing(references.skip_to(number))
            self.pointless(counts.skip_to(number))
            self.compare(key, references.take(number), counts.take(number))
        dangling |= self.missing(references.skip_to(1 << 64))
        self.pointless(counts.skip_to(1 << 64))
        return dangling

    def counts(self) -> Iterator[tuple[int, int]]:
        for key, value in self.records(prefix=b"c"):
            if len(key) != 9 or len(value) != 4:
                self.found_malformed("ill-formed counts", key)
            else:
                yield int.from_bytes(key[1:], "big"), int.from_bytes(value, "big")

    def missing(self, named: Iterator[tuple[int, int]]) -> bool:
        some = False
        for number, count in named:
            self.tally("entries whose message is missing", f"message {number}", count)
            some = True
        return some

    def pointless(self, counts: Iterator[tuple[int, int]]) -> None:
        for number, _ in counts:
            self.found(
                "counts of no message", f"message {number}", b"c" + number.to_bytes(8, "big")
            )

    def compare(self, key: bytes, named: int, count: int) -> None:
        """A message's record, how often it is named, and its count (0: it has none)."""
        count_key = b"c" + key[1:]
        if not named:
            self.found("messages that nothing names", show(key), key)
            if count and self.mend:
                self.fixes[count_key] = None
        elif count != (named if named > 1 else 0):
            right = named.to_bytes(4, "big") if named > 1 else None
            self.found("wrong counts", f"{show(key)}: {count} for {named}", count_key, right)

    def drop_dangling(self) -> None:
        """Deletes the entries whose message is missing; they are tallied already."""
        for kind in (b"q", b"i"):
            for key, value in self.records(prefix=kind):
                if value and value[0] & FLAG_REF and self.db.get(b"m" + value[3:11]) is None:
                    self.fixes[key] = None
                    if len(self.fixes) >= STEP:
                        self.apply()
