"""A stand-in for the session of a bridge."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from vmq_hooks.broker import BridgeMessage
from vmq_hooks.types import Message, Subscription, matches


class FakeBridge:
    """A bridge's session, which outlives its openings as a real one does.

    Args:
        publish: what a message from the bridge does.
    """

    def __init__(self, publish: Callable[[str, bytes, int, bool], Awaitable[None]]) -> None:
        self.subscriptions: list[Subscription] = []
        #: What is not acknowledged, by packet id.
        self.unacknowledged: dict[int, BridgeMessage] = {}
        #: What was published at QoS 2 and is not released.
        self.unreleased: set[int] = set()
        self.is_open = False
        self._publish = publish
        self._waiting: asyncio.Queue[BridgeMessage] = asyncio.Queue()
        self._last_id = 0

    def deliver(self, message: Message) -> bool:
        """Gives it a message, if it is subscribed to that; True if so."""
        granted = [
            each.qos for each in self.subscriptions if matches(each.topic_filter, message.topic)
        ]
        if not granted:
            return False
        qos = min(message.qos, max(granted))
        packet_id = 0
        if qos:
            packet_id = self._last_id = self._last_id % 65535 + 1
        seen = Message(message.topic, message.payload, qos, message.retain)
        found = BridgeMessage(seen, packet_id)
        if packet_id:
            self.unacknowledged[packet_id] = found
        elif not self.is_open:
            return False
        self._waiting.put_nowait(found)
        return True

    def open(self) -> None:
        """Somebody has it: what is unacknowledged comes again."""
        self.is_open = True
        self._waiting = asyncio.Queue()
        for each in self.unacknowledged.values():
            again = each if each.released else BridgeMessage(each.message, each.packet_id, True)
            self._waiting.put_nowait(again)

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        self.subscriptions = list(subscriptions)

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        packet_id: int = 0,
    ) -> None:
        if qos == 2:
            if not packet_id:
                raise ValueError("QoS 2 without the packet id of the far broker")
            if packet_id in self.unreleased:
                return
        await self._publish(topic, payload, qos, retain)
        if qos == 2:
            self.unreleased.add(packet_id)

    async def release(self, packet_id: int) -> None:
        self.unreleased.discard(packet_id)

    async def remembered(self) -> list[int]:
        return sorted(self.unreleased)

    async def forget(self) -> None:
        self.unreleased.clear()

    async def receive(self) -> BridgeMessage:
        return await self._waiting.get()

    def received(self, packet_id: int) -> None:
        found = self.unacknowledged.get(packet_id)
        if found is not None and found.message.qos == 2 and not found.released:
            released = BridgeMessage(Message("", b"", 2), packet_id, released=True)
            self.unacknowledged[packet_id] = released
            self._waiting.put_nowait(released)

    def acknowledge(self, packet_id: int) -> None:
        self.unacknowledged.pop(packet_id, None)
