"""URLs of brokers."""

import pytest

from vmq.bench.load.address import Address, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://host", Address("mqtt", "host", 1883)),
        ("tcp://127.0.0.1:1884", Address("mqtt", "127.0.0.1", 1884)),
        ("mqtts://[::1]", Address("mqtts", "::1", 8883)),
        ("ws://host", Address("ws", "host", 80, "/mqtt")),
        ("wss://host:1/path", Address("wss", "host", 1, "/path")),
        ("mqtt://me:p%40ss@host", Address("mqtt", "host", 1883, "", "me", "p@ss")),
    ],
)
def test_a_url_names_host_port_path_and_user(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("host:1883", "expected mqtt://"),
        ("http://host", "expected mqtt://"),
        ("mqtt://", "host is missing"),
        ("mqtt://host/topic", "path means nothing"),
        ("mqtt://host:99999", "out of range"),
    ],
)
def test_what_is_no_url_of_a_broker_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(url)


def test_the_url_of_an_address_hides_the_credentials() -> None:
    assert parse_address("mqtts://me:secret@[::1]:1").url == "mqtts://[::1]:1"
    assert parse_address("ws://h").url == "ws://h:80/mqtt"


def test_schemes_say_what_the_stream_is() -> None:
    kinds = [(a.is_tls, a.is_websocket) for a in map(parse_address, ("mqtt://h", "mqtts://h"))]
    assert kinds == [(False, False), (True, False)]
    kinds = [(a.is_tls, a.is_websocket) for a in map(parse_address, ("ws://h", "wss://h"))]
    assert kinds == [(False, True), (True, True)]
