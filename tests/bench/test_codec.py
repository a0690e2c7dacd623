"""How long the codec takes for a chunk as a busy socket brings it."""

from pytest_benchmark.fixture import BenchmarkFixture

from tests.support.wire import encode_text, publish_packet
from vmq.mqtt.decoder import Decoder
from vmq.mqtt.encoder import publish

TOPIC = "sensors/building-7/floor-3/temperature"
#: What one read of a busy connection brings.
PACKETS = 256
BURST = publish_packet(TOPIC, b"x" * 64) * PACKETS
MIXED = (publish_packet(TOPIC, b"x" * 64) + publish_packet(TOPIC + "/max", b"x" * 64)) * (
    PACKETS // 2
)


def test_decoding_a_chunk_packet_by_packet(benchmark: BenchmarkFixture) -> None:
    decoder = Decoder()

    def decode() -> int:
        decoder.feed(MIXED)
        count = 0
        while decoder.next():
            count += 1
        return count

    assert benchmark(decode) == PACKETS


def test_decoding_a_chunk_as_one_run(benchmark: BenchmarkFixture) -> None:
    decoder = Decoder()
    field = encode_text(TOPIC)

    def decode() -> int:
        decoder.feed(BURST)
        decoder.next()
        return decoder.run(field)

    assert benchmark(decode) == PACKETS


def test_decoding_a_large_packet_that_arrives_in_pieces(benchmark: BenchmarkFixture) -> None:
    raw = publish_packet(TOPIC, b"x" * 1_000_000)
    pieces = [raw[start : start + 65_536] for start in range(0, len(raw), 65_536)]
    decoder = Decoder()

    def decode() -> bool:
        found = False
        for piece in pieces:
            decoder.feed(piece)
            found = decoder.next()
        return found

    assert benchmark(decode)


def test_encoding_a_publish(benchmark: BenchmarkFixture) -> None:
    topic, payload = TOPIC.encode(), b"x" * 64
    raw = benchmark(publish, topic, payload, 1, 77, False, False)
    assert raw == publish_packet(TOPIC, payload, qos=1, packet_id=77)
