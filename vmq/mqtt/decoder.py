"""Bytes to packets: `Decoder` finds the packets in a stream, the `read_*` functions open them.

The decoder walks a chunk by index and copies nothing while packets are whole; only what is left of
a cut packet is kept until the rest arrives.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from vmq.mqtt.packets import (
    LEVEL_3_1,
    LEVEL_3_1_1,
    LEVEL_BRIDGE,
    MAX_REMAINING_LENGTH,
    PACKET_NAMES,
    PUBLISH,
    REFUSED_PROTOCOL_LEVEL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Connect,
    ConnectRefused,
    PacketTooLarge,
    ProtocolError,
    SubscribeRequest,
)
from vmq.mqtt.topics import decode_filter, decode_text, decode_topic_name

#: How the variable header of a CONNECT of MQTT 3.1 begins, that of a bridge too.
MQTT_3_1: Final = (b"\0\6MQIsdp\3", b"\0\6MQIsdp\x83")

#: The largest packet there can be.
MAX_PACKET: Final = 5 + MAX_REMAINING_LENGTH


# Holds bytes and numbers only: the garbage collector's head of 16 bytes falls away, from each connection.
@mypyc_attr(acyclic=True)
class Decoder:
    """Finds packets in a byte stream that arrives in chunks of any size.

    Duties of the caller: `feed(chunk)`, then call `next()` until it is False. While it is True the
    packet is `data[start:end]`, its first byte is `head`, and its variable header begins at `body`.
    """

    def __init__(self, max_packet_size: int = MAX_PACKET) -> None:
        #: In bytes, the fixed header included: of PUBLISH, and of any other packet.
        self.max_packet_size: i64 = max_packet_size
        self.max_control_size: i64 = max_packet_size
        #: CONNECT is awaited: the limit is that of CONNECT, whatever comes.
        self.before_connect = False
        self.data: bytes = b""
        self.size: i64 = 0
        self.position: i64 = 0
        self.start: i64 = 0
        self.body: i64 = 0
        self.end: i64 = 0
        self.head: i64 = 0
        # A bytearray, so that a packet which arrives byte by byte costs its own size and no more.
        self.rest: bytearray | None = None
        self.wanted: i64 = 0

    def limit(self, largest: int, control: int) -> None:
        """From now on takes packets of `largest` bytes at most, and of `control` if they are not PUBLISH."""
        self.max_packet_size = largest
        self.max_control_size = min(control, largest)
        self.before_connect = False

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the stream. Every packet of the last chunk was taken before."""
        rest = self.rest
        if rest is not None:
            rest += chunk
            if len(rest) < self.wanted:
                return
            chunk = bytes(rest)
            self.rest = None
        self.data = chunk
        self.size = len(chunk)
        self.position = 0

    def next(self) -> bool:
        """Moves on to the next whole packet; False if the chunk holds no further one.

        Raises:
            ProtocolError: a remaining length of more than four bytes, or above the limit of the
                packet's type: its fixed header is enough, nothing of it is kept.
        """
        start: i64 = self.position
        size: i64 = self.size
        data = self.data
        if start >= size:
            self.drop_chunk()
            return False
        if start + 2 > size:
            self.keep_rest(start, 2)
            return False
        length: i64 = data[start + 1]
        body: i64 = start + 2
        if length >= 128:
            length &= 127
            shift: i64 = 7
            while True:
                if body >= size:
                    self.keep_rest(start, body - start + 1)
                    return False
                byte: i64 = data[body]
                body += 1
                length |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 21:
                    raise ProtocolError("remaining length of more than 4 bytes", "MQTT-4.8.0-1")
        end = body + length
        if end - start > self.max_control_size:
            self.check_size(data[start] >> 4, end - start)
        if end > size:
            self.keep_rest(start, end - start)
            return False
        self.head = data[start]
        self.start = start
        self.body = body
        self.end = end
        self.position = end
        return True

    def check_size(self, kind: i64, size: i64) -> None:
        """Refuses a packet that is too large for its type; `size` is above `max_control_size`."""
        limit: i64 = self.max_control_size
        option = "max_control_packet_size"
        if self.before_connect:
            option = "max_connect_size"
        elif kind == PUBLISH or limit == self.max_packet_size:
            limit = self.max_packet_size
            option = "max_packet_size"
        if size > limit:
            text = f"{PACKET_NAMES[kind]} of {size} bytes is above session.{option} = {limit}"
            raise PacketTooLarge(text, "MQTT-4.8.0-1")

    def is_at_end(self) -> bool:
        """Whether every packet of the last chunk was taken, so that the next may be fed."""
        return self.position >= self.size

    def is_shortest(self) -> bool:
        """Whether the remaining length is spelled in as few bytes as it needs.

        Longer spellings end in a byte of 0. They are tolerated, and not passed on.
        """
        return self.body - self.start == 2 or self.data[self.body - 1] != 0

    def run(self, topic_field: bytes, longest: i64 = MAX_REMAINING_LENGTH) -> int:
        """Counts the packets right behind the present one that have its first byte and topic.

        `topic_field` is the topic with its two length bytes; a packet of a remaining length above
        `longest` ends the run, and so does one whose length is not spelled the shortest way. The
        present packet, which is, grows to span the
        run: afterwards `data[start:end]` is the run. Bursts on one topic are the common case under
        load; handing on one slice of them costs no more than handing on one packet.
        """
        largest: i64 = self.max_packet_size
        count = 1
        data = self.data
        size: i64 = self.size
        first: i64 = self.head
        position: i64 = self.position
        topic_length: i64 = len(topic_field)
        while position + 2 < size and data[position] == first:
            length: i64 = data[position + 1]
            body: i64 = position + 2
            if length >= 128:
                # Two bytes of length reach 16 KiB; longer packets gain nothing from a run.
                high: i64 = data[body]
                if high >= 128 or high == 0:
                    break
                length = (length & 127) | (high << 7)
                body += 1
            end = body + length
            if end > size or length < topic_length or length > longest:
                break
            if end - position > largest:
                break
            if (
                data[body : body + topic_length] != topic_field
            ):  # mypyc calls no startswith directly
                break
            position = end
            count += 1
        self.end = position
        self.position = position
        return count

    def run_of_ids(self, most: i64) -> int:
        """Counts the present packet, of a packet id alone, and those right behind it that begin with the same byte.

        The present packet grows to span the run, of `most` packets at most.
        """
        data = self.data
        size: i64 = self.size
        first: i64 = self.head
        position: i64 = self.position
        count: i64 = 1
        while count < most and position + 4 <= size:
            if data[position] != first or data[position + 1] != 2:
                break
            position += 4
            count += 1
        self.end = position
        self.position = position
        return count

    def drop_chunk(self) -> None:
        self.data = b""
        self.size = 0
        self.position = 0

    def keep_rest(self, start: i64, wanted: i64) -> None:
        self.rest = bytearray(self.data[start:])
        self.wanted = wanted
        self.drop_chunk()

    def waiting_bytes(self) -> int:
        """Bytes kept of a packet that is not whole yet."""
        rest = self.rest
        return len(rest) if rest is not None else 0


