"""The packets to one client, sorted by what they are, each kind in its order."""

from typing import Final

from mypy_extensions import i64

from vmq.mqtt.packets import CONNACK, PINGRESP, PUBLISH, PUBREL

#: The first byte of a CONNACK.
CONNACK_HEAD: Final = CONNACK << 4

_ANSWER: Final = 0
_DELIVERY: Final = 1
_PING: Final = 2


def sort_packets(data: bytes) -> tuple[bytes, bytes, bytes]:
    """What answers the client's packets; PUBLISH and PUBREL; PINGRESP.

    Any other packet is an answer, and so is what is none.
    """
    size: i64 = len(data)
    sorted_runs: list[list[bytes]] = [[], [], []]
    run = 0
    run_kind = -1
    at: i64 = 0
    while at < size:
        head: i64 = data[at]
        kind = head >> 4
        if kind in (PUBLISH, PUBREL):
            kind = _DELIVERY
        elif kind == PINGRESP:
            kind = _PING
        else:
            kind = _ANSWER
        if kind != run_kind:
            if run_kind >= 0:
                sorted_runs[run_kind].append(data[run:at])
            run = at
            run_kind = kind
        at = end_of(data, at, size)
    if run_kind >= 0:
        sorted_runs[run_kind].append(data if run == 0 else data[run:])
    answers, deliveries, pings = sorted_runs
    return joined(answers), joined(deliveries), joined(pings)


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


def joined(pieces: list[bytes]) -> bytes:
    """The pieces as one; no copy of a single one."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
