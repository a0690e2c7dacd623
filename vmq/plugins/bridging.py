"""The broker's side of a bridge: `vmq_hooks.BridgeSession` on a client inside the process.

The exchanges of QoS 2 go through step by step: what the far broker has said is said to our own, under the
same packet id. So the session itself, which is durable, keeps what must be remembered of them.
"""

import asyncio
from collections.abc import Callable, Sequence

from vmq_hooks import BridgeMessage, Message, Subscription

from vmq.core.context import CoreOptions
from vmq.core.registry import Registry
from vmq.embedded import LocalClient, ReceivedMessage
from vmq.mqtt import encoder
from vmq.mqtt.packets import PUBCOMP, PUBREC


class BridgeClient(LocalClient):
    """A client that leaves the second half of QoS 2 to whoever has it."""

    def __init__(
        self,
        registry: Registry,
        client_id: str,
        limit: int,
        closed: Callable[[LocalClient], None],
        options: CoreOptions | None,
    ) -> None:
        #: Messages that are done with: their PUBREL is answered at once.
        self._finishing: set[int] = set()
        super().__init__(
            registry, client_id, limit, closed, clean=False, bridge=True, options=options
        )

    async def publish_exactly_once(
        self, topic: str, payload: bytes, retain: bool, packet_id: int
    ) -> None:
        """Returns when the broker has the message, of now or of before, until `release`."""
        # Always as if it came again: what an id of before means is the session's to say, and not ours.
        packet = self._packet(topic, payload, 2, retain, packet_id, again=True)
        await self._ask(packet, PUBREC, packet_id)

    async def release(self, packet_id: int) -> None:
        """Returns when the broker has forgotten the id."""
        await self._ask(encoder.PUBREL_HEAD + encoder.PACKET_IDS[packet_id], PUBCOMP, packet_id)

    def unreleased(self) -> list[int]:
        """The ids of what was published and not released, those from before a restart included."""
        subscriber = self._connection.session.subscriber
        if subscriber is None:
            return []
        received = subscriber.received_ids(self._connection.core)
        return sorted([*received, *subscriber.queue.earlier_ids()])

    def acknowledge_half(self, packet_id: int) -> None:
        """PUBREC; the answer comes as a message that is `released`."""
        self._send(encoder.PUBREC_HEAD + encoder.PACKET_IDS[packet_id])

    def acknowledge(self, message: ReceivedMessage) -> None:
        if message.qos == 2 and not message.released:
            self._finishing.add(message.packet_id)
        super().acknowledge(message)

    def _on_pubrec(self, packet_id: int, body: bytes, _replies: list[bytes]) -> None:
        self._on_answer(PUBREC, packet_id, body)

    def _on_pubrel(self, packet_id: int, body: bytes, replies: list[bytes]) -> None:
        if packet_id in self._finishing:
            self._finishing.discard(packet_id)
            replies.append(encoder.PUBCOMP_HEAD + body)
            return
        message = ReceivedMessage("", b"", 2, False)
        message.packet_id = packet_id
        message.acknowledgement = encoder.PUBCOMP_HEAD + body
        message.released = True
        self._hold(message)


class LocalBridge:
    """One opening of a bridge's durable session."""

    def __init__(self, client: BridgeClient) -> None:
        self._client = client
        self._unacknowledged: dict[int, ReceivedMessage] = {}

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        await self._client.connected()
        present = self._client.subscriptions
        wanted = {each.topic_filter: each.qos for each in subscriptions}
        gone = [each for each in present if each not in wanted]
        if gone:
            await self._client.unsubscribe(gone)
        for topic_filter, qos in wanted.items():
            if present.get(topic_filter) != qos:
                await self._client.subscribe((topic_filter,), qos)

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        packet_id: int = 0,
    ) -> None:
        if qos != 2:
            await self._client.publish(topic, payload, qos, retain)
            return
        if not 0 < packet_id < 65536:
            raise ValueError(f"packet id {packet_id} at QoS 2; accepted: that of the far broker")
        await self._client.publish_exactly_once(topic, payload, retain, packet_id)

    async def release(self, packet_id: int) -> None:
        await self._client.release(packet_id)

    async def remembered(self) -> list[int]:
        await self._client.connected()
        return self._client.unreleased()

    async def forget(self) -> None:
        await asyncio.gather(*[self._client.release(each) for each in await self.remembered()])

    async def receive(self) -> BridgeMessage:
        message = await self._client.take()
        if message is None:
            raise ConnectionError("the broker closed the bridge's session")
        if message.packet_id:
            self._unacknowledged[message.packet_id] = message
        seen = Message(message.topic, message.payload, message.qos, message.retain)
        return BridgeMessage(seen, message.packet_id, message.again, message.released)

    def received(self, packet_id: int) -> None:
        message = self._unacknowledged.get(packet_id)
        if message is None or not message.released:
            # Also of an id that nobody knows: the far broker waits for its PUBREL.
            self._client.acknowledge_half(packet_id)

    def acknowledge(self, packet_id: int) -> None:
        message = self._unacknowledged.pop(packet_id, None)
        if message is not None:
            self._client.acknowledge(message)