class Reader:
    """Takes the fields of one packet's body in order."""

    def __init__(self, data: bytes, start: int, end: int, packet: str, statement: str) -> None:
        self.data = data
        self.position = start
        self.end = end
        self.packet = packet
        self.statement = statement
        #: For whoever reads a part of the fields at a time.
        self.steps: int = 0

    def byte(self) -> int:
        position = self.position
        if position >= self.end:
            raise ProtocolError(self.packet + " ends too early", self.statement)
        self.position = position + 1
        return self.data[position]

    def integer(self) -> int:
        high = self.byte()
        return high << 8 | self.byte()

    def field(self) -> bytes:
        length = self.integer()
        start = self.position
        if start + length > self.end:
            raise ProtocolError(self.packet + " has a cut field", self.statement)
        self.position = start + length
        return self.data[start : start + length]

    def is_at_end(self) -> bool:
        return self.position >= self.end


def read_connect(data: bytes, start: int, end: int) -> Connect:
    """Opens a CONNECT (section 3.1).

    Raises:
        ProtocolError: it breaks a rule; close without CONNACK [MQTT-3.1.4-1].
        ConnectRefused: its protocol level is not served [MQTT-3.1.2-2].
    """
    reader = Reader(data, start, end, "CONNECT", "MQTT-3.1.4-1")
    name = reader.field()
    if name != b"MQTT" and name != b"MQIsdp":
        raise ProtocolError("unknown protocol name " + repr(name[:20]), "MQTT-3.1.2-1")
    connect = Connect()
    asked = reader.byte()
    level = asked & ~LEVEL_BRIDGE
    connect.level = level
    connect.bridge = asked != level
    if name == b"MQIsdp":
        if level != LEVEL_3_1:
            raise ProtocolError("protocol MQIsdp with level " + str(asked), "MQTT-3.1.2-1")
    elif level != LEVEL_3_1_1:
        version = " (MQTT 5)" if asked == 5 else ""
        raise ConnectRefused(
            "protocol level " + str(asked) + version + " is not served [MQTT-3.1.2-2]",
            REFUSED_PROTOCOL_LEVEL,
        )
    flags = reader.byte()
    lenient = level == LEVEL_3_1
    check_connect_flags(flags, lenient)
    connect.clean_session = flags & 2 != 0
    connect.keep_alive = reader.integer()
    reader.statement = "MQTT-3.1.3-3"
    connect.client_id = decode_text(reader.field(), "client id")
    if flags & 4:
        reader.statement = "MQTT-3.1.2-9"
        connect.has_will = True
        connect.will_topic = reader.field()
        decode_topic_name(connect.will_topic, "will topic")
        connect.will_payload = reader.field()
        connect.will_qos = flags >> 3 & 3
        connect.will_retain = flags & 32 != 0
    # MQTT 3.1 lets a client announce a user name or password and end the packet before it.
    if flags & 128 and not (lenient and reader.is_at_end()):
        reader.statement = "MQTT-3.1.2-19"
        connect.username = decode_text(reader.field(), "user name")
    if flags & 64 and not (lenient and reader.is_at_end()):
        reader.statement = "MQTT-3.1.2-21"
        connect.password = reader.field()
    if not reader.is_at_end():
        raise ProtocolError("surplus bytes in CONNECT", "MQTT-3.1.4-1")
    return connect


