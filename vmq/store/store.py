"""Durable sessions and retained messages in LevelDB.

Writes gather in memory and are committed once per pass of the event loop (group commit); whoever
acknowledges something durable waits for that commit (see `vmq.core.output`). With `durability = "os"` a
commit has reached the operating system and survives the death of the process; with "fsync" it
survives power loss; with "memory" nobody waits for it.

Records, by the first byte of their key (integers are big-endian, so that keys sort by number):

    v                          format version
    s client id             -> session number (8), when it went offline (8, milliseconds; 0: online), if the user is
                               known: 1, and its name
    u session filter        -> granted QoS (1)                      a subscription
    q session seq           -> entry                                a message that waits
    i session order         -> entry with packet id                 sent, not acknowledged
    j session               -> runs of places       of what waits, these were sent: see `vmq.store.sent`
    x session packet id     ->                                      QoS 2 packet id received
    h session number        -> node, NUL, entry     a message of another node, not yet its turn to wait
    m number                -> topic, payload                       a message that several entries hold
    c number                -> entries that hold it, if more than 1
    r topic                 -> QoS (1), payload                     retained; with 4 in the QoS whose it is in front of
                               the payload: client id, 1 and the user or nothing, behind their lengths (2, 4)
    g session               -> where it begins, what is deleted     session ended, records to delete; see `end_session`
    b                       -> bytes (8)                            what the messages of all sessions have
    b session               -> bytes (8)                            what those of one have, about
    y life number           -> receipts: what streams may lack of QoS 2 (`vmq.streams.serving.receipts`)
    y                       ->                                      receipts are kept
    z session packet id     -> names of the streams that lack that message; empty: all may
    p query                 -> batch (8), messages published of it (8)      a sink's batch under way
    l                       -> random name of this store (8), life of the broker as a node (8)
    l born                  -> its first life as a node (8)
    l alone                 ->                                      the broker ran without other nodes since
    l clock                 -> by how many milliseconds (8, signed) the wall clock was set while brokers ran, and when
                               this was written (8, `Core.waits_now`)
    o node NUL life number  -> messages     a parcel that another node has not confirmed
    o node NUL              -> how many messages these are (8), their bytes (8)
    k session               -> whose session this is a copy of     a copy that was kept for another node *
    d node NUL store (8) node NUL life number  -> messages, who keeps them  what waited at the first for the second *
    e node, a session node, w session, l copied                             what copies lacked, and whose they were *
    t node                  -> name of its store (8), life (8), number (8)  the last of its messages taken;
                               the same of the store that it had before, if it had one
                               the same of the last that the streams have, if not all
    n node                  -> name of its store, ...   what waits for it is for that one

(*) and h are of nodes whose sessions were in no slots: see `vmq.clustering.running.migration`.

Of what a session has, the records of a kind (q, i, u, x, h) are a line, and an empty record ends each: see
`vmq.store.lines`.

Client ids and topics of a mountpoint have it in front of them, between two NUL bytes, which neither can
contain; those of the empty mountpoint have nothing in front.

A session gets a new number each time it begins, so that deleting an old one (in steps, its queue
may be long) never touches the new one. An entry holds its message itself if it is small and in one
queue only; else it names an `m` record, and a payload is stored once however many queues hold it. What a
share group chose this queue for ends with the group's name and its length (2), so that it can go to another
member after a restart as before. Behind that, what has waited has when it began to (6, `Core.waits_now`), and what
names a message the length of that one's record (4); the other of the two is 0 then.
"""

from collections.abc import Callable
from typing import Any, Final

from vmq.mqtt.message import Message
from vmq.store.entries import (
    encode_retained,
)
from vmq.store.lines import LINES, is_end, line_ends, scan_line
from vmq.store.queue_entries import Entries
from vmq.store.writes import DAMAGED, StoreError

__all__ = ["DAMAGED", "FORMAT", "FORMAT_1", "Store", "StoreError"]

FORMAT: Final = b"vmq 2"

#: An older format, without the ends of lines; they are added when such a store is opened.
FORMAT_1: Final = b"vmq 1"

#: The key of `Store.clock_set`.
CLOCK_SET: Final = b"lclock"


