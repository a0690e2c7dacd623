"""What comes by any listener is in its stream, and is there after a kill once it is acknowledged."""

import ssl
from collections.abc import Callable
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

from tests.listeners.conftest import ListenerFactory, tls
from tests.support.streams import tls_wire, unix_wire
from tests.support.wire import TIMEOUT, Wire, publish_packet
from vmq.streams.stored import StoredStream, find_folder
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess

STREAM = '[streams.kept]\nfilters = ["kept/#"]\npartitions = 2\nkey = "topic"\n'

#: Larger than a TLS record and than what a listener reads at once.
LARGE = bytes(300_000)

#: The payloads of one device by QoS; those of QoS 0 in one burst.
SENT = [(0, b"0-%d" % number) for number in range(50)] + [
    (1, b"1"),
    (2, b"2"),
    (1, LARGE),
    (2, LARGE),
]


class WebSocketClient:
    """The bytes of an MQTT connection in frames of the `websockets` library."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        self.socket = connect_websocket(
            url.replace("127.0.0.1", "localhost"),
            ssl=context,
            subprotocols=[Subprotocol("mqtt")],
            open_timeout=TIMEOUT,
            proxy=None,
        )

    def sendall(self, data: bytes) -> None:
        self.socket.send(data)

    def recv(self, timeout: float) -> bytes:
        try:
            data = self.socket.recv(timeout)
        except ConnectionClosed:
            return b""
        assert isinstance(data, bytes)
        return data

    def address(self) -> tuple[str, int]:
        host, port = self.socket.local_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        self.socket.close()


def ways(broker: BrokerProcess, context: ssl.SSLContext) -> dict[str, Callable[[], Wire]]:
    """How to reach each listener."""
    urls = {url.partition("://")[0]: url for url in broker.urls}
    return {
        "tcp": lambda: Wire.connect_tcp(broker.tcp),
        "tls": lambda: tls_wire(urls["tls"], context),
        "ws": lambda: Wire(WebSocketClient(urls["ws"], None)),
        "wss": lambda: Wire(WebSocketClient(urls["wss"], context)),
        "unix": lambda: unix_wire(urls["unix"].removeprefix("unix://")),
    }


def publish_all(wire: Wire, topic: str) -> None:
    """Returns when everything of QoS 1 and 2 is acknowledged, and with it what came before."""
    wire.send(*(publish_packet(topic, payload) for qos, payload in SENT if qos == 0))
    for qos, payload in SENT:
        if qos:
            wire.publish(topic, payload, qos=qos)


def test_every_listener_feeds_streams(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    broker = start(
        {
            "tcp": {"url": "tcp://127.0.0.1:0"},
            "tls": tls(server),
            "ws": {"url": "ws://127.0.0.1:0/mqtt"},
            "wss": tls(server, "wss"),
            "unix": {"url": f"unix://{tmp_path}/mqtt.sock", "allow_anonymous": True},
        },
        data,
        STREAM,
    )
    reached = ways(broker, authority.client_context())
    for name, connect in reached.items():
        with connect() as wire:
            wire.connect(f"by-{name}")
            publish_all(wire, f"kept/{name}")
    broker.kill()
    found: dict[str, list[tuple[int, bytes]]] = {}
    for batch in StoredStream(find_folder(data), "kept").rows():
        for row in batch.to_pylist():
            name = row["client_id"].removeprefix("by-")
            assert row["topic"] == f"kept/{name}"
            found.setdefault(name, []).append((row["qos"], row["payload"]))
    assert found == dict.fromkeys(reached, SENT)