def is_mqtt31(data: bytes, start: int) -> bool:
    """Whether a CONNECT whose variable header begins at `start` is one of MQTT 3.1."""
    return data[start : start + 9] in MQTT_3_1


def check_connect_flags(flags: int, lenient: bool = False) -> None:
    """Checks the connect flags against each other (section 3.1.2).

    `lenient` is for MQTT 3.1, which disregards the reserved flag, and QoS and RETAIN of no will.

    Raises:
        ProtocolError: a combination that the standard forbids.
    """
    if flags & 1 and not lenient:
        raise ProtocolError("reserved connect flag set", "MQTT-3.1.2-3")
    if flags & 4:
        if flags >> 3 & 3 == 3:
            raise ProtocolError("will QoS 3", "MQTT-3.1.2-14")
    elif not lenient:
        if flags & 24:
            raise ProtocolError("will QoS without a will", "MQTT-3.1.2-13")
        if flags & 32:
            raise ProtocolError("will retain without a will", "MQTT-3.1.2-15")
    if flags & 64 and not flags & 128:
        raise ProtocolError("password without a user name", "MQTT-3.1.2-22")


def packet_id_at(run: bytes, start: i64, kind: int) -> i64:
    """The packet id of a packet that is nothing else: of four bytes, from `start` on.

    Raises:
        ProtocolError: the id is 0.
    """
    packet_id: i64 = run[start + 2]
    packet_id = packet_id << 8 | run[start + 3]
    if packet_id == 0:
        raise ProtocolError("packet id 0 in " + PACKET_NAMES[kind], "MQTT-2.3.1-1")
    return packet_id


def open_request(kind: int, data: bytes, start: int, end: int) -> tuple[int, Reader]:
    """Opens a SUBSCRIBE or UNSUBSCRIBE: its packet id, and a reader at its first filter (sections 3.8 and 3.10).

    Raises:
        ProtocolError: it breaks a rule.
    """
    statement = "MQTT-3.8.3-3" if kind == SUBSCRIBE else "MQTT-3.10.3-2"
    name = PACKET_NAMES[kind]
    reader = Reader(data, start, end, name, statement)
    packet_id = reader.integer()
    if packet_id == 0:
        raise ProtocolError("packet id 0 in " + name, "MQTT-2.3.1-1")
    if reader.is_at_end():
        raise ProtocolError(name + " without a topic filter", statement)
    return packet_id, reader


def next_filter(reader: Reader) -> str:
    """The next filter of an UNSUBSCRIBE; raises ProtocolError if it breaks a rule."""
    return decode_filter(reader.field())


def next_request(reader: Reader, level: int) -> tuple[str, int]:
    """The next filter of a SUBSCRIBE and its QoS, of whose byte MQTT 3.1 does not use the upper six bits.

    Raises:
        ProtocolError: it breaks a rule.
    """
    topic_filter = decode_filter(reader.field())
    qos = reader.byte()
    if level == LEVEL_3_1:
        qos &= 3
    if qos > 2:
        raise ProtocolError("requested QoS byte " + str(qos), "MQTT-3.8.3-4")
    return topic_filter, qos


def read_subscribe(data: bytes, start: int, end: int) -> tuple[int, list[SubscribeRequest]]:
    """Opens a whole SUBSCRIBE: packet id and the filters in order.

    Raises:
        ProtocolError: it breaks a rule.
    """
    packet_id, reader = open_request(SUBSCRIBE, data, start, end)
    requests: list[SubscribeRequest] = []
    while not reader.is_at_end():
        topic_filter, qos = next_request(reader, LEVEL_3_1_1)
        requests.append(SubscribeRequest(topic_filter, qos))
    return packet_id, requests


def read_unsubscribe(data: bytes, start: int, end: int) -> tuple[int, list[str]]:
    """Opens a whole UNSUBSCRIBE: packet id and the filters in order.

    Raises:
        ProtocolError: it breaks a rule.
    """
    packet_id, reader = open_request(UNSUBSCRIBE, data, start, end)
    filters: list[str] = []
    while not reader.is_at_end():
        filters.append(next_filter(reader))
    return packet_id, filters


def packet_id_in(data: bytes, start: i64, end: i64) -> i64:
    """The packet id of a PUBLISH, which stands behind its topic.

    Raises:
        ProtocolError: there is none.
    """
    if start + 2 > end:
        raise ProtocolError("PUBLISH without a packet id", "MQTT-2.3.1-1")
    packet_id: i64 = data[start]
    packet_id = packet_id << 8 | data[start + 1]
    if packet_id == 0:
        raise ProtocolError("packet id 0 in PUBLISH", "MQTT-2.3.1-1")
    return packet_id
