"""Durable sessions and retained messages in LevelDB.

Writes gather in memory and are committed once per pass of the event loop (group commit); whoever
acknowledges something durable waits for that commit (see `vmq.output`). With `durability = "os"` a
commit has reached the operating system and survives the death of the process; with "fsync" it
survives power loss; with "memory" nobody waits for it.

Records, by the first byte of their key (integers are big-endian, so that keys sort by number):

    v                          format version
    s client id             -> session number (8), when it went offline (8, milliseconds; 0: online)
    u session filter        -> granted QoS (1)                      a subscription
    q session seq           -> entry                                a message that waits
    i session order         -> entry with packet id                 sent, not acknowledged
    x session packet id     ->                                      QoS 2 packet id received
    h session number        -> node, NUL, entry     a message of another node, not yet its turn to wait
    m number                -> topic, payload                       a message that several entries hold
    c number                -> entries that hold it, if more than 1
    r topic                 -> QoS (1), payload                     retained
    g session               ->                                      session ended, records to delete
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

Client ids and topics of a mountpoint have it in front of them, between two NUL bytes, which neither can
contain; those of the empty mountpoint have nothing in front.

A session gets a new number each time it begins, so that deleting an old one (in steps, its queue
may be long) never touches the new one. An entry holds its message itself if it is small and in one
queue only; else it names an `m` record, and a payload is stored once however many queues hold it. What a
share group chose this queue for ends with the group's name and its length (2), so that it can go to another
member after a restart as before.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from vmq.message import NO_MESSAGE, Delivery, Message

FORMAT: Final = b"vmq 1"

FLAG_RETAIN: Final = 4
FLAG_REF: Final = 8
FLAG_RELEASED: Final = 16
FLAG_GROUP: Final = 32

#: A larger payload gets a record of its own: a queue entry is rewritten when it is sent.
INLINE_PAYLOAD: Final = 1024


class StoreError(Exception):
    """The store cannot be used; the text says why and what to do."""


def encode_message(topic: bytes, payload: bytes) -> bytes:
    """Topic length (2), topic, payload."""
    return len(topic).to_bytes(2, "big") + topic + payload


def decode_message(raw: bytes, start: int, qos: int) -> Message:
    """The message that begins at `start`."""
    body = start + 2
    end = body + (raw[start] << 8 | raw[start + 1])
    return Message(raw[body:end], raw[end:], qos, False)


def split_group(raw: bytes) -> tuple[bytes, str]:
    """An entry that has a share group, without it, and the group's name.

    Raises:
        UnicodeDecodeError: the name is no text, which only a damaged store shows.
    """
    end = len(raw) - 2
    start = end - (raw[end] << 8 | raw[end + 1])
    return raw[:start], raw[start:end].decode()


def scope_of(mountpoint: str) -> str:
    """What stands in front of the client ids and topics of a mountpoint."""
    return "\0" + mountpoint + "\0" if mountpoint else ""


def split_scope(scoped: bytes) -> tuple[str, bytes]:
    """The mountpoint ("" if it is the empty one), and the client id or topic in it.

    Raises:
        UnicodeDecodeError: the mountpoint is no text, which only a damaged store shows.
    """
    if scoped[:1] != b"\0":
        return "", scoped
    mountpoint, _, rest = scoped[1:].partition(b"\0")
    return mountpoint.decode(), rest


def scan(db: Any, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """The committed records whose keys begin with a prefix, verified.

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


