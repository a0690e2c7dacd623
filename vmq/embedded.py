"""A client inside the broker's own process, for embedding.

It speaks MQTT with a session over a pair of byte strings instead of a socket, so that everything a
real client meets (queues, limits, hooks, acknowledgements) holds for it as well.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Hooks
from vmq.core.output import SOCKET
from vmq.core.registry import Registry
from vmq.mqtt import encoder
from vmq.mqtt.decoder import Decoder
from vmq.mqtt.packets import (
    CONNACK,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIPTION_FAILED,
    UNSUBACK,
    Connect,
    ProtocolError,
)
from vmq.mqtt.topics import check_filter, decode_topic_name
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext


class ReceivedMessage:
    """A message as a subscriber inside the process gets it."""

    __slots__ = (
        *("acknowledgement", "again", "packet_id", "payload"),
        *("qos", "released", "retain", "topic"),
    )

    def __init__(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        #: What a durable session still has to answer.
        self.acknowledgement = b""
        #: 0 at QoS 0. A durable session gets what it has not acknowledged again under the same id.
        self.packet_id = 0
        self.again = False
        #: No message, but the PUBREL of one that a bridge has received.
        self.released = False

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, payload={self.payload!r}, "
            f"qos={self.qos}, retain={self.retain})"
        )


class LocalClient:
    """One client of the broker in its own process. Stands for the transport of its connection."""

    def __init__(
        self,
        registry: Registry,
        client_id: str,
        limit: int,
        closed: "Callable[[LocalClient], None] | None" = None,
        *,
        clean: bool = True,
        bridge: bool = False,
        options: CoreOptions | None = None,
    ) -> None:
        """`limit` messages are held for a slow reader; `closed` is told of the end.

        With `clean=False` the session is durable, and a message is acknowledged when the reader asks
        for the next one. A `bridge` gets messages with the RETAIN that they were published with, and
        none of its own. `options` are the session's instead of the broker's.
        """
        self._clean = clean
        self._on_closed = closed
        self._options = registry.core.options
        self._limit = limit
        self._decoder = Decoder()
        self._messages: asyncio.Queue[ReceivedMessage | None] = asyncio.Queue()
        self._unread = 0
        self._answers: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._last_id = 0
        self._in_use: set[int] = set()
        self._input: list[bytes] = []
        self._scheduled = False
        self._loop = asyncio.get_running_loop()
        self._closed = False
        #: CONNACK has come, or the connection is over.
        self._is_answered = asyncio.Event()
        self._received: set[int] = set()
        self._connection = Connection(registry, True, client_id, ListenerContext(_ignore, _ignore))
        # What the process itself publishes is nobody's to judge, and a plugin that publishes is not told of it.
        self._connection.session.hooks = Hooks()
        self._connection.session.is_ours = True
        self._connection.connection_made(self)
        request = Connect()
        request.client_id = client_id
        request.clean_session = clean
        request.bridge = bridge
        if options is not None:
            self._connection.session.options = options
        self._connection.data_received(encoder.connect(request))

    # The transport's side

    def write(self, data: bytes) -> None:
        """Bytes from the broker: handled in a pass of their own, as if a socket lay between."""
        self._input.append(data)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._handle_input)

    def close(self) -> None:
        """Ends the client; its iterator stops."""
        if self._closed:
            return
        if not self._connection.closing:
            self._connection.data_received(encoder.DISCONNECT)  # comes back as a close
            return
        # What the broker wrote in this same pass is still the client's.
        self._handle_input()
        self._closed = True
        self._is_answered.set()
        if self._on_closed is not None:
            self._on_closed(self)
        self._connection.connection_lost(None)
        self._messages.put_nowait(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the broker closed the connection"))
        self._answers.clear()

    @property
    def is_closed(self) -> bool:
        """Whether the client or the broker ended it."""
        return self._closed

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Nothing to pause: the client writes only what is asked of it."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return "embedded" if name == "peername" else None

    # The client's side

    async def connected(self) -> None:
        """Returns when the client has its session, which another node may have to give.

        Raises:
            ConnectionError: the broker has closed instead.
        """
        await self._is_answered.wait()
        if self._closed:
            raise ConnectionError("the broker closed the connection")

    async def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        """Publishes and waits for the acknowledgement that the QoS asks for."""
        packet_id = self._next_id() if qos else 0
        packet = self._packet(topic, payload, qos, retain, packet_id)
        if qos == 0:
            self._send(packet)
            return
        await self._ask(packet, PUBACK if qos == 1 else PUBCOMP, packet_id)

    def _packet(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        packet_id: int,
        again: bool = False,
    ) -> bytes:
        """A PUBLISH that the broker takes. Raises ValueError if there is none."""
        raw = topic.encode()
        try:
            decode_topic_name(raw)
        except ProtocolError as error:
            raise ValueError(str(error)) from None
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS {qos}; accepted: 0, 1, 2")
        if len(raw) > 65_535:
            raise ValueError("topic name of more than 65,535 bytes")
        packet = encoder.publish(raw, payload, qos, packet_id, retain, again)
        if len(packet) > self._options.max_packet_size:
            raise ValueError("topic and payload do not fit into a packet of max_packet_size")
        options = self._connection.session.options
        if options.max_message_size and len(payload) > options.max_message_size:
            raise ValueError("payload is above max_message_size")
        if options.topic_max_depth and topic.count("/") >= options.topic_max_depth:
            raise ValueError("topic of more levels than topic_max_depth")
        return packet

    async def subscribe(self, filters: Sequence[str], qos: int) -> None:
        """Subscribes and waits for the SUBACK."""
        if not filters:
            raise ValueError("no topic filter")
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS {qos}; accepted: 0, 1, 2")
        for topic_filter in filters:
            if len(topic_filter.encode()) > 65_535:
                raise ValueError("topic filter of more than 65,535 bytes")
            try:
                check_filter(topic_filter)
            except ProtocolError as error:
                raise ValueError(str(error)) from None
        packet_id = self._next_id()
        packet = encoder.subscribe(packet_id, [(each, qos) for each in filters])
        codes = (await self._ask(packet, SUBACK, packet_id))[2:]
        for topic_filter, code in zip(filters, codes, strict=True):
            if code == SUBSCRIPTION_FAILED:
                raise ValueError(f"subscription to {topic_filter!r} was refused")

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The messages in order, until the client or the broker closes."""
        message: ReceivedMessage | None = None
        while True:
            if message is not None:
                self.acknowledge(message)
            message = await self.take()
            if message is None:
                return
            yield message

    async def take(self) -> ReceivedMessage | None:
        """The next message; None when the client or the broker has closed."""
        message = await self._messages.get()
        if message is None:
            self._messages.put_nowait(None)  # for whoever asks again
            return None
        self._unread -= 1
        if self._connection.blocked & SOCKET and self._unread <= self._limit // 2:
            self._connection.resume_writing()
        return message

    def acknowledge(self, message: ReceivedMessage) -> None:
        """A durable session has dealt with the message: it will not come again."""
        if message.acknowledgement and not self._closed:
            self._connection.data_received(message.acknowledgement)
            message.acknowledgement = b""

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribes and waits for the UNSUBACK."""
        packet_id = self._next_id()
        await self._ask(encoder.unsubscribe(packet_id, list(filters)), UNSUBACK, packet_id)

    @property
    def subscriptions(self) -> dict[str, int]:
        """What the session is subscribed to, and at which QoS."""
        subscriber = self._connection.session.subscriber
        if subscriber is None:
            return {}
        return {each: had.qos for each, had in subscriber.subscriptions.items()}

    def _next_id(self) -> int:
        """A packet id that no unanswered packet has."""
        if len(self._in_use) >= 65535:
            raise ConnectionError("65,535 packets are unanswered")
        while True:
            self._last_id = self._last_id % 65535 + 1
            if self._last_id not in self._in_use:
                return self._last_id

    def _send(self, packet: bytes) -> None:
        if self._closed:
            raise ConnectionError("the broker closed the connection")
        self._connection.data_received(packet)

    async def _ask(self, packet: bytes, kind: int, packet_id: int) -> bytes:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answers[kind, packet_id] = answer
        self._in_use.add(packet_id)
        self._send(packet)
        try:
            return await answer
        finally:
            self._answers.pop((kind, packet_id), None)
            self._in_use.discard(packet_id)

    def _handle_input(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        decoder = self._decoder
        decoder.feed(b"".join(self._input))
        self._input.clear()
        replies: list[bytes] = []
        while decoder.next():
            self._handle_packet(decoder.head, decoder.data[decoder.body : decoder.end], replies)
        if replies and not self._connection.closing:
            self._connection.data_received(b"".join(replies))

    def _handle_packet(self, head: int, body: bytes, replies: list[bytes]) -> None:
        kind = head >> 4
        if kind == PUBLISH:
            self._on_publish(head, body, replies)
            return
        if kind == CONNACK:
            self._is_answered.set()
            return
        packet_id = body[0] << 8 | body[1]
        if kind == PUBREC:
            self._on_pubrec(packet_id, body, replies)
        elif kind == PUBREL:
            self._received.discard(packet_id)
            self._on_pubrel(packet_id, body, replies)
        else:
            self._on_answer(kind, packet_id, body)

    def _on_pubrec(self, _packet_id: int, body: bytes, replies: list[bytes]) -> None:
        """The broker has a QoS 2 message."""
        replies.append(encoder.PUBREL_HEAD + body)

    def _on_pubrel(self, _packet_id: int, body: bytes, replies: list[bytes]) -> None:
        """The broker will not send a QoS 2 message again."""
        replies.append(encoder.PUBCOMP_HEAD + body)

    def _on_answer(self, kind: int, packet_id: int, body: bytes) -> None:
        answer = self._answers.get((kind, packet_id))
        if answer is not None and not answer.done():
            answer.set_result(body)

    def _on_publish(self, head: int, body: bytes, replies: list[bytes]) -> None:
        qos = head >> 1 & 3
        acknowledgement = b""
        packet_id = 0
        end = 2 + (body[0] << 8 | body[1])
        topic = body[2:end].decode()
        if qos:
            raw_id = body[end : end + 2]
            end += 2
            acknowledgement = (encoder.PUBACK_HEAD if qos == 1 else encoder.PUBREC_HEAD) + raw_id
            packet_id = int.from_bytes(raw_id, "big")
            if qos == 2:
                if packet_id in self._received:
                    # A durable session answers what it has dealt with; before that, silence is the answer.
                    if self._clean:
                        replies.append(acknowledgement)
                    return
                self._received.add(packet_id)
        message = ReceivedMessage(topic, body[end:], qos, bool(head & 1))
        if self._clean:
            replies.append(acknowledgement)
        else:
            message.acknowledgement = acknowledgement
            message.packet_id = packet_id
            message.again = head & 8 != 0
        self._hold(message)

    def _hold(self, message: ReceivedMessage) -> None:
        """Keeps a message for the reader; the broker waits with further ones when these are many."""
        self._messages.put_nowait(message)
        self._unread += 1
        if self._unread >= self._limit and not self._connection.blocked & SOCKET:
            self._connection.pause_writing()


def _ignore(_connection: Connection) -> None:
    """An embedded client has no listener to tell."""
