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
    l alone                 ->                                      the broker ran without other nodes since
    l copied                -> life (8), commit (8)                 the last that had something for copies
    o node NUL life number  -> messages     a parcel that another node has not confirmed
    o node NUL              -> how many messages these are (8), their bytes (8)
    k session               -> whose session this is a copy of     a copy that is kept for another node
    e node                  -> lives of its store, numbers, commits         how far its copies are here
    a session node          -> (life, commit, places; 8 each) ...   what that node's copies may lack
    d node NUL store (8) node NUL life number  -> messages, who keeps them  what waits at the first for the second
    w session               -> owner, session, node                 the copy that this one was made of
    t node                  -> name of its store (8), life (8), number (8)  the last of its messages taken;
                               the same of the store that it had before, if it had one
                               the same of the last that the streams have, if not all
    n node                  -> name of its store, ...   what waits for it is for that one

Of what a session has, the records of a kind (q, i, u, x, h) are a line, and an empty record ends each: see
`vmq.store.lines`.

Client ids and topics of a mountpoint have it in front of them, between two NUL bytes, which neither can
contain; those of the empty mountpoint have nothing in front.

A session gets a new number each time it begins, so that deleting an old one (in steps, its queue
may be long) never touches the new one. An entry holds its message itself if it is small and in one
queue only; else it names an `m` record, and a payload is stored once however many queues hold it. What a
share group chose this queue for ends with the group's name and its length (2), so that it can go to another
member after a restart as before. Behind that, what has waited has when it began to (6, milliseconds), and what names a
message the length of that one's record (4); the other of the two is 0 then.
"""

from collections.abc import Callable
from typing import Any, Final

from vmq.mqtt.encoder import PACKET_IDS
from vmq.mqtt.message import NO_MESSAGE, Delivery, Message
from vmq.store.damage import ADVICE, Damage
from vmq.store.entries import (
    FLAG_GROUP,
    FLAG_NOTE,
    FLAG_REF,
    FLAG_RELEASED,
    FLAG_RETAIN,
    HEADS,
    INLINE_PAYLOAD,
    NOTE,
    decode_message,
    encode_message,
    encode_retained,
    inflight_key,
    number_in,
    record_size,
    split_group,
    waiting_key,
)
from vmq.store.lines import LINES, LineIndex, is_end, line_ends, scan_line
from vmq.store.sent import SentPlaces
from vmq.store.sizes import Sizes

FORMAT: Final = b"vmq 2"

#: An older format, without the ends of lines; they are added when such a store is opened.
FORMAT_1: Final = b"vmq 1"


#: Why a session is refused.
DAMAGED: Final = "part of its stored session is damaged: " + ADVICE

#: What stands for the record behind the last: its place is none.
NO_RECORD: Final = (bytes(17), b"")

#: How many entries name a message whose count cannot be read: too many for it to be deleted.
UNKNOWN_COUNT: Final = 1 << 30


class StoreError(Exception):
    """The store cannot be used; the text says why and what to do."""


class Store:
    """One LevelDB database. `schedule` is called when there is something to commit."""

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
        #: How many entries name each message's record, where that changed since the last commit.
        self.counts: dict[int, int] = {}
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
        #: Deliveries at QoS 1 to clients that are there, each with its session, in order. Their entries are made when
        #: the commit closes: of what is acknowledged before nothing is ever written.
        self.unwritten: dict[Delivery, bytes] = {}
        #: How many of these were acknowledged, or gone, since the last commit.
        self.answered: int = 0
        #: The gathering commit is asked for; and so that it comes without delay.
        self.is_due = False
        self.is_urgent = False
        #: Told of each failure to read.
        self.on_unreadable: Callable[[Exception], None] | None = None
        #: Counts every put and delete, so that a caller sees whether its work was durable.
        self.writes: int = 0
        self.next_message: int = 1
        self.next_session: int = 1
        self.sizes = Sizes()
        #: What was sent and keeps its entry where it waited; whether it may: no other node has copies of entries.
        self.sent = SentPlaces()
        self.is_alone = False
        #: The note that was written last, and of what: a message's entries follow each other, and what waits for one
        #: commit waits since one time.
        self.note = bytes(NOTE)
        self.noted_since: int = 0
        self.noted_size: int = 0
        #: The last entry that names a message's record, of what waits: those of a message for many are the same.
        self.naming = b""
        self.named: int = 0
        self.named_since: int = 0
        self.named_flags: int = 0
        #: What messages may have on disk, in bytes (0: any number); the disk is short of room; see
        #: `vmq.resources.disk`.
        self.max_total: int = 0
        self.is_short = False
        #: That it is full has been told.
        self.was_full = False

    # Writing

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
        """The same of what nobody waits for: it goes with a commit soon."""
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

    def has_work(self) -> bool:
        """Whether there is anything to commit."""
        return len(self.dirty) > 0 or len(self.unwritten) > 0 or len(self.sent.changed) > 0

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

    def refuses_session(self, session: bytes) -> bool:
        """Whether something of a session's records cannot be read."""
        if session in self.refused:
            return True
        return self.damage is not None and self.damage.concerns(session)

    def latest(self, key: bytes, committed: bytes) -> bytes | None:
        """A record with what has been written since it was read from the disk; None: it is deleted."""
        for writes in (self.dirty, self.writing):
            if key in writes:
                return writes[key]
        return committed

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

    def barrier(self) -> int:
        """The commit number that an acknowledgement of work done now has to wait for."""
        return 0 if self.acknowledge_early else self.number

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
        self.writing = self.dirty
        self.writing_lines = self.dirty_lines
        self.dirty = {}
        self.dirty_lines = LineIndex(self.dirty)
        self.closed = self.gathered
        self.gathered = 0
        self.is_urgent = self.is_due = False
        self.answered = 0
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

    # Messages

    def count_of(self, ref: int) -> int:
        """How many queue entries name a message's record."""
        count = self.counts.get(ref)
        if count is None:
            try:
                raw = self.get(b"c" + ref.to_bytes(8, "big"))
            except StoreError:
                return UNKNOWN_COUNT
            count = 1 if raw is None else int.from_bytes(raw, "big")
        return count

    def write_count(self, ref: int, count: int) -> None:
        if count > UNKNOWN_COUNT >> 1:
            return
        key = ref.to_bytes(8, "big")
        if count <= 0:
            self.delete(b"m" + key)
            self.delete(b"c" + key)
        elif count == 1:
            self.delete(b"c" + key)
        else:
            self.put(b"c" + key, count.to_bytes(4, "big"))

    def hold(self, message: Message) -> int:
        """One more queue entry names the message's record, which is written at the first."""
        ref = message.ref
        if ref:
            count = self.counts.get(ref)
            # A retained message may come back after its record was deleted.
            if count is None and self.has_message(ref):
                count = self.count_of(ref)
            if count is not None:
                if count == 0:  # it was to go with this commit
                    self.sizes.total += record_size(message)
                self.counts[ref] = count + 1
                return ref
        message.ref = ref = self.next_message
        self.next_message = ref + 1
        self.counts[ref] = 1
        self.sizes.total += record_size(message)
        self.put(b"m" + ref.to_bytes(8, "big"), encode_message(message.topic, message.payload))
        return ref

    def has_message(self, ref: int) -> bool:
        """Whether a message's record is there, and can be read."""
        try:
            return self.get(b"m" + ref.to_bytes(8, "big")) is not None
        except StoreError:
            return False

    def let_go(self, ref: int, size: int) -> None:
        """One queue entry less names the message's record, which is so long."""
        count = self.count_of(ref) - 1
        self.counts[ref] = count
        if count == 0:
            self.sizes.total -= size

    def load_message(self, ref: int) -> Message | None:
        """The message of a record."""
        raw = self.get(b"m" + ref.to_bytes(8, "big"))
        if raw is None:
            return None
        message = decode_message(raw, 0, 1)
        message.ref = ref
        return message

    # Queue entries

    def entry(self, delivery: Delivery) -> bytes:
        message = delivery.message
        pid = delivery.packet_id
        flags = delivery.qos
        if delivery.retain:
            flags |= FLAG_RETAIN
        tail = b""
        if delivery.released:
            flags |= FLAG_RELEASED
        elif delivery.group:
            flags |= FLAG_GROUP
            name = delivery.group.encode()
            tail = name + len(name).to_bytes(2, "big")
        if delivery.ref:
            flags |= FLAG_REF | FLAG_NOTE
            since = delivery.since
            if tail or pid:
                return self.naming_entry(delivery, flags, tail)
            if self.named != delivery.ref or self.named_since != since or self.named_flags != flags:
                self.named, self.named_since, self.named_flags = delivery.ref, since, flags
                self.naming = self.naming_entry(delivery, flags, b"")
            return self.naming
        topic = message.topic
        note = b""
        if delivery.since:
            flags |= FLAG_NOTE
            note = self.note_of(delivery.since, 0)
        return b"%b%b%b%b%b%b%b" % (
            HEADS[flags],
            PACKET_IDS[pid],
            PACKET_IDS[len(topic)],
            topic,
            message.payload,
            tail,
            note,
        )

    def naming_entry(self, delivery: Delivery, flags: int, tail: bytes) -> bytes:
        """One that names the message's record."""
        note = self.note_of(delivery.since, record_size(delivery.message))
        ref = delivery.ref.to_bytes(8, "big")
        return b"%b%b%b%b%b" % (HEADS[flags], PACKET_IDS[delivery.packet_id], ref, tail, note)

    def note_of(self, since: int, size: int) -> bytes:
        """What ends an entry with `FLAG_NOTE`; `size` is that of the message's record."""
        if since != self.noted_since or size != self.noted_size:
            self.noted_since = since
            self.noted_size = size
            self.note = since.to_bytes(6, "big") + size.to_bytes(4, "big")
        return self.note

    def read_entry(self, raw: bytes) -> Delivery | None:
        """The delivery of an entry; None if its message is gone, which only a damaged store shows."""
        flags = raw[0]
        message: Message | None
        ref = 0
        group = ""
        since = 0
        weight = len(raw)
        if flags & FLAG_NOTE:
            since = number_in(raw, weight - NOTE, weight - 4)
            raw = raw[:-NOTE]
        if flags & FLAG_GROUP:
            raw, group = split_group(raw)
        if flags & FLAG_RELEASED:
            message = NO_MESSAGE
        elif flags & FLAG_REF:
            ref = number_in(raw, 3, 11)
            message = self.load_message(ref)
            if message is None:
                return None
            weight += record_size(message)
        else:
            message = decode_message(raw, 3, flags & 3)
        delivery = Delivery(message, flags & 3, flags & FLAG_RETAIN != 0, group)
        delivery.ref = ref
        delivery.weight = weight
        delivery.since = since
        delivery.packet_id = raw[1] << 8 | raw[2]
        delivery.released = flags & FLAG_RELEASED != 0
        return delivery

    def put_entry(self, key: bytes, session: bytes, delivery: Delivery) -> None:
        """Writes a delivery's entry, and counts it."""
        raw = self.entry(delivery)
        weight = len(raw)
        self.sizes.total += weight
        if delivery.ref:
            weight += record_size(delivery.message)
        delivery.key = key
        delivery.weight = weight
        self.count(session, weight)
        self.put(key, raw)

    def count(self, session: bytes, change: int) -> None:
        """The messages of a session have so many bytes more."""
        if self.sizes.count(session, change):
            self.put(b"b" + session, self.sizes.note(session).to_bytes(8, "big"))

    def clear_size(self, session: bytes) -> None:
        """A session is found to have no messages at the start, whatever was noted of it."""
        self.count(session, -self.sizes.of(session))

    def discount(self, session: bytes, delivery: Delivery, is_over: bool) -> None:
        """An entry is gone; `is_over`: no other takes its place, which would name the same message's record."""
        weight = delivery.weight
        self.count(session, -weight)
        ref = delivery.ref
        if ref:
            size = record_size(delivery.message)
            weight -= size
            if is_over:
                self.let_go(ref, size)
        self.sizes.total -= weight

    def count_raw(self, session: bytes, raw: bytes, is_there: bool) -> None:
        """An entry, as it is written, is there or gone; one that is gone lets go of its message's record."""
        size = 0
        if raw[0] & FLAG_REF:
            ref = int.from_bytes(raw[3:11], "big")
            if raw[0] & FLAG_NOTE:
                size = int.from_bytes(raw[-4:], "big")
            else:
                record = self.get(b"m" + raw[3:11])
                size = 0 if record is None else len(record)
            if not is_there:
                self.let_go(ref, size)
        weight = len(raw)
        self.sizes.total += weight if is_there else -weight
        weight += size
        self.count(session, weight if is_there else -weight)

    # The entry of a delivery at QoS 1 to a client that is there may be put off until the commit closes: it has no key
    # until then, and nobody was acknowledged what only it holds.

    def put_off(self, session: bytes, delivery: Delivery) -> None:
        """Has the entry of a delivery that has none yet made when the commit closes."""
        if not self.is_due:
            self.is_due = True
            self.schedule()
        self.writes += 1
        if delivery not in self.unwritten:
            self.gathered += 1
            weight = 5 + len(delivery.message.topic) + len(delivery.message.payload)
            if delivery.since:
                weight += NOTE
            delivery.weight = weight
            self.sizes.total += weight
            self.count(session, weight)
            self.unwritten[delivery] = session

    def settle(self) -> None:
        """Makes the entries that were put off."""
        unwritten = self.unwritten
        if not unwritten:
            return
        self.unwritten = {}
        for delivery, session in unwritten.items():
            self.uncount(session, delivery)
            if delivery.order:
                self.put_inflight(session, delivery)
            else:
                self.put_waiting(session, delivery)

    def answer(self, session: bytes, delivery: Delivery) -> None:
        """A delivery whose entry was put off needs none."""
        del self.unwritten[delivery]
        self.answered += 1
        self.writes += 1
        self.uncount(session, delivery)
        if not self.unwritten and not self.is_urgent:
            self.hasten()  # their publishers may be told

    def uncount(self, session: bytes, delivery: Delivery) -> None:
        """What `put_off` counted of an entry that was not there."""
        weight = delivery.weight
        self.sizes.total -= weight
        self.count(session, -weight)

    def put_waiting(self, session: bytes, delivery: Delivery) -> None:
        """A delivery joins the session's stored queue at its `seq`."""
        message = delivery.message
        if message.share or len(message.payload) > INLINE_PAYLOAD:
            delivery.ref = self.hold(message)
        self.put_entry(waiting_key(session, delivery.seq), session, delivery)

    def put_inflight(self, session: bytes, delivery: Delivery) -> None:
        """A delivery is sent under its packet id, as number `order`; it may have waited before."""
        if delivery in self.unwritten:
            return
        if delivery.key:
            self.delete(delivery.key)
            self.discount(session, delivery, False)
        else:
            message = delivery.message
            if message.share or len(message.payload) > INLINE_PAYLOAD:
                delivery.ref = self.hold(message)
        delivery.seq = 0
        delivery.since = 0
        self.put_entry(inflight_key(session, delivery.order), session, delivery)

    def put_sent(self, session: bytes, delivery: Delivery) -> bool:
        """The same, but what waited may keep its entry where it is, which is noted; whether it does."""
        if self.is_alone and delivery.key and delivery.qos == 1:
            if self.sent.add(session, delivery.seq, delivery.packet_id, delivery.order):
                if not self.is_urgent:
                    self.hasten()
                self.writes += 1
                return True
        self.put_inflight(session, delivery)
        return False

    def note_sent(self) -> None:
        """Notes the places that were sent since the last commit."""
        changed = self.sent.changed
        if changed:
            for session, sent in changed.items():
                self.put(b"j" + session, sent.encode())
            changed.clear()

    def move_sent(self, session: bytes, inflight: list[Delivery]) -> None:
        """Moves what of a session's messages in flight has its entry where it waited."""
        if self.sent.take(session):
            for delivery in inflight:
                if delivery.seq:
                    self.put_inflight(session, delivery)
            self.delete(b"j" + session)

    def remove_waiting(self, session: bytes, delivery: Delivery) -> None:
        """A delivery leaves the stored queue unsent."""
        if delivery in self.unwritten:
            self.answer(session, delivery)
            return
        self.delete(delivery.key or waiting_key(session, delivery.seq))
        self.discount(session, delivery, True)

    def remove_inflight(self, session: bytes, delivery: Delivery) -> None:
        """A delivery was acknowledged."""
        if delivery in self.unwritten:
            self.answer(session, delivery)
            return
        self.delete_later(delivery.key or inflight_key(session, delivery.order))
        self.discount(session, delivery, True)
        if delivery.seq:
            delivery.seq = 0
            self.sent.close(session)

    def put_released(self, session: bytes, delivery: Delivery, order: int) -> None:
        """PUBREC came: only the packet id is left, at a new place in the order of the PUBRECs."""
        self.remove_inflight(session, delivery)
        delivery.message = NO_MESSAGE
        delivery.released = True
        delivery.order = order
        delivery.ref = 0
        self.put_entry(inflight_key(session, order), session, delivery)

    def load_waiting(self, session: bytes, seq: int) -> Delivery | None:
        """The delivery at one place of the stored queue; None if there is none."""
        key = waiting_key(session, seq)
        try:
            raw = self.get(key)
            delivery = None if raw is None else self.read_entry(raw)
        except StoreError:
            self.refused.add(session)
            raise
        if delivery is not None:
            delivery.seq = seq
            delivery.key = key
        return delivery

    def load_run(self, session: bytes, first: int, last: int, most: int) -> list[Delivery | None]:
        """The deliveries at some places of the stored queue, as `load_waiting` has each, until they have `most` bytes.

        Raises:
            StoreError: the first of them cannot be read.
        """
        found: list[Delivery | None] = []
        size = 0
        try:
            start, stop = waiting_key(session, first), waiting_key(session, last)
            records = self.db.iterator(
                start=start, stop=stop, include_stop=True, verify_checksums=True
            )
            there = iter(records)
            key, raw = next(there, NO_RECORD)
            for seq in range(first, last + 1):
                is_there = seq == number_in(key, 9, 17)
                delivery: Delivery | None
                if is_there and key not in self.dirty and key not in self.writing:
                    delivery = self.read_entry(raw)
                    if delivery is not None:
                        delivery.seq = seq
                        delivery.key = key
                else:
                    delivery = self.load_waiting(session, seq)
                if is_there:
                    key, raw = next(there, NO_RECORD)
                found.append(delivery)
                if delivery is not None:
                    size += delivery.message.length()
                    if size >= most:
                        break
        except Exception as error:
            if not found:
                self.refused.add(session)
                if isinstance(error, StoreError):
                    raise
                raise self.unreadable(error) from error
        return found

    def load_inflight(self, session: bytes, first: int = 1) -> list[Delivery]:
        """All unacknowledged deliveries in order, as a broker finds them after its start; none is before `first`."""
        found: list[Delivery] = []
        line = b"i" + session
        for key, raw in self.read_line(line, line + (first - 1).to_bytes(8, "big")):
            try:
                delivery = self.read_entry(raw)
            except StoreError:
                self.refused.add(session)
                raise
            if delivery is not None:
                delivery.order = int.from_bytes(key[9:], "big")
                delivery.key = key
                found.append(delivery)
        return found

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

    def put_subscription(self, session: bytes, topic_filter: str, qos: int) -> None:
        self.put(b"u" + session + topic_filter.encode(), bytes((qos,)))

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

    def is_deleted(self, key: bytes) -> bool:
        """Whether a record of the database is deleted by a commit that is still under way."""
        if key in self.dirty:
            return self.dirty[key] is None
        return key in self.writing and self.writing[key] is None

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
