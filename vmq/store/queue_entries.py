"""What waits for sessions and what is in flight, in the store: messages, and the entries that hold or name them."""

from collections.abc import Callable
from typing import Any, Final

from vmq.mqtt.encoder import PACKET_IDS
from vmq.mqtt.message import NO_MESSAGE, Delivery, Message
from vmq.store.entries import (
    FLAG_GROUP,
    FLAG_HIGHER,
    FLAG_NOTE,
    FLAG_REF,
    FLAG_RELEASED,
    FLAG_RETAIN,
    HEADS,
    INLINE_PAYLOAD,
    NOTE,
    decode_message,
    encode_message,
    inflight_key,
    number_in,
    record_size,
    split_group,
    waiting_key,
)
from vmq.store.sent import SentPlaces
from vmq.store.sizes import Sizes
from vmq.store.writes import StoreError, Writes

#: What stands for the record behind the last: its place is none.
NO_RECORD: Final = (bytes(17), b"")

#: How many entries name a message whose count cannot be read: too many for it to be deleted.
UNKNOWN_COUNT: Final = 1 << 30


class Entries(Writes):
    """Messages with the entries of those who get them; see `vmq.store.store` for the records."""

    def __init__(self, db: Any, durability: str, schedule: Callable[[], None]) -> None:
        super().__init__(db, durability, schedule)
        #: How many entries name each message's record, where that changed since the last commit.
        self.counts: dict[int, int] = {}
        #: Deliveries at QoS 1 to clients that are there, each with its session, in order. Their entries are made when
        #: the commit closes: of what is acknowledged before nothing is ever written.
        self.unwritten: dict[Delivery, bytes] = {}
        #: How many of these were acknowledged, or gone, since the last commit.
        self.answered: int = 0
        self.next_message: int = 1
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
            if message.qos > flags & 3:
                flags |= FLAG_HIGHER
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
            message.qos = flags & 3
        else:
            message = decode_message(raw, 3, flags & 3)
        if flags & FLAG_HIGHER:
            message.qos = 2
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
        """A delivery is sent, and what waited may keep its entry where it is, which is noted; whether it does."""
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
