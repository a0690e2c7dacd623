"""A client inside the test's own process: bytes in and out of a connection, without a socket.

For tests that look into a broker while they talk to it. Everything happens at once, in the call.
"""

from typing import Any

from tests.support import wire as mqtt
from vmq.core.registry import Registry
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext


def _ignore(_connection: Connection) -> None:
    pass


class Peer:
    """One connected client, which subscribes to the pairs; also the transport of its connection."""

    def __init__(
        self,
        registry: Registry,
        client_id: str,
        *pairs: tuple[str, int],
        clean: bool = True,
        username: str | None = None,
        address: Any = ("10.0.0.1", 5000),
    ) -> None:
        self.client_id = client_id
        self.address = address
        self.received = bytearray()
        self.is_open = True
        self._last_id = 0
        registry.core.cork.close = 0.0  # nothing waits for the end of a turn
        self.connection = Connection(registry, True, client_id, ListenerContext(_ignore, _ignore))
        self.connection.connection_made(self)
        self.send(mqtt.connect_packet(client_id, clean=clean, username=username))
        if pairs:
            self.subscribe(*pairs)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def _id(self) -> int:
        self._last_id += 1
        return self._last_id

    def subscribe(self, *pairs: tuple[str, int]) -> None:
        self.send(mqtt.subscribe_packet(self._id(), *pairs))

    def publish(
        self,
        topic: str,
        payload: bytes = b"x",
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
    ) -> None:
        number = self._id() if qos else None
        self.send(
            mqtt.publish_packet(topic, payload, qos=qos, packet_id=number, retain=retain, dup=dup)
        )

    def acknowledge(self, packet_id: int) -> None:
        self.send(mqtt.puback_packet(packet_id))

    def block(self) -> None:
        """Its socket takes nothing more."""
        self.connection.pause_writing()

    def leave(self) -> None:
        if self.is_open:
            self.is_open = False
            self.connection.connection_lost(None)

    # The transport

    def write(self, data: bytes) -> None:
        self.received += data

    def close(self) -> None:
        self.leave()

    def abort(self) -> None:
        self.leave()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return self.address if name == "peername" else None
