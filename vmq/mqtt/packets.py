"""Packet types, protocol levels, and the errors that a peer's bytes can cause.

Statement numbers such as MQTT-3.1.0-1 are those of the OASIS Standard "MQTT Version 3.1.1".
"""

from typing import Final

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14

# Of any length to mypyc: it copies tuples of known length to index them.
PACKET_NAMES: Final[tuple[str, ...]] = (
    "reserved type 0",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "reserved type 15",
)

LEVEL_3_1: Final = 3
LEVEL_3_1_1: Final = 4
#: Set in the protocol level by another broker that connects as a bridge: mosquitto's convention (`try_private`).
LEVEL_BRIDGE: Final = 0x80

# CONNACK return codes, section 3.2.2.3.
ACCEPTED: Final = 0
REFUSED_PROTOCOL_LEVEL: Final = 1
REFUSED_CLIENT_ID: Final = 2
REFUSED_UNAVAILABLE: Final = 3
REFUSED_CREDENTIALS: Final = 4
REFUSED_NOT_AUTHORISED: Final = 5

SUBSCRIPTION_FAILED: Final = 0x80

MAX_REMAINING_LENGTH: Final = 268_435_455


class ProtocolError(Exception):
    """The peer broke a rule; its connection ends [MQTT-4.8.0-1].

    `text` says what was wrong, `statement` is the number of the normative statement.
    """

    def __init__(self, text: str, statement: str) -> None:
        super().__init__(text + " [" + statement + "]")
        self.text = text
        self.statement = statement


class PacketTooLarge(ProtocolError):
    """A packet is larger than the broker takes."""


class ConnectRefused(Exception):
    """A CONNECT that is answered by a CONNACK with a return code other than 0 [MQTT-3.2.2-5]."""

    def __init__(self, text: str, code: int, plugin: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        #: Whose decision it is, "" if it is the broker's.
        self.plugin = plugin


class Connect:
    """A CONNECT packet whose every field was checked."""

    def __init__(self) -> None:
        self.level: int = LEVEL_3_1_1
        #: Another broker's bridge: it gets messages with the RETAIN that they were published with, and none of its own.
        self.bridge: bool = False
        self.client_id: str = ""
        self.clean_session: bool = True
        self.keep_alive: int = 0
        self.has_will: bool = False
        self.will_topic: bytes = b""
        self.will_payload: bytes = b""
        self.will_qos: int = 0
        self.will_retain: bool = False
        self.username: str | None = None
        self.password: bytes | None = None


class SubscribeRequest:
    """One topic filter of a SUBSCRIBE, as asked for."""

    def __init__(self, topic_filter: str, qos: int) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
