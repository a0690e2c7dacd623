"""Chapter 6: WebSocket as the transport."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance import websocket_wire
from tests.conformance.peers import Peers
from tests.support import wire as mqtt

OpenWebSocket = Callable[[], tuple[mqtt.Wire, websocket_wire.WebSocketStream]]


@pytest.fixture
def opened(peers: Peers) -> Iterator[OpenWebSocket]:
    """Opens WebSocket connections that end with the test."""
    with ExitStack() as stack:

        def start() -> tuple[mqtt.Wire, websocket_wire.WebSocketStream]:
            wire, stream = websocket_wire.open_websocket(peers.broker.ws)
            stack.callback(wire.close)
            return wire, stream

        yield start


def test_mqtt_6_0_0_1_text_frame(peers: Peers, opened: OpenWebSocket, watcher: mqtt.Wire) -> None:
    """A text frame closes the connection; nothing in it counts, and the will is published."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    wire, stream = opened()
    wire.connect(peers.id("w"), will=will)
    stream.send_frame(websocket_wire.TEXT, mqtt.publish_packet(peers.topic("a"), b"x"))
    wire.expect_closed()
    watcher.expect_publish(will.topic, will.payload)
    peers.expect_no_more(watcher)


def test_mqtt_6_0_0_1_fragmented_text(peers: Peers, opened: OpenWebSocket) -> None:
    """A text message in fragments closes the connection too."""
    wire, stream = opened()
    wire.connect(peers.id())
    stream.send_frame(websocket_wire.TEXT, b"\xc0", fin=False)
    stream.send_frame(websocket_wire.CONTINUATION, b"\x00", fin=True)
    wire.expect_closed()


@pytest.mark.parametrize("size", [0, 100, 126, 65535, 65536, 300_000])
def test_mqtt_6_0_0_1_binary_frames_sent(
    peers: Peers, topic: str, opened: OpenWebSocket, size: int
) -> None:
    """The server sends data in binary frames, and continuations of them, whatever the size."""
    wire, _ = opened()
    wire.connect(peers.id())
    wire.subscribe((topic, 0))
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    wire.send(mqtt.publish_packet(topic, payload))
    wire.expect_publish(topic, payload)


def test_mqtt_6_0_0_2_frames_that_straddle(peers: Peers, topic: str, opened: OpenWebSocket) -> None:
    """A frame may hold the end of one packet and the start of the next, or nothing at all."""
    wire, stream = opened()
    wire.connect(peers.id())
    wire.subscribe((topic, 0))
    data = b"".join(mqtt.publish_packet(topic, b"%d" % n * 20) for n in range(30))
    for start in range(0, len(data), 37):
        stream.send_frame(websocket_wire.BINARY, data[start : start + 37])
        stream.send_frame(websocket_wire.BINARY, b"")
    for number in range(30):
        wire.expect_publish(topic, b"%d" % number * 20)


def test_mqtt_6_0_0_2_fragmented_messages(peers: Peers, topic: str, opened: OpenWebSocket) -> None:
    """A WebSocket message in fragments, with a ping between them, is one run of bytes."""
    wire, stream = opened()
    wire.connect(peers.id())
    wire.subscribe((topic, 0))
    data = mqtt.publish_packet(topic, b"one") + mqtt.publish_packet(topic, b"two")
    pieces = [data[start : start + 7] for start in range(0, len(data), 7)]
    stream.send_frame(websocket_wire.BINARY, pieces[0], fin=False)
    for piece in pieces[1:-1]:
        stream.send_frame(websocket_wire.PING, b"between")
        stream.send_frame(websocket_wire.CONTINUATION, piece, fin=False)
    stream.send_frame(websocket_wire.CONTINUATION, pieces[-1], fin=True)
    wire.expect_publish(topic, b"one")
    wire.expect_publish(topic, b"two")
    wire.expect_nothing()
    assert set(stream.pongs) == {b"between"}


@pytest.mark.parametrize("protocols", [(), ("chat",), ("MQTTX", "soap")])
def test_mqtt_6_0_0_3_subprotocol_not_offered(peers: Peers, protocols: tuple[str, ...]) -> None:
    """Without mqtt among the offered subprotocols our choice is to refuse the upgrade."""
    response, stream = websocket_wire.upgrade(peers.broker.ws, protocols)
    stream.close()
    assert response.status != 101


@pytest.mark.parametrize("protocols", [("mqtt",), ("chat", "mqtt"), ("mqtt", "chat")])
def test_mqtt_6_0_0_4_subprotocol_returned(peers: Peers, protocols: tuple[str, ...]) -> None:
    """The server picks mqtt and says so in its answer."""
    response, stream = websocket_wire.upgrade(peers.broker.ws, protocols)
    assert response.status == 101
    assert response.headers["sec-websocket-protocol"] == ["mqtt"]
    wire = mqtt.Wire(stream)
    wire.connect(peers.id())
    wire.close()


def test_expected_close_frame_is_no_disconnect(
    peers: Peers, opened: OpenWebSocket, watcher: mqtt.Wire
) -> None:
    """A close frame ends the connection without DISCONNECT: the will is published."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    wire, stream = opened()
    wire.connect(peers.id("w"), will=will)
    stream.send_frame(websocket_wire.CLOSE, b"\x03\xe8")
    frame = stream.recv_frame()
    assert frame is None or frame.opcode == websocket_wire.CLOSE
    peers.expect_will_once(watcher, "w", will)


def test_expected_one_broker_for_both_transports(
    peers: Peers, topic: str, opened: OpenWebSocket
) -> None:
    """TCP and WebSocket clients exchange messages, and a session may change transports."""
    wire, _ = opened()
    wire.connect(peers.id("s"), clean=False)
    wire.subscribe((topic, 1))
    tcp = peers.subscriber((topic, 0))
    wire.publish(topic, b"x", qos=1)
    assert tcp.expect(mqtt.PUBLISH).payload == b"x"
    wire.acknowledge(wire.expect_publish(topic, b"x"))
    wire.disconnect()
    peers.publish(topic, b"y", qos=1)
    peers.resume("s").expect_publish(topic, b"y", qos=1)