class StoredSession:
    """What the store knows of a session when the broker starts.

    `first` and `last` are the ends of its queue (0, 0: empty), `last_order` is the highest number
    of what was sent, `offline_at` is in milliseconds of wall clock time (0: it was online).
    """

    def __init__(self, mountpoint: str, client_id: str, number: bytes, offline_at: int) -> None:
        self.mountpoint = mountpoint
        self.client_id = client_id
        self.number = number
        self.offline_at = offline_at
        self.subscriptions: list[tuple[str, int]] = []
        self.first: int = 0
        self.last: int = 0
        self.last_order: int = 0


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
        #: How many entries name each message's record, where that changed since the last commit.
        self.counts: dict[int, int] = {}
        #: What gathers since the last commit, in writes; a large one counts for each KiB it has.
        self.gathered: int = 0
        #: The same of the commit on its way to the disk.
        self.closed: int = 0
        #: The commit that gathers now.
        self.number: int = 1
        #: The last write failed; durable sessions are refused until one succeeds.
        self.failing = False
        #: Counts every put and delete, so that a caller sees whether its work was durable.
        self.writes: int = 0
        self.next_message: int = 1
        self.next_session: int = 1

    # Writing

    def put(self, key: bytes, value: bytes) -> None:
        if not self.dirty:
            self.schedule()
        self.writes += 1
        self.gathered += 1 + (len(value) >> 10)
        self.dirty[key] = value

    def extend(self, size: int) -> None:
        """So many bytes join a record that the gathering commit has already."""
        self.writes += 1
        self.gathered += 1 + (size >> 10)

    def delete(self, key: bytes) -> None:
        if not self.dirty:
            self.schedule()
        self.writes += 1
        self.gathered += 1
        self.dirty[key] = None

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
            raise StoreError("the store cannot be read: " + str(error)) from error
        return value

    def latest(self, key: bytes, committed: bytes) -> bytes | None:
        """The same of a record that was read from the disk; None: it is deleted."""
        for writes in (self.dirty, self.writing):
            if key in writes:
                return writes[key]
        return committed

    def refuses(self, limit: int) -> bool:
        """Whether new durable work has to be refused: writing fails, or is far behind its `limit`.

        Publishers pause at the limit; so many may come and add one read each that it is passed.
        """
        return self.failing or self.gathered > 2 * limit

    def barrier(self) -> int:
        """The commit number that an acknowledgement of work done now has to wait for."""
        return 0 if self.acknowledge_early else self.number

    def last_barrier(self) -> int:
        """The commit number for everything done so far."""
        if self.acknowledge_early:
            return 0
        return self.number if self.dirty else self.number - 1

    def begin_commit(self) -> int:
        """Closes the gathering commit; `write` it next, and then tell the outbox its number."""
        for ref, count in self.counts.items():
            self.write_count(ref, count)
        self.counts.clear()
        self.writing = self.dirty
        self.dirty = {}
        self.closed = self.gathered
        self.gathered = 0
        number = self.number
        self.number = number + 1
        return number

    def write(self) -> None:
        """Writes the closed commit; may run in a thread of its own.

        Raises:
            Exception: LevelDB's, for example when the disk is full. The writes stay in `writing`.
        """
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

    def retry_commit(self) -> None:
        """The closed commit failed: its writes join the next one."""
        merged = self.writing
        merged.update(self.dirty)
        self.gathered += self.closed
        self.closed = 0
        self.writing = {}
        self.dirty = merged

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
        if self.get(b"l") is not None and not self.was_alone():
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
            raw = self.get(b"c" + ref.to_bytes(8, "big"))
            count = 1 if raw is None else int.from_bytes(raw, "big")
        return count

    def write_count(self, ref: int, count: int) -> None:
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
        # A retained message may come back after its record was deleted.
        if ref and (ref in self.counts or self.get(b"m" + ref.to_bytes(8, "big")) is not None):
            self.counts[ref] = self.count_of(ref) + 1
            return ref
        message.ref = ref = self.next_message
        self.next_message = ref + 1
        self.counts[ref] = 1
        self.put(b"m" + ref.to_bytes(8, "big"), encode_message(message.topic, message.payload))
        return ref

    def let_go(self, ref: int) -> None:
        """One queue entry less names the message's record."""
        self.counts[ref] = self.count_of(ref) - 1

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
            flags |= FLAG_REF
            return bytes((flags, pid >> 8, pid & 255)) + delivery.ref.to_bytes(8, "big") + tail
        head = bytes((flags, pid >> 8, pid & 255))
        return head + encode_message(message.topic, message.payload) + tail

    def read_entry(self, raw: bytes) -> Delivery | None:
        """The delivery of an entry; None if its message is gone, which only a damaged store shows."""
        flags = raw[0]
        message: Message | None
        ref = 0
        group = ""
        if flags & FLAG_GROUP:
            raw, group = split_group(raw)
        if flags & FLAG_RELEASED:
            message = NO_MESSAGE
        elif flags & FLAG_REF:
            ref = int.from_bytes(raw[3:11], "big")
            message = self.load_message(ref)
            if message is None:
                return None
        else:
            message = decode_message(raw, 3, flags & 3)
        delivery = Delivery(message, flags & 3, flags & FLAG_RETAIN != 0, group)
        delivery.ref = ref
        delivery.packet_id = raw[1] << 8 | raw[2]
        delivery.released = flags & FLAG_RELEASED != 0
        return delivery

    def put_waiting(self, session: bytes, delivery: Delivery) -> None:
        """A delivery joins the session's stored queue at its `seq`."""
        message = delivery.message
        if message.share or len(message.payload) > INLINE_PAYLOAD:
            delivery.ref = self.hold(message)
        self.put(b"q" + session + delivery.seq.to_bytes(8, "big"), self.entry(delivery))

    def put_inflight(self, session: bytes, delivery: Delivery) -> None:
        """A delivery is sent under its packet id, as number `order`; it may have waited before."""
        if delivery.seq:
            self.delete(b"q" + session + delivery.seq.to_bytes(8, "big"))
            delivery.seq = 0
        else:
            message = delivery.message
            if message.share or len(message.payload) > INLINE_PAYLOAD:
                delivery.ref = self.hold(message)
        self.put(b"i" + session + delivery.order.to_bytes(8, "big"), self.entry(delivery))

    def remove_waiting(self, session: bytes, delivery: Delivery) -> None:
        """A delivery leaves the stored queue unsent."""
        self.delete(b"q" + session + delivery.seq.to_bytes(8, "big"))
        if delivery.ref:
            self.let_go(delivery.ref)

    def remove_inflight(self, session: bytes, delivery: Delivery) -> None:
        """A delivery was acknowledged."""
        self.delete(b"i" + session + delivery.order.to_bytes(8, "big"))
        if delivery.ref:
            self.let_go(delivery.ref)

    def put_released(self, session: bytes, delivery: Delivery, order: int) -> None:
        """PUBREC came: only the packet id is left, at a new place in the order of the PUBRECs."""
        self.remove_inflight(session, delivery)
        delivery.message = NO_MESSAGE
        delivery.released = True
        delivery.order = order
        delivery.ref = 0
        self.put(b"i" + session + order.to_bytes(8, "big"), self.entry(delivery))

    def load_waiting(self, session: bytes, seq: int) -> Delivery | None:
        """The delivery at one place of the stored queue; None if there is none."""
        raw = self.get(b"q" + session + seq.to_bytes(8, "big"))
        delivery = None if raw is None else self.read_entry(raw)
        if delivery is not None:
            delivery.seq = seq
        return delivery

    def load_inflight(self, session: bytes) -> list[Delivery]:
        """All unacknowledged deliveries in order, as a broker finds them after its start."""
        found: list[Delivery] = []
        for key, raw in scan(self.db, b"i" + session):
            delivery = self.read_entry(raw)
            if delivery is not None:
                delivery.order = int.from_bytes(key[9:], "big")
                found.append(delivery)
        return found

    # QoS 2 packet ids received

    def put_received(self, session: bytes, packet_id: int) -> None:
        self.put(b"x" + session + packet_id.to_bytes(2, "big"), b"")

    def remove_received(self, session: bytes, packet_id: int) -> None:
        self.delete(b"x" + session + packet_id.to_bytes(2, "big"))

    def load_received(self, session: bytes) -> list[int]:
        return [int.from_bytes(key[9:], "big") for key, _ in scan(self.db, b"x" + session)]

    # Sessions

    # `scoped_id` is the client id behind the scope of its mountpoint.

    def create_session(self, scoped_id: str) -> bytes:
        """Begins a durable session and returns its number."""
        number = self.next_session.to_bytes(8, "big")
        self.next_session += 1
        self.put_session(scoped_id, number, 0)
        return number

    def put_session(self, scoped_id: str, session: bytes, offline_at: int) -> None:
        self.put(b"s" + scoped_id.encode(), session + offline_at.to_bytes(8, "big"))

    def end_session(self, scoped_id: str, session: bytes) -> None:
        """Ends a durable session; `purge_step` deletes what it leaves."""
        self.delete(b"s" + scoped_id.encode())
        self.put(b"g" + session, b"")

    def put_subscription(self, session: bytes, topic_filter: str, qos: int) -> None:
        self.put(b"u" + session + topic_filter.encode(), bytes((qos,)))

    def remove_subscription(self, session: bytes, topic_filter: str) -> None:
        self.delete(b"u" + session + topic_filter.encode())

    def purge_step(self, session: bytes, limit: int) -> bool:
        """Deletes up to `limit` records of an ended session; False when none is left.

        Call it with a commit between two steps, so that a step is not held up by the records that
        the one before it deleted. It is right without: while the disk is full no commit succeeds.
        """
        count = 0
        for kind in (b"q", b"i", b"u", b"x", b"h"):
            for key, raw in scan(self.db, kind + session):
                # A record that is deleted already has let go of its message already.
                if self.is_deleted(key):
                    continue
                self.purge_record(key, raw)
                count += 1
                if count >= limit:
                    return True
        for uncommitted in (self.writing, self.dirty):
            for key in [key for key in uncommitted if key[1:9] == session and key[:1] in b"qiuxh"]:
                value = self.get(key)
                if value is not None:
                    self.purge_record(key, value)
        self.delete(b"g" + session)
        return False

    def is_deleted(self, key: bytes) -> bool:
        """Whether a record of the database is deleted by a commit that is still under way."""
        if key in self.dirty:
            return self.dirty[key] is None
        return key in self.writing and self.writing[key] is None

    def purge_record(self, key: bytes, raw: bytes) -> None:
        """Deletes a record of a session; an entry lets go of its message's record."""
        if key[0] in b"qi" and raw[0] & FLAG_REF:
            self.let_go(int.from_bytes(raw[3:11], "big"))
        self.delete(key)

    # Retained messages

    def put_retained(self, message: Message, scope: bytes = b"") -> None:
        self.put(b"r" + scope + message.topic, bytes((message.qos,)) + message.payload)

    def remove_retained(self, topic: bytes, scope: bytes = b"") -> None:
        self.delete(b"r" + scope + topic)
