"""The receiving end, fed by hand: what it finds, and what it answers."""

import pytest

from tests.vmq.bench.support import SilentPublisher, SilentSubscriber, sent
from vmq.bench.load.checks import Faults
from vmq.bench.load.loop import Loop


def message(publisher: SilentPublisher, sequence: int, packet_id: int = 0, dup: int = 0) -> bytes:
    """A message as a broker delivers it."""
    frames = publisher.frames
    packet = bytearray(frames.one(sequence))
    if frames.qos:
        packet[frames.id_at : frames.id_at + 2] = packet_id.to_bytes(2, "big")
    packet[0] |= dup * 8
    return bytes(packet)


def test_a_stream_in_order_is_sound_however_it_is_cut(loop: Loop) -> None:
    publisher = SilentPublisher(loop, 0)
    data = b"".join(message(publisher, sequence) for sequence in range(300))
    for size in (1, 7, len(data) // 300, 100, 1000, len(data)):
        subscriber = SilentSubscriber(loop, publisher)
        publisher.sent = 0
        sent(publisher, 300)
        for at in range(0, len(data), size):
            subscriber.feed(data[at : at + size])
        assert subscriber.tracks[0].missing(300) == 0
        assert subscriber.faults == Faults()
        assert (subscriber.waiting, subscriber.latency.count) == (0, 300)


def test_a_message_with_the_wrong_retain_flag_is_damaged(loop: Loop) -> None:
    publisher = SilentPublisher(loop, 0)
    sent(publisher, 3)
    subscriber = SilentSubscriber(loop, publisher)
    retained = bytearray(message(publisher, 1))
    retained[0] |= 1
    subscriber.feed(message(publisher, 0) + retained + message(publisher, 2))
    assert subscriber.faults == Faults(damaged=1)


def test_qos_2_goes_through_all_its_steps(loop: Loop) -> None:
    publisher = SilentPublisher(loop, 0, 2)
    sent(publisher, 3)
    subscriber = SilentSubscriber(loop, publisher)
    subscriber.feed(message(publisher, 0, 7) + message(publisher, 1, 9))
    assert subscriber.written == b"\x50\x02\x00\x07\x50\x02\x00\x09"
    subscriber.written.clear()
    # The first is released, repeated under the same id it is a new message; the second one comes again as itself.
    subscriber.feed(
        b"\x62\x02\x00\x07" + message(publisher, 2, 7) + message(publisher, 1, 9, dup=1)
    )
    assert subscriber.written == b"\x70\x02\x00\x07\x50\x02\x00\x07\x50\x02\x00\x09"
    assert subscriber.faults == Faults()
    assert subscriber.tracks[0].missing(3) == 0
    subscriber.feed(b"\x62\x02\x00\x07\x62\x02\x00\x09")
    assert loop.protocol_errors == 0


@pytest.mark.parametrize("ids", [(0, 1), (4, 4), (3, 9)])
def test_packet_ids_that_are_in_use_are_noticed(loop: Loop, ids: tuple[int, int]) -> None:
    publisher = SilentPublisher(loop, 0, 2)
    sent(publisher, 3)
    subscriber = SilentSubscriber(loop, publisher)
    subscriber.feed(message(publisher, 0, 3))
    subscriber.feed(b"".join(message(publisher, i, number) for i, number in enumerate(ids, 1)))
    assert loop.protocol_errors == 1
