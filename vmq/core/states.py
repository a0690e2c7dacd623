"""What a packet may do at which moment: states, rows of what happens in them, and the bytes that run.

The rows are for reading: docs/conformance.md shows them, and `ACTIONS`, `ANSWERS` and `FOLLOWERS`, which are looked
into for each packet, are made from them. An entry that begins with MQTT- is the statement of MQTT 3.1.1 that the packet
breaks there: the connection ends with it in the log. Any other says what the packet does.
"""

from typing import Final, NamedTuple

from vmq.mqtt.packets import (
    CONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    ProtocolError,
)

# The states of a connection. What comes is looked at up to ONLINE, kept up to BUSY, and passed over from there on.
AWAITING_CONNECT: Final = 0
ONLINE: Final = 1
AUTHENTICATING: Final = 2
TAKING_OVER: Final = 3
OPENING: Final = 4
WAITING: Final = 5
BUSY: Final = 6
DISCONNECTED: Final = 7
REFUSED: Final = 8
BROKEN: Final = 9
OVERSIZED: Final = 10
FAILED: Final = 11
LEAVING: Final = 12
CLOSING: Final = 13
CLOSED: Final = 14

LOOKED_AT: Final = "looked at"
KEPT: Final = "kept"
PASSED_OVER: Final = "passed over"


class ConnectionState(NamedTuple):
    """A state of a connection: what becomes of the packets that come in it, and which states may follow."""

    name: str
    packets: str
    meaning: str
    #: Any state may be followed by those in which a connection ends.
    followers: tuple[int, ...] = ()


#: By number.
STATES: Final = (
    ConnectionState(
        "awaiting CONNECT",
        LOOKED_AT,
        "nothing came yet, or no whole packet",
        (AUTHENTICATING,),
    ),
    ConnectionState(
        "online",
        LOOKED_AT,
        "CONNACK is sent; packets are handled as they come",
        (WAITING, BUSY),
    ),
    ConnectionState(
        "authenticating",
        KEPT,
        "CONNECT came; load, bans and plugins say whether client and will may come in",
        (TAKING_OVER, OPENING),
    ),
    ConnectionState(
        "taking over",
        KEPT,
        "CONNECT is good; another node of the cluster is asked for the session",
        (OPENING,),
    ),
    ConnectionState(
        "opening",
        KEPT,
        "the session is the connection's; plugins are asked again about its subscriptions",
        (ONLINE,),
    ),
    ConnectionState(
        "waiting",
        KEPT,
        "a PUBLISH, SUBSCRIBE or UNSUBSCRIBE awaits a verdict, or the client is throttled",
        (ONLINE,),
    ),
    ConnectionState(
        "busy",
        KEPT,
        "what came before is more than one pass handles; the rest has its turn first",
        (ONLINE,),
    ),
    ConnectionState("disconnected", PASSED_OVER, "DISCONNECT came [MQTT-3.14.4-2]"),
    ConnectionState(
        "refused", PASSED_OVER, "CONNACK with another code than 0 is sent [MQTT-3.1.4-5]"
    ),
    ConnectionState("broken", PASSED_OVER, "the client broke the protocol [MQTT-4.8.0-1]"),
    ConnectionState("oversized", PASSED_OVER, "a packet is larger than the broker takes"),
    ConnectionState("failed", PASSED_OVER, "the broker could not do its part [MQTT-4.8.0-2]"),
    ConnectionState("leaving", PASSED_OVER, "the broker stops, or turns its clients away"),
    ConnectionState("closing", PASSED_OVER, "the broker ends the connection, for another reason"),
    ConnectionState("closed", PASSED_OVER, "the transport is gone"),
)


class PacketRow(NamedTuple):
    """What one kind of packet does in the states in which packets are looked at."""

    packet: str
    #: The bits of its first byte: 0 and 1 tell which packet it is; those given as - and + are reserved, and have to be
    #: 0 and 1; any other may be either.
    bits: str
    #: What reserved bits break that are otherwise. MQTT 3.1 has none, and passes over them.
    flags: str
    first: str
    online: str


