"""How long the decoder takes for what comes in pieces; for chunks as a busy socket brings them: test_session.py."""

from pytest_benchmark.fixture import BenchmarkFixture

from tests.support.wire import publish_packet
from vmq.mqtt.decoder import Decoder

TOPIC = "sensors/building-7/floor-3/temperature"


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
