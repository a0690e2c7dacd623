"""How a WebSocket ends: who closes it, with which code, and what is still read and written then."""

import logging
from collections.abc import Callable

import pytest

from tests.support.wire import (
    PINGREQ_BYTES,
    PINGRESP_BYTES,
    connect_packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)
from tests.vmq.hook_sites import listen, unavailable
from tests.vmq.listeners.web_client import MAX_SIZE, WebClient
from tests.vmq.mqtt.strategies import cut
from tests.vmq.support import House
from vmq.core.states import CLOSING, FAILED, LEAVING, REFUSED


@pytest.fixture
def client(house: House) -> WebClient:
    return WebClient(house)


def test_a_text_frame_closes_the_connection(
    house: House, client: WebClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.send(connect_packet("c"))
    client.take()
    client.protocol.send_text(b"hello")
    client.protocol.send_binary(publish_packet("a", b"x", retain=True))
    with caplog.at_level(logging.INFO, "vmq"):
        client.push()
    assert "needs binary frames [MQTT-6.0.0-1]" in caplog.text
    assert client.close_codes == [1003]
    assert client.transport.closed
    assert house.registry.subscribers == {}
    assert house.retained() == {}


def test_a_frame_that_is_not_masked_closes_the_connection(client: WebClient) -> None:
    client.socket.data_received(b"\x82\x00")
    client.house.settle()
    client.pull()
    assert client.close_codes == [1002]
    assert client.connection.closing


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (b"\xe0\x00", 1000),
        (b"\xff\x00", 1002),
        (publish_packet("a", b"x" * MAX_SIZE), 1009),
        (connect_packet("c"), 1002),
    ],
)
def test_the_end_of_mqtt_closes_the_websocket_with_its_code(
    house: House, client: WebClient, packet: bytes, code: int
) -> None:
    house.options.max_packet_size = MAX_SIZE
    client.send(connect_packet("c"), *cut(packet, [MAX_SIZE // 2]), PINGREQ_BYTES)
    assert [each.raw for each in client.take()] == [b"\x20\x02\0\0"]
    assert client.transport.closed
    assert client.close_codes == [code]
    assert house.registry.subscribers == {}


@pytest.mark.parametrize("is_frame", [True, False])
def test_who_still_sends_what_is_too_large_reads_why_before_it_is_cut_off(
    house: House, client: WebClient, is_frame: bool
) -> None:
    later: list[Callable[[], None]] = []
    house.core.call_later = lambda _, call: later.append(call)
    client.send(connect_packet("c"))
    packet = publish_packet("a", b"x" * (1 << 20))
    client.protocol.send_binary(packet if is_frame else packet[:100])
    data = b"".join(client.protocol.data_to_send())
    house.options.max_packet_size = MAX_SIZE
    client.connection.session.decoder.limit(MAX_SIZE, MAX_SIZE)
    for _ in range(3):
        client.socket.data_received(data)
        house.settle()
    client.pull()
    assert client.close_codes == [1009]
    assert client.transport.is_reading()
    assert not client.transport.closed
    (close,) = later
    close()
    assert client.transport.closed


@pytest.mark.parametrize(
    ("state", "code"), [(REFUSED, 1008), (CLOSING, 1008), (LEAVING, 1001), (FAILED, 1011)]
)
def test_the_broker_s_own_end_of_it_has_its_code(client: WebClient, state: int, code: int) -> None:
    client.connection.finish("", state)
    client.connection.outbox.flush()
    client.pull()
    assert client.close_codes == [code]


@pytest.mark.parametrize("hook", ["auth_on_publish", "auth_on_subscribe", "auth_on_unsubscribe"])
def test_what_nobody_can_decide_is_no_refusal(house: House, hook: str) -> None:
    listen(house, **{hook: unavailable})
    client = WebClient(house)
    publish = publish_packet("t", b"", qos=1, packet_id=1)
    asked = publish + subscribe_packet(2, ("t", 1)) + unsubscribe_packet(3, "t")
    client.send(connect_packet("c") + asked)
    client.pull()
    assert client.close_codes == [1011]


# --- the end


def test_the_end_of_the_stream_ends_the_session(house: House, client: WebClient) -> None:
    client.send(connect_packet("c"))
    assert client.socket.eof_received() is False, "the event loop closes the transport"
    client.socket.connection_lost(None)
    assert house.registry.subscribers == {}


def test_the_loss_of_the_transport_ends_the_session(house: House, client: WebClient) -> None:
    client.send(connect_packet("c"))
    client.socket.connection_lost(ConnectionResetError())
    assert client.ended == [client.connection]
    assert house.registry.subscribers == {}


def test_nothing_is_written_after_the_close_frame(client: WebClient) -> None:
    client.send(connect_packet("c"))
    client.take()
    client.socket.close()
    client.socket.write(PINGRESP_BYTES)
    client.pull()
    assert (client.frames, client.close_codes) == ([], [1008])