_FIRST: Final = "MQTT-3.1.0-1"
_NOT_A_CLIENTS: Final = "MQTT-4.8.0-1"
_FLAGS: Final = "MQTT-2.2.2-2"

PACKETS: Final = (
    PacketRow("reserved type 0", "0000....", "", _FIRST, _NOT_A_CLIENTS),
    PacketRow("CONNECT", "0001----", _FLAGS, "authenticating", "MQTT-3.1.0-2"),
    PacketRow("CONNACK", "0010....", "", _FIRST, _NOT_A_CLIENTS),
    PacketRow("PUBLISH at QoS 0", "0011-00.", "MQTT-3.3.1-2", _FIRST, "published"),
    PacketRow("PUBLISH at QoS 1", "0011.01.", "", _FIRST, "published, PUBACK"),
    PacketRow("PUBLISH at QoS 2", "0011.10.", "", _FIRST, "published if it is new, PUBREC"),
    PacketRow("PUBLISH at QoS 3", "0011.11.", "", _FIRST, "MQTT-3.3.1-4"),
    PacketRow("PUBACK", "0100----", _FLAGS, _FIRST, "see below"),
    PacketRow("PUBREC", "0101----", _FLAGS, _FIRST, "see below"),
    PacketRow("PUBREL", "0110--+-", "MQTT-3.6.1-1", _FIRST, "identifier forgotten, PUBCOMP"),
    PacketRow("PUBCOMP", "0111----", _FLAGS, _FIRST, "see below"),
    PacketRow("SUBSCRIBE", "1000--+-", "MQTT-3.8.1-1", _FIRST, "subscribed, SUBACK"),
    PacketRow("SUBACK", "1001....", "", _FIRST, _NOT_A_CLIENTS),
    PacketRow("UNSUBSCRIBE", "1010--+-", "MQTT-3.10.1-1", _FIRST, "unsubscribed, UNSUBACK"),
    PacketRow("UNSUBACK", "1011....", "", _FIRST, _NOT_A_CLIENTS),
    PacketRow("PINGREQ", "1100----", _FLAGS, _FIRST, "PINGRESP"),
    PacketRow("PINGRESP", "1101....", "", _FIRST, _NOT_A_CLIENTS),
    PacketRow("DISCONNECT", "1110----", "MQTT-3.14.1-1", _FIRST, "disconnected, no will"),
    PacketRow("reserved type 15", "1111....", "", _FIRST, _NOT_A_CLIENTS),
)

# The states of a message in flight to a client: which acknowledgement is due. A message awaits PUBACK at QoS 1 and
# PUBREC at QoS 2, so these two have the numbers of the QoS.
UNKNOWN: Final = 0
AWAITING_PUBACK: Final = 1
AWAITING_PUBREC: Final = 2
AWAITING_PUBCOMP: Final = 3


class AcknowledgementRow(NamedTuple):
    """What one kind of acknowledgement does to a message in flight, by the state of that."""

    packet: int
    #: No message in flight has the identifier.
    unknown: str
    awaiting_puback: str
    awaiting_pubrec: str
    awaiting_pubcomp: str


_DONE: Final = "done"
_RELEASED: Final = "released, PUBREL"
_PUBREL: Final = "PUBREL"
_COUNTED: Final = "counted"
_COUNTED_PUBREL: Final = "counted, PUBREL"
_WRONG: Final = "MQTT-4.8.0-1"

#: One of the wrong kind would else leave its message in flight for ever. To an identifier that is unknown, PUBREL is
#: the answer all the same [MQTT-4.3.3-1].
ACKNOWLEDGEMENTS: Final = (
    AcknowledgementRow(PUBACK, _COUNTED, _DONE, _WRONG, _WRONG),
    AcknowledgementRow(PUBREC, _COUNTED_PUBREL, _WRONG, _RELEASED, _PUBREL),
    AcknowledgementRow(PUBCOMP, _COUNTED, _WRONG, _WRONG, _DONE),
)

