"""The stream of the application's broadcasts: what it keeps, and for how long."""

from dataclasses import replace

from tests.simulator.machines import OPTIONS
from vmq_cluster.broadcasts import MAX_ORIGINS, Broadcasts
from vmq_cluster.effects import Delivered, Outbox


def test_a_broadcast_is_delivered_and_kept() -> None:
    outbox = Outbox()
    stream = Broadcasts(5, OPTIONS, outbox)
    assert stream.deliver(9, 1, b"x")
    assert outbox.effects == [Delivered(9, b"x")]
    assert stream.is_seen(9, 1)
    assert not stream.is_seen(9, 2)
    assert stream.payload(9, 1) == b"x"
    assert stream.next(b"mine") == (5, 1)
    assert stream.next(b"mine too") == (5, 2)
    assert stream.payload(5, 2) == b"mine too"


def test_the_oldest_payloads_go_first_and_stay_seen() -> None:
    stream = Broadcasts(5, replace(OPTIONS, max_broadcasts=3, max_broadcast_bytes=10), Outbox())
    for payload in (b"1", b"2", b"3", b"4"):
        stream.next(payload)
    assert [stream.payload(5, number) for number in (1, 2, 3, 4)] == [None, b"2", b"3", b"4"]
    assert stream.is_seen(5, 1)
    stream.next(b"x" * 9)
    assert [stream.payload(5, number) for number in (3, 4, 5)] == [None, b"4", b"x" * 9]
    stream.next(b"x" * 11)
    assert stream.payload(5, 6) is None


def test_so_many_origins_are_remembered() -> None:
    stream = Broadcasts(1, OPTIONS, Outbox())
    for origin in range(1, MAX_ORIGINS + 2):
        stream.deliver(origin, 1, b"")
    assert not stream.is_seen(1, 1)
    assert stream.is_seen(2, 1)
