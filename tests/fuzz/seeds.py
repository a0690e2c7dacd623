"""The corpus's beginnings: conversations that clients really have, in the fuzzer's format."""

from collections.abc import Iterable
from typing import Final

from tests.fuzz.target import (
    BEGIN,
    BEGIN_DURABLE,
    DROP_OLDEST,
    LOSE,
    NEWEST_FIRST,
    ONE_INFLIGHT,
    PAUSE,
    READ_ON,
    RESTART,
    RETRY,
    SECOND_PEER,
    STALL,
    STORED,
    TIGHT,
    UPGRADE,
    WAIT,
)
from tests.support.wire import (
    DISCONNECT_BYTES,
    PINGREQ_BYTES,
    Will,
    connect_packet,
    puback_packet,
    pubcomp_packet,
    publish_packet,
    pubrec_packet,
    pubrel_packet,
    subscribe_packet,
    unsubscribe_packet,
)

#: One block: how it is steered, and what is sent.
Block = tuple[int, bytes]

PLAIN: Final = 0


def encode(options: int, blocks: Iterable[Block]) -> bytes:
    """An input: long chunks are cut into blocks."""
    data = bytearray([options])
    for steer, chunk in blocks:
        data += bytes([steer, min(len(chunk), 255)]) + chunk[:255]
        for start in range(255, len(chunk), 255):
            piece = chunk[start : start + 255]
            data += bytes([steer & SECOND_PEER, len(piece)]) + piece
    return bytes(data)


def _all_acks(packet_id: int) -> bytes:
    kinds = (puback_packet, pubrec_packet, pubrel_packet, pubcomp_packet)
    return b"".join(build(packet_id) for build in kinds)


def _publishes(topic: str, count: int, qos: int) -> bytes:
    ids = range(1, count + 1)
    return b"".join(
        publish_packet(topic, b"%d" % each, qos=qos, packet_id=each if qos else None)
        for each in ids
    )


SUBSCRIBE_ALL = subscribe_packet(1, ("#", 2), ("+/b", 1), ("a/#", 0), ("$share/g/a", 1))
WILL = Will("a/will", b"gone", 1, True)

