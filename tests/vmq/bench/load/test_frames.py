"""Blocks of messages against the codec."""

import pytest

from vmq.bench.load.frames import (
    HEADER,
    MAX_BLOCK,
    PACKET_ID_CYCLE,
    LoadFrames,
    block_size,
    packet_id_of,
)
from vmq.mqtt import encoder
from vmq.mqtt.decoder import Decoder

TOPIC = b"bench/p3/d/t"


def packets(data: bytearray) -> list[bytes]:
    decoder = Decoder()
    decoder.feed(bytes(data))
    found = []
    while decoder.next():
        found.append(decoder.data[decoder.start : decoder.end])
    assert decoder.waiting_bytes() == 0
    return found


def payload_of(frames: LoadFrames, packet: bytes) -> bytes:
    return packet[frames.payload_at :]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [8, 9, 130])
@pytest.mark.parametrize("number", [0, 1, 128, 33_000])
@pytest.mark.parametrize("count", [1, 64])
def test_blocks_hold_what_the_codec_would_write(
    qos: int, size: int, number: int, count: int
) -> None:
    frames = LoadFrames(TOPIC, 3, size, qos, per_block=count)
    found = packets(frames.numbered(number))
    assert len(found) == count
    for index, packet in enumerate(found):
        sequence = number * count + index
        payload = payload_of(frames, packet)
        assert len(payload) == size
        assert payload[:HEADER] == (3).to_bytes(4, "big") + sequence.to_bytes(4, "big")
        assert packet == encoder.publish(TOPIC, payload, qos, packet_id_of(sequence), False, False)
        plain = encoder.publish(TOPIC, payload, qos, 0, False, False)
        assert frames.one(sequence) == plain
        assert frames.sequence_of(plain) == sequence
    wanted = b"".join(frames.one(number * count + index) for index in range(count))
    assert frames.plain(number) == wanted


def test_payloads_of_neighbours_differ_in_several_places() -> None:
    frames = LoadFrames(TOPIC, 0, 64, 0)
    one, other = frames.one(10), frames.one(11)
    differing = [at for at in range(len(one)) if one[at] != other[at]]
    assert len(differing) == 4
    assert differing[-1] == len(one) - 1


def test_packet_ids_go_around() -> None:
    assert packet_id_of(0) == 1
    assert packet_id_of(PACKET_ID_CYCLE - 1) == PACKET_ID_CYCLE
    assert packet_id_of(PACKET_ID_CYCLE) == 1
    frames = LoadFrames(TOPIC, 0, 8, 1)
    last = packets(frames.numbered(PACKET_ID_CYCLE // MAX_BLOCK - 1))[-1]
    assert last[frames.id_at : frames.id_at + 2] == PACKET_ID_CYCLE.to_bytes(2, "big")
    first = packets(frames.numbered(PACKET_ID_CYCLE // MAX_BLOCK))[0]
    assert first[frames.id_at : frames.id_at + 2] == b"\0\1"


def test_blocks_are_smaller_where_there_are_many_or_long_messages() -> None:
    sizes = [block_size(*each) for each in ((20, 10), (100, 10), (100, 1000), (1_000_000, 10))]
    assert sizes[0] == MAX_BLOCK
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert all(size & (size - 1) == 0 for size in sizes)


def test_topics_are_used_in_turn() -> None:
    frames = LoadFrames([b"t/a", b"t/b", b"t/c"], 3, 20, 1, 8)
    block = bytes(frames.numbered(1))
    packets = [block[at : at + frames.length] for at in range(0, len(block), frames.length)]
    assert [packet[4:7] for packet in packets] == [b"t/a", b"t/b", b"t/c"] * 2 + [b"t/a", b"t/b"]
    assert [frames.sequence_of(packet) for packet in packets] == list(range(8, 16))
    with pytest.raises(AssertionError, match="different lengths"):
        LoadFrames([b"t/a", b"t/bb"], 3, 20, 1, 8)
