"""A client with a durable session: what it publishes arrives once, whatever becomes of the broker meanwhile.

It publishes and receives at QoS 2, keeps what is under way in memory, and connects again by itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from vmq.mqtt import encoder
from vmq.mqtt.packets import Connect

#: Messages that are under way at a time.
WINDOW: Final = 20
#: Seconds until a client that could not connect tries again, and that connecting may take.
RETRY: Final = 0.25
PATIENCE: Final = 5.0
KEEP_ALIVE: Final = 30

_CONNACK: Final = 2
_PUBLISH: Final = 3
_PUBACK: Final = 4
_PUBREC: Final = 5
_PUBREL: Final = 6
_PUBCOMP: Final = 7
_SUBACK: Final = 9

#: Address of a broker; asked for anew for each connection.
Address = Callable[[], tuple[str, int]]


class Outgoing:
    """A message under way: `released` once the broker has it and was told that we know."""

    __slots__ = ("payload", "released", "topic")

    def __init__(self, topic: str, payload: bytes) -> None:
        self.topic = topic
        self.payload = payload
        self.released = False

    def packet(self, packet_id: int, *, dup: bool) -> bytes:
        """As it is sent."""
        if self.released:
            return b"\x62\x02" + packet_id.to_bytes(2, "big")
        return encoder.publish(
            self.topic.encode(), self.payload, 2, packet_id, retain=False, dup=dup
        )


class DurableClient(asyncio.Protocol):
    """One client.

    Args:
        client_id: whose session it is.
        address: where a broker is, at the moment.
        filters: what it subscribes to.
        on_message: gets each message, once.
    """

    def __init__(
        self,
        client_id: str,
        address: Address,
        filters: tuple[str, ...] = (),
        on_message: Callable[[str, bytes], None] = lambda _topic, _payload: None,
    ) -> None:
        self.client_id = client_id
        self.address = address
        self.filters = filters
        self.on_message = on_message
        self.is_up = False
        #: The broker has confirmed what it subscribes to.
        self.is_subscribed = False
        #: Messages that the broker has taken over for good.
        self.done = 0
        self._waiting: deque[Outgoing] = deque()
        self._under_way: dict[int, Outgoing] = {}
        self._received: set[int] = set()
        self._last_id = 0
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._lost = asyncio.Event()

    @property
    def open(self) -> int:
        """Messages that the broker has not confirmed."""
        return len(self._waiting) + len(self._under_way)

    async def run(self) -> None:
        """Keeps it connected until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._lost.clear()
                try:
                    async with asyncio.timeout(PATIENCE):
                        await loop.create_connection(lambda: self, *self.address())
                except OSError:
                    await asyncio.sleep(RETRY)
                    continue
                await self._lost.wait()
                await asyncio.sleep(RETRY)
        finally:
            if self._transport is not None:
                self._transport.abort()

    def publish(self, topic: str, payload: bytes) -> None:
        """Takes a message, which is sent as soon as may be."""
        self._waiting.append(Outgoing(topic, payload))
        self._send_waiting()

    def ping(self) -> None:
        """Says that it is there."""
        self._write(b"\xc0\x00")

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""
        request = Connect()
        request.client_id = self.client_id
        request.clean_session = False
        request.keep_alive = KEEP_ALIVE
        transport.write(encoder.connect(request))

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self.is_up = False
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (packet := self._next_packet()) is not None:
            self._on_packet(*packet)

    def _next_packet(self) -> tuple[int, bytes] | None:
        """The first whole packet: its first byte, and its body."""
        length = 0
        for place in range(1, min(5, len(self._buffer))):
            byte = self._buffer[place]
            length |= (byte & 127) << 7 * (place - 1)
            if byte < 128:
                end = place + 1 + length
                if len(self._buffer) < end:
                    return None
                head, body = self._buffer[0], self._buffer[place + 1 : end]
                self._buffer = self._buffer[end:]
                return head, body
        return None

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # Packets

    def _on_packet(self, head: int, body: bytes) -> None:
        kind = head >> 4
        if kind == _CONNACK:
            self._on_connack(body)
        elif kind == _PUBLISH:
            self._on_publish(head, body)
        elif kind == _PUBREC:
            packet_id = int.from_bytes(body[:2], "big")
            if packet_id in self._under_way:
                self._under_way[packet_id].released = True
            self._write(b"\x62\x02" + body[:2])
        elif kind == _SUBACK:
            self.is_subscribed = True
        elif kind == _PUBREL:
            self._received.discard(int.from_bytes(body[:2], "big"))
            self._write(b"\x70\x02" + body[:2])
        elif kind in (_PUBCOMP, _PUBACK):
            if self._under_way.pop(int.from_bytes(body[:2], "big"), None) is not None:
                self.done += 1
            self._send_waiting()

    def _on_connack(self, body: bytes) -> None:
        if body[1] != 0:
            assert self._transport is not None
            self._transport.abort()
            return
        self.is_up = True
        if not body[0]:
            self._received.clear()
            if self.filters:
                self._write(encoder.subscribe(1, [(each, 2) for each in self.filters]))
        for packet_id, each in self._under_way.items():
            self._write(each.packet(packet_id, dup=not each.released))
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self.is_up and self._waiting and len(self._under_way) < WINDOW:
            self._last_id = self._last_id % 65_535 + 1
            each = self._waiting.popleft()
            self._under_way[self._last_id] = each
            self._write(each.packet(self._last_id, dup=False))

    def _on_publish(self, head: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2], "big")
        topic, qos = body[2:end].decode(), head >> 1 & 3
        if not qos:
            self.on_message(topic, body[end:])
            return
        number = body[end : end + 2]
        if qos == 1:
            self.on_message(topic, body[end + 2 :])
            self._write(b"\x40\x02" + number)
            return
        packet_id = int.from_bytes(number, "big")
        if packet_id not in self._received:
            self._received.add(packet_id)
            self.on_message(topic, body[end + 2 :])
        self._write(b"\x50\x02" + number)
