"""The receiving end, fed by hand: what it finds, and what it answers."""

import pytest

from tests.vmq.bench.support import SilentPublisher, SilentSubscriber, sent
from vmq.bench.load.checks import Faults
from vmq.bench.load.loop import Loop
from vmq.mqtt import encoder


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


def test_runs_of_many_publishers_are_told_apart(loop: Loop) -> None:
    publishers = [SilentPublisher(loop, index) for index in range(3)]
    subscriber = SilentSubscriber(loop, *publishers)
    at = [0, 0, 0]
    data = b""
    for index, run in ((0, 5), (1, 1), (0, 2), (2, 70), (1, 1), (2, 1), (0, 60), (1, 3)):
        for _ in range(run):
            data += message(publishers[index], at[index])
            at[index] += 1
    for index, publisher in enumerate(publishers):
        sent(publisher, at[index])
    subscriber.feed(data)
    assert [track.missing(at[index]) for index, track in subscriber.tracks.items()] == [0, 0, 0]
    assert [publisher.passed for publisher in publishers] == at
    assert subscriber.faults == Faults()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_kind_of_fault_is_found(loop: Loop, qos: int) -> None:
    publisher = SilentPublisher(loop, 0, qos)
    sent(publisher, 100)
    subscriber = SilentSubscriber(loop, publisher)
    packet_id = 40

    def some(*sequences: int) -> bytes:
        nonlocal packet_id
        packets = []
        for sequence in sequences:
            packet_id += 3
            packets.append(message(publisher, sequence, packet_id))
        return b"".join(packets)

    foreign = encoder.publish(b"bench/else", b"\xff" * 16, qos, 9, False, False)
    shorter = encoder.publish(b"b", b"x", qos, 10, False, False)
    damaged = bytearray(some(30))
    damaged[-1] ^= 1
    data = [
        some(*range(10)),
        some(12, 13, 14),  # 10 and 11 are missing
        some(5, 6),  # twice
        some(11),  # late
        foreign,
        some(*range(15, 30)),
        bytes(damaged),
        shorter,
        some(*range(31, 90)),
    ]
    subscriber.feed(b"".join(data))
    assert subscriber.faults == Faults(duplicates=2, reordered=1, damaged=1, foreign=2)
    assert subscriber.tracks[0].missing(100) == 11  # 10, and 90 to 99
    assert loop.protocol_errors == 0
    assert "nobody sent" in loop.first_problem


def test_a_message_with_the_wrong_retain_flag_is_damaged(loop: Loop) -> None:
    publisher = SilentPublisher(loop, 0)
    sent(publisher, 3)
    subscriber = SilentSubscriber(loop, publisher)
    retained = bytearray(message(publisher, 1))
    retained[0] |= 1
    subscriber.feed(message(publisher, 0) + retained + message(publisher, 2))
    assert subscriber.faults == Faults(damaged=1)


def test_qos_1_is_acknowledged_with_the_ids_of_the_broker(loop: Loop) -> None:
    publisher = SilentPublisher(loop, 0, 1)
    sent(publisher, 6)
    subscriber = SilentSubscriber(loop, publisher)
    ids = [5, 700, 65_535, 1, 2, 3]
    data = b"".join(message(publisher, index, number) for index, number in enumerate(ids))
    subscriber.feed(data[:70])
    subscriber.feed(data[70:])
    wanted = b"".join(encoder.PUBACK_HEAD + number.to_bytes(2, "big") for number in ids)
    assert subscriber.written == wanted
    assert loop.protocol_errors == 0


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


def test_other_packets_may_stand_between_messages(loop: Loop) -> None:
    publisher = SilentPublisher(loop, 0)
    sent(publisher, 4)
    subscriber = SilentSubscriber(loop, publisher)
    data = message(publisher, 0) + encoder.PINGRESP + message(publisher, 1)
    subscriber.feed(data + encoder.suback(1, b"\0") + message(publisher, 2))
    assert subscriber.tracks[0].received() == 3
    assert subscriber.granted == b"\0"
    subscriber.feed(b"\x20\x02\x00\x00" + message(publisher, 3))
    assert loop.protocol_errors == 1
    assert subscriber.tracks[0].received() == 4