# What runs.

#: It breaks a statement: in each of the tables.
BREAKS: Final = 0

#: What `ACTIONS` is looked into with, beside a first byte: where the table for these states begins.
FIRST: Final = 0
UNDER_3_1_1: Final = 256
UNDER_3_1: Final = 512

# What becomes of a message in flight that is acknowledged.
DONE: Final = 1
RELEASE: Final = 2
LEAVE: Final = 3

_ANSWER_CODES: Final = {
    _DONE: DONE,
    _RELEASED: RELEASE,
    _PUBREL: LEAVE,
    _COUNTED: LEAVE,
    _COUNTED_PUBREL: LEAVE,
}


def is_of(row: PacketRow, head: int, strictly: bool) -> bool:
    """Whether a first byte is that of such a packet; `strictly`: with its reserved bits as they have to be."""
    for place, bit in enumerate(row.bits):
        is_set = head >> (7 - place) & 1 == 1
        if bit in "01" and is_set != (bit == "1"):
            return False
        if strictly and bit in "-+" and is_set != (bit == "+"):
            return False
    return True


def row_of(head: int) -> PacketRow:
    """The row of the packet that begins with this byte."""
    for row in PACKETS:
        if is_of(row, head, False):
            return row
    raise ValueError(head)


def entry_of(head: int, table: int) -> str:
    """What the packet that begins with this byte does by one of the three tables, or the statement that it breaks."""
    row = row_of(head)
    if table == FIRST:
        return row.first
    if table == UNDER_3_1_1 and not row.online.startswith("MQTT-") and not is_of(row, head, True):
        return row.flags
    return row.online


def broken_by(head: int, table: int) -> ProtocolError:
    """The end of a connection whose packet begins with this byte and breaks a statement by one of the three tables."""
    row = row_of(head)
    entry = entry_of(head, table)
    if table == FIRST:
        text = row.packet + " as the first packet"
    elif entry != row.online:
        text = "wrong flags in " + row.packet
    elif head >> 4 == CONNECT:
        text = "second CONNECT"
    else:
        text = row.packet + " from a client"
    return ProtocolError(text, entry)


def wrong_flags(head: int) -> ProtocolError:
    """The end of a connection whose first packet has reserved bits that are wrong, as only its level tells."""
    row = row_of(head)
    return ProtocolError("wrong flags in " + row.packet, row.flags)


def _actions() -> bytes:
    codes = bytearray()
    for table in (FIRST, UNDER_3_1_1, UNDER_3_1):
        for head in range(256):
            codes.append(BREAKS if entry_of(head, table).startswith("MQTT-") else head >> 4)
    return bytes(codes)


def _answers() -> bytes:
    codes = bytearray([BREAKS] * 32)
    for row in ACKNOWLEDGEMENTS:
        for state, entry in enumerate(row[1:]):
            codes[row.packet << 2 | state] = _ANSWER_CODES.get(str(entry), BREAKS)
    return bytes(codes)


def _followers() -> bytes:
    codes = bytearray()
    for before, state in enumerate(STATES):
        for after in range(len(STATES)):
            ends = after >= DISCONNECTED and before < DISCONNECTED
            codes.append(1 if ends or after in state.followers or after == CLOSED else 0)
    return bytes(codes)


#: What a packet does: its type, or `BREAKS`; by the table and the packet's first byte.
ACTIONS: Final[bytes] = _actions()
#: What an acknowledgement does; by its packet type << 2 | the state of its message.
ANSWERS: Final[bytes] = _answers()
#: Whether a state may follow another: see `may_follow`.
FOLLOWERS: Final[bytes] = _followers()


def may_follow(before: int, after: int) -> bool:
    """Whether a connection may go from one state into another."""
    return FOLLOWERS[before * len(STATES) + after] == 1
