"""What a connection speaks, by its first bytes."""

import pytest

from tests.support.wire import connect_packet
from vmq.mqtt.first_bytes import FIRST_BYTES, protocol_of


@pytest.mark.parametrize(
    ("data", "spoken"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\x16\x04", ""),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP"),
        (b"GETTING", ""),
        (b"PROXY TCP4 192.0.2.1 ", "a PROXY header"),
        (connect_packet("c"), "MQTT"),
        (connect_packet("c" * 20_000), "MQTT"),
        (b"\x10\x10\0\6MQIsdp\3", "MQTT"),
        (b"\x10\x10\0\4HTTP", ""),
        (b"", ""),
    ],
)
def test_first_bytes_tell_the_protocol(data: bytes, spoken: str) -> None:
    assert protocol_of(data[:FIRST_BYTES]) == spoken
