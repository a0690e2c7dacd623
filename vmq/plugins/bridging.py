"""The broker's side of a bridge: `vmq_hooks.BridgeSession` on a client inside the process."""

from collections.abc import Sequence

from vmq_hooks import BridgeMessage, Message, Subscription

from vmq.embedded import LocalClient, ReceivedMessage


class LocalBridge:
    """One opening of a bridge's durable session."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client
        self._unacknowledged: dict[int, ReceivedMessage] = {}

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        present = self._client.subscriptions
        wanted = {each.topic_filter: each.qos for each in subscriptions}
        gone = [each for each in present if each not in wanted]
        if gone:
            await self._client.unsubscribe(gone)
        for topic_filter, qos in wanted.items():
            if present.get(topic_filter) != qos:
                await self._client.subscribe((topic_filter,), qos)

    async def publish(
        self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False
    ) -> None:
        await self._client.publish(topic, payload, qos, retain)

    async def receive(self) -> BridgeMessage:
        message = await self._client.take()
        if message is None:
            raise ConnectionError("the broker closed the bridge's session")
        if message.packet_id:
            self._unacknowledged[message.packet_id] = message
        seen = Message(message.topic, message.payload, message.qos, message.retain)
        return BridgeMessage(seen, message.packet_id, message.again)

    def acknowledge(self, packet_id: int) -> None:
        message = self._unacknowledged.pop(packet_id, None)
        if message is not None:
            self._client.acknowledge(message)