class Store(Entries):
    """One LevelDB database. `schedule` is called when there is something to commit."""

    def __init__(self, db: Any, durability: str, schedule: Callable[[], None]) -> None:
        super().__init__(db, durability, schedule)
        self.next_session: int = 1
        #: What messages may have on disk, in bytes (0: any number); the disk is short of room; see
        #: `vmq.resources.disk`.
        self.max_total: int = 0
        self.is_short = False
        #: Milliseconds by which the wall clock was set while brokers ran: entries have time as if it never was.
        self.clock_set: int = 0
        #: The time, by the one that entries have, when that was noted.
        self.clock_noted: int = 0
        #: That it is full has been told.
        self.was_full = False

    # Writing

    def has_work(self) -> bool:
        """Whether there is anything to commit."""
        return len(self.dirty) > 0 or len(self.unwritten) > 0 or len(self.sent.changed) > 0

    def refuses_session(self, session: bytes) -> bool:
        """Whether something of a session's records cannot be read."""
        if session in self.refused:
            return True
        return self.damage is not None and self.damage.concerns(session)

    def uncommitted(self, session: bytes) -> list[bytes]:
        """The keys of a session's records that commits under way write or delete."""
        self.settle()
        found = self.writing_lines.keys(session) + self.dirty_lines.keys(session)
        return [key for key in dict.fromkeys(found) if not is_end(key)]

    def refuses(self, limit: int) -> bool:
        """Whether new durable work has to be refused: writing fails, or is far behind its `limit`.

        Publishers pause at the limit; so many may come and add one read each that it is passed.
        """
        return self.failing or self.is_short or self.gathered > 2 * limit or self.is_full()

    def is_full(self) -> bool:
        """Whether the messages of sessions have all the room that they may have."""
        return 0 < self.max_total <= self.sizes.total

    def why_refused(self) -> str:
        """Why durable work is refused, for who asked for it."""
        if self.is_short and not self.failing:
            return "the disk of the store is short of room (store.min_free_bytes)"
        if self.is_full() and not self.failing:
            return "the store is full (store.max_bytes)"
        return "the store cannot write"

    def last_barrier(self) -> int:
        """The commit number for everything done so far."""
        if self.acknowledge_early:
            return 0
        return self.number if self.has_work() else self.number - 1

    def begin_commit(self) -> int:
        """Closes the gathering commit; `write` it next, and then tell the outbox its number."""
        self.is_urgent = self.is_due = True
        self.settle()
        for ref, count in self.counts.items():
            self.write_count(ref, count)
        self.counts.clear()
        self.note_sent()
        sizes = self.sizes
        if sizes.total != sizes.noted_total:
            sizes.noted_total = sizes.total
            self.put(b"b", max(0, sizes.total).to_bytes(8, "big"))
        self.answered = 0
        return self.close_writes()

    # Sinks

    def put_progress(self, query: str, batch: int, count: int) -> None:
        """Notes how many messages of a sink's batch are published by the commit under way."""
        self.put(b"p" + query.encode(), batch.to_bytes(8, "big") + count.to_bytes(8, "big"))

    def remove_progress(self, query: str) -> None:
        """The batch is published whole."""
        self.delete(b"p" + query.encode())

    def load_progress(self, query: str) -> tuple[int, int] | None:
        """Batch and count that were noted last."""
        raw = self.get(b"p" + query.encode())
        if raw is None:
            return None
        return int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")

    def put_clock_set(self, milliseconds: int, now: int) -> None:
        """Notes by how much the wall clock was set while brokers ran; `now`: the time that entries have."""
        self.clock_set, self.clock_noted = milliseconds, now
        raw = milliseconds.to_bytes(8, "big", signed=True) + now.to_bytes(8, "big")
        self.put(CLOCK_SET, raw)

    # Nodes of a cluster

    def note_alone(self) -> None:
        """The broker runs without other nodes: if it ever was a node, that will matter when it is one again."""
        self.is_alone = True
        try:
            is_to_note = self.get(b"l") is not None and not self.was_alone()
        except StoreError:
            is_to_note = (
                True  # nobody can say; a broker that never was a node takes no notice of it
            )
        if is_to_note:
            self.put(b"lalone", b"")

    def was_alone(self) -> bool:
        """Whether it ran so since it was a node."""
        return self.get(b"lalone") is not None

    def forget_alone(self) -> None:
        """The other nodes know what it made meanwhile."""
        self.delete(b"lalone")

    # QoS 2 packet ids received

    def put_received(self, session: bytes, packet_id: int) -> None:
        self.put(b"x" + session + packet_id.to_bytes(2, "big"), b"")

    def remove_received(self, session: bytes, packet_id: int) -> None:
        self.delete(b"x" + session + packet_id.to_bytes(2, "big"))

    def load_received(self, session: bytes) -> list[int]:
        line = b"x" + session
        return [int.from_bytes(key[9:], "big") for key, _ in self.read_line(line)]

    # Sessions

    # `scoped_id` is the client id behind the scope of its mountpoint.

    def create_session(self, scoped_id: str, owner: str | None = None) -> bytes:
        """Begins a durable session of a user, or of nobody known, and returns its number."""
        number = self.next_session.to_bytes(8, "big")
        self.next_session += 1
        self.put_session(scoped_id, number, 0, owner)
        self.end_lines(number)
        return number

    def end_lines(self, session: bytes) -> None:
        """Puts the end behind each line of a session, or a copy of one, that begins."""
        for key in line_ends(session):
            self.put(key, b"")

    def put_session(
        self, scoped_id: str, session: bytes, offline_at: int, owner: str | None
    ) -> None:
        value = session + offline_at.to_bytes(8, "big")
        if owner is not None:
            value += b"\1" + owner.encode()
        self.put(b"s" + scoped_id.encode(), value)

    def end_session(self, scoped_id: str, session: bytes, first: int = 1, order: int = 1) -> None:
        """Ends a durable session; `purge_step` deletes what it leaves.

        `first` and `order` are places before which nothing waits, and nothing is in flight: what was deleted there is
        not to be walked over.
        """
        self.delete(b"s" + scoped_id.encode())
        self.leave_to_purge(session, first, order)

    def leave_to_purge(self, session: bytes, first: int = 1, order: int = 1) -> None:
        """Has `purge_step` delete a session's lines; its record stays."""
        if self.sent.take(session):
            self.delete(b"j" + session)
        self.put(b"g" + session, (first - 1).to_bytes(8, "big") + (order - 1).to_bytes(8, "big"))

    def put_subscription(
        self, session: bytes, topic_filter: str, qos: int, asked: str = ""
    ) -> None:
        """A subscription; `asked`: the filter that its client asked for, if that is another one."""
        self.put(b"u" + session + topic_filter.encode(), bytes((qos,)) + asked.encode())

    def remove_subscription(self, session: bytes, topic_filter: str) -> None:
        self.delete(b"u" + session + topic_filter.encode())

    def purge_step(self, session: bytes, limit: int) -> bool:
        """Deletes up to `limit` records of an ended session; False when none is left.

        It goes on behind the last record that it deleted, after a restart too, and walks over no other. The last step
        deletes as well what no commit has written yet: nothing, unless the disk is full.
        """
        note = b"g" + session
        # Where the lines of what waits and of what is in flight begin; the kind, and the rest of the key, of the last.
        begun = self.get(note) or bytes(16)
        done = begun[16:]
        left = limit
        for kind in LINES[LINES.index(done[0]) :] if done else LINES:
            line = bytes((kind,)) + session
            rest = b""
            if done and done[0] == kind:
                rest = done[1:]
            elif kind == LINES[0]:
                rest = begun[:8]
            elif kind == LINES[1]:
                rest = begun[8:16]
            last = line + rest
            for key, raw in scan_line(self.db, line, last if rest else b""):
                if left == 0:
                    self.put(note, begun[:16] + last[:1] + last[9:])
                    return True
                left -= 1
                last = key
                value = self.latest(key, raw)
                # A record that is deleted already has let go of its message already.
                if value is not None:
                    self.purge_record(key, value)
        for key in self.uncommitted(session):
            value = self.get(key)
            if value is not None:
                self.purge_record(key, value)
        for key in line_ends(session):
            self.delete(key)
        if self.sizes.forget(session):
            self.delete(b"b" + session)
        self.delete(note)
        return False

    def purge_record(self, key: bytes, raw: bytes) -> None:
        """Deletes a record of a session; an entry lets go of its message's record."""
        if key[0] in b"qi":
            self.count_raw(key[1:9], raw, False)
        self.delete(key)

    # Retained messages

    def put_retained(self, message: Message, scope: bytes = b"") -> None:
        self.put(b"r" + scope + message.topic, encode_retained(message))

    def remove_retained(self, topic: bytes, scope: bytes = b"") -> None:
        self.delete(b"r" + scope + topic)
