"""Acknowledgements in order, out of order, and unasked for."""

import random

from vmq.bench.load.acks import PUBACK, PUBREL, AckLine, run_of
from vmq.bench.load.frames import PACKET_ID_CYCLE, packet_id_of


def acks(*sequences: int, head: int = PUBACK) -> memoryview:
    packets = (
        bytes((head, 2)) + packet_id_of(sequence).to_bytes(2, "big") for sequence in sequences
    )
    return memoryview(b"".join(packets))


def test_runs_in_order_are_taken_around_the_cycle() -> None:
    line = AckLine(PUBACK)
    at = 0
    for size in (1, 20, 4000, 30_000, 5, 30_000, 20_000):
        line.take(acks(*range(at, at + size)), at + size)
        at += size
        assert (line.next, line.count, line.unknown) == (at, at, 0)
    assert at > 2 * PACKET_ID_CYCLE


def test_any_order_will_do() -> None:
    line = AckLine(PUBACK)
    order = list(range(100))
    random.Random(1).shuffle(order)
    for taken, sequence in enumerate(order, 1):
        line.take(acks(sequence), 100)
        assert line.count == taken
    assert (line.next, line.early, line.unknown) == (100, set(), 0)


def test_what_nobody_waits_for_is_counted() -> None:
    line = AckLine(PUBACK)
    line.take(acks(0, 1, 2), 2)
    assert (line.next, line.unknown) == (2, 1)
    line.take(acks(1), 2)
    assert line.unknown == 2
    line.take(memoryview(b"\x40\x02\x00\x00\x40\x02\xff\xff"), 2)
    assert (line.next, line.count, line.unknown) == (2, 2, 4)
    line.take(acks(3, 3), 5)
    assert (line.count, line.unknown) == (3, 5)


def test_a_run_ends_at_another_packet_and_at_a_cut_one() -> None:
    buffer = bytearray(b"zz" + acks(1, 2, 3, head=PUBREL).tobytes() + b"\x30\x02\x62\x62")
    assert run_of(buffer, 2, len(buffer), PUBREL) == 14
    assert run_of(buffer, 2, 13, PUBREL) == 10
    assert run_of(buffer, 2, 4, PUBREL) == 2
    assert run_of(buffer, 14, len(buffer), PUBREL) == 14
    buffer[7] = 3  # the second one has another length
    assert run_of(buffer, 2, len(buffer), PUBREL) == 6
