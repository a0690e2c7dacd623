"""The packets to one client, sorted by what they are, each kind in its order."""

from typing import Final

from mypy_extensions import i64

from vmq.mqtt.packets import CONNACK, PINGRESP, PUBLISH, PUBREL

#: The first byte of a CONNACK.
CONNACK_HEAD: Final = CONNACK << 4

_ANSWER: Final[i64] = 0
_DELIVERY: Final[i64] = 1
_PING: Final[i64] = 2


def sort_packets(data: bytes) -> tuple[bytes, bytes, bytes]:
    """What answers the client's packets; PUBLISH and PUBREL; PINGRESP.

    Any other packet is an answer, and so is what is none.
    """
    size: i64 = len(data)
    if size == 0:
        return b"", b"", b""
    run_kind = kind_of(data, 0)
    at = end_of(data, 0, size)
    while at < size and kind_of(data, at) == run_kind:
        at = end_of(data, at, size)
    if at >= size:  # mostly
        if run_kind == _ANSWER:
            return data, b"", b""
        return (b"", data, b"") if run_kind == _DELIVERY else (b"", b"", data)
    runs: list[list[bytes]] = [[], [], []]
    run: i64 = 0
    while at < size:
        kind = kind_of(data, at)
        if kind != run_kind:
            runs[run_kind].append(data[run:at])
            run = at
            run_kind = kind
        at = end_of(data, at, size)
    runs[run_kind].append(data[run:])
    answers, deliveries, pings = runs
    return b"".join(answers), b"".join(deliveries), b"".join(pings)


def kind_of(data: bytes, at: i64) -> i64:
    """What the packet is that begins there."""
    head: i64 = data[at]
    kind = head >> 4
    if kind == PUBLISH or kind == PUBREL:  # noqa: SIM109 - a tuple would be looked through
        return _DELIVERY
    return _PING if kind == PINGRESP else _ANSWER


def end_of(data: bytes, start: i64, size: i64) -> i64:
    """Where the packet ends that begins there (section 2.2.3)."""
    at = start + 1
    length: i64 = 0
    shift: i64 = 0
    while at < size:
        part: i64 = data[at]
        at += 1
        length |= (part & 127) << shift
        if part < 128:
            return at + length
        shift += 7
    return size