SEEDS: Final[dict[str, bytes]] = {
    "connect": encode(0, [(PLAIN, connect_packet("c") + PINGREQ_BYTES + DISCONNECT_BYTES)]),
    "connect-full": encode(
        0, [(PLAIN, connect_packet("c", will=WILL, username="user", password=b"secret"))]
    ),
    "connect-mqtt31": encode(
        0, [(PLAIN, connect_packet("c", protocol="MQIsdp", level=3) + SUBSCRIBE_ALL)]
    ),
    "connect-mqtt5": encode(0, [(PLAIN, connect_packet("c", level=5))]),
    "connect-no-id": encode(
        0, [(PLAIN, connect_packet("")), (SECOND_PEER, connect_packet("", clean=False))]
    ),
    "bytewise": encode(0, [(PLAIN, bytes([each])) for each in connect_packet("cut")]),
    "subscribe": encode(
        0, [(BEGIN, SUBSCRIBE_ALL + unsubscribe_packet(2, "#", "a/#") + SUBSCRIBE_ALL)]
    ),
    "quick": encode(0, [(BEGIN, SUBSCRIBE_ALL), (BEGIN | SECOND_PEER, _publishes("a/b", 9, 0))]),
    "at-least-once": encode(
        ONE_INFLIGHT,
        [
            (BEGIN, SUBSCRIBE_ALL),
            (BEGIN | SECOND_PEER, _publishes("a", 9, 1)),
            (PLAIN, b"".join(puback_packet(each) for each in range(1, 10))),
        ],
    ),
    "exactly-once": encode(
        STORED,
        [
            (BEGIN_DURABLE, SUBSCRIBE_ALL),
            (BEGIN | SECOND_PEER, _publishes("a/b", 4, 2) + pubrel_packet(1) + pubrel_packet(9)),
            (PLAIN, pubrec_packet(1) + pubcomp_packet(1) + _all_acks(2)),
        ],
    ),
    "twice": encode(
        0,
        [
            (BEGIN, publish_packet("a", b"x", qos=2, packet_id=7)),
            (PLAIN, publish_packet("a", b"x", qos=2, packet_id=7, dup=True) + pubrel_packet(7)),
        ],
    ),
    "retained": encode(
        TIGHT,
        [
            (
                BEGIN,
                b"".join(publish_packet(t, b"1", retain=True) for t in ("a", "a/b", "a/c", "b")),
            ),
            (PLAIN, publish_packet("a", b"", retain=True) + SUBSCRIBE_ALL),
            (BEGIN | SECOND_PEER, subscribe_packet(1, ("+", 1)) + subscribe_packet(2, ("+", 1))),
        ],
    ),
    "will": encode(
        0,
        [
            (PLAIN, connect_packet("w", will=WILL)),
            (BEGIN | SECOND_PEER, SUBSCRIBE_ALL),
            (LOSE, connect_packet("w", will=WILL) + DISCONNECT_BYTES),
        ],
    ),
    "takeover": encode(
        STORED,
        [
            (PLAIN, connect_packet("same", clean=False) + SUBSCRIBE_ALL),
            (SECOND_PEER, connect_packet("same", clean=False) + _publishes("a", 3, 1)),
            (PLAIN, PINGREQ_BYTES),
            (LOSE, connect_packet("same", clean=True)),
        ],
    ),
    "backlog": encode(
        DROP_OLDEST | STORED,
        [
            (BEGIN_DURABLE, SUBSCRIBE_ALL),
            (LOSE, b""),
            (BEGIN | SECOND_PEER, _publishes("a", 9, 1) + _publishes("a/b", 3, 2)),
            (BEGIN_DURABLE, _all_acks(1) + _all_acks(2)),
            (PLAIN, _all_acks(3)),
        ],
    ),
    "newest-first": encode(
        NEWEST_FIRST | ONE_INFLIGHT | STORED,
        [
            (BEGIN_DURABLE, SUBSCRIBE_ALL),
            (BEGIN | SECOND_PEER, _publishes("a", 6, 1)),
            (PLAIN, _all_acks(1)),
        ],
    ),
    "stalled": encode(
        PAUSE,
        [
            (BEGIN, SUBSCRIBE_ALL),
            (STALL, PINGREQ_BYTES),
            (BEGIN | SECOND_PEER, publish_packet("a", bytes(200)) * 20),
            (SECOND_PEER, _publishes("a", 9, 1)),
            (READ_ON, _all_acks(1)),
        ],
    ),
    "unread-replies": encode(
        0, [(BEGIN, b""), *[(STALL, PINGREQ_BYTES * 127)] * 8, (READ_ON, PINGREQ_BYTES)]
    ),
    "to-itself": encode(
        UPGRADE | PAUSE, [(BEGIN, SUBSCRIBE_ALL), (STALL, _publishes("a", 9, 1)), (READ_ON, b"")]
    ),
    "shared": encode(
        0,
        [
            (BEGIN, subscribe_packet(1, ("$share/g/a", 1))),
            (BEGIN | SECOND_PEER, subscribe_packet(1, ("$share/g/a", 2)) + _publishes("a", 5, 1)),
            (LOSE, b""),
            (SECOND_PEER, _all_acks(1)),
        ],
    ),
    "restart": encode(
        STORED | ONE_INFLIGHT,
        [
            (BEGIN_DURABLE, SUBSCRIBE_ALL + publish_packet("a", b"kept", retain=True)),
            (BEGIN | SECOND_PEER, _publishes("a", 3, 2) + _publishes("a/b", 3, 1)),
            (RESTART, b""),
            (BEGIN_DURABLE, _all_acks(1) + SUBSCRIBE_ALL),
            (PLAIN, _all_acks(2)),
        ],
    ),
    "flapping": encode(TIGHT, [(BEGIN, PINGREQ_BYTES)] * 5),
    "retry": encode(
        RETRY, [(BEGIN, SUBSCRIBE_ALL + _publishes("a", 2, 1)), (WAIT, b""), (WAIT, _all_acks(1))]
    ),
    "deep": encode(
        TIGHT,
        [(BEGIN, subscribe_packet(1, ("a/b/c/d/#", 0))), (PLAIN, _publishes("a/b/c/d", 1, 0))],
    ),
    "too-large": encode(TIGHT, [(BEGIN, publish_packet("a", bytes(17)))]),
    "long-run": encode(0, [(BEGIN, SUBSCRIBE_ALL + publish_packet("a/b", b"x") * 60)]),
    "wrong-flags": encode(0, [(BEGIN, b"\x80" + subscribe_packet(1, ("a", 0))[1:])]),
    "bad-length": encode(0, [(BEGIN, b"\x30\xff\xff\xff\xff\x7f")]),
    "bad-text": encode(0, [(BEGIN, publish_packet(b"\xed\xa0\x80", b""))]),
    "system-topics": encode(
        0, [(BEGIN, subscribe_packet(1, ("$SYS/#", 0)) + publish_packet("$SYS/x", b"1"))]
    ),
}
