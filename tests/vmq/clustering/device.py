"""An MQTT client of a broker in the test's process, which goes from node to node and keeps its own half of QoS 2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from tests.support import wire as mqtt
from tests.support.until import PATIENCE
from vmq.broker import Broker


class Device:
    """One device. What it knows of QoS 1 and 2 outlives its connections.

    With `answers` it acknowledges what it gets, and finishes what it began.
    """

    def __init__(
        self, client_id: str, *, clean: bool = False, username: str | None = None, level: int = 4
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.clean = clean
        self.level = level
        self.answers = True
        #: What it got, in order, each packet of QoS 2 once.
        self.log: list[str] = []
        self.packets: list[mqtt.Packet] = []
        #: QoS 2 packet ids that it got and that are not released.
        self.pending: set[int] = set()
        #: Its own publishes without a last acknowledgement, whole; None: PUBREC has come.
        self.unfinished: dict[int, bytes | None] = {}
        self.is_connected = False
        self._last_id = 0
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._change = asyncio.Event()

    async def __aenter__(self) -> Device:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()

    # --- connections

    async def connect(self, broker: Broker, *pairs: tuple[str, int]) -> bool:
        """Connects, goes on where it was, and subscribes; returns whether the broker had its session."""
        await self.open(broker)
        is_there = await self.connack()
        if pairs:
            await self.subscribe(*pairs)
        return is_there

    async def open(self, broker: Broker) -> None:
        await self.drop()
        url = urlsplit(next(each for each in broker.addresses if each.startswith("tcp:")))
        reader, self._writer = await asyncio.open_connection(url.hostname, url.port)
        self.packets.clear()
        if self.clean:
            self.pending.clear()
        self.is_connected = True
        packet = mqtt.connect_packet(
            self.client_id, clean=self.clean, username=self.username, level=self.level
        )
        self.send(packet)
        self._task = asyncio.create_task(self._read(reader))

    async def refusal(self, broker: Broker) -> int:
        """Connects in vain; returns the code of the CONNACK."""
        await self.open(broker)
        await self.until(lambda: not self.is_connected)
        [packet] = self.found(mqtt.CONNACK)
        return packet.return_code

    async def connack(self) -> bool:
        await self.until(lambda: not self.is_connected or bool(self.found(mqtt.CONNACK)))
        [packet] = self.found(mqtt.CONNACK)
        assert packet.return_code == 0
        if self.answers:
            for packet_id, whole in list(self.unfinished.items()):
                self.send(mqtt.pubrel_packet(packet_id) if whole is None else whole)
        return packet.session_present == 1

    async def drop(self) -> None:
        if self._writer is not None and self._task is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
            self._task.cancel()
            await asyncio.wait([self._task])
            self._writer = None
            self.is_connected = False

    async def disconnect(self) -> None:
        self.send(mqtt.DISCONNECT_BYTES)
        await self.until(lambda: not self.is_connected)

    # --- what it does

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def subscribe(self, *pairs: tuple[str, int]) -> None:
        answered = len(self.found(mqtt.SUBACK))
        self.send(mqtt.subscribe_packet(self.next_id(), *pairs))
        await self.until(lambda: len(self.found(mqtt.SUBACK)) > answered)

    def publish(self, topic: str, text: str, qos: int) -> None:
        raw = text.encode()
        if not qos:
            self.send(mqtt.publish_packet(topic, raw))
            return
        number = self.next_id()
        self.unfinished[number] = self.again(number, topic, text, qos)
        self.send(mqtt.publish_packet(topic, raw, qos=qos, packet_id=number))

    def again(
        self, number: int, topic: str, text: str, qos: int = 2, has_dup: bool = True
    ) -> bytes:
        """What it sends when it comes back, if nothing has answered a message."""
        return mqtt.publish_packet(topic, text.encode(), qos=qos, packet_id=number, dup=has_dup)

    # --- what it gets

    def found(self, kind: int) -> list[mqtt.Packet]:
        return [each for each in self.packets if each.type == kind]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for what comes."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            raise AssertionError(f"not in {PATIENCE} s; what came: {self.log}") from None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        buffer = bytearray()
        try:
            while data := await reader.read(65536):
                buffer += data
                for packet in mqtt.split_packets(buffer):
                    self.packets.append(packet)
                    self._handle(packet)
                self._change.set()
        except ConnectionError:
            pass
        finally:
            self.is_connected = False
            self._change.set()

    def _handle(self, packet: mqtt.Packet) -> None:
        if packet.type == mqtt.PUBLISH:
            self._on_publish(packet)
        elif packet.type == mqtt.PUBREL:
            self.pending.discard(packet.packet_id)
            if self.answers:
                self.send(mqtt.pubcomp_packet(packet.packet_id))
        elif packet.type == mqtt.PUBREC:
            self.unfinished[packet.packet_id] = None
            if self.answers:
                self.send(mqtt.pubrel_packet(packet.packet_id))
        elif packet.type in (mqtt.PUBACK, mqtt.PUBCOMP):
            self.unfinished.pop(packet.packet_id, None)

    def _on_publish(self, packet: mqtt.Packet) -> None:
        if packet.qos < 2 or packet.packet_id not in self.pending:
            self.log.append(packet.payload.decode())
        if packet.qos == 2:
            self.pending.add(packet.packet_id)
        if self.answers and packet.qos:
            answer = mqtt.puback_packet if packet.qos == 1 else mqtt.pubrec_packet
            self.send(answer(packet.packet_id))
