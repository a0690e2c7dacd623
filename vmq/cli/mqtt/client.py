"""The MQTT client of `vmq pub` and `vmq sub`: amqtt's, mended where it would lose messages or hang.

amqtt (0.11 and 0.12) carries the protocol: packets, the reader, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT. Replaced are:

- Connecting. amqtt hides the cause of a failure, and waits for ever for a CONNACK. More in `vmq.cli.mqtt.transport`.
- Waiting for acknowledgements. amqtt gives up after 5 seconds, less than a large message may take on a slow line; and
  a connection lost meanwhile looks like a cancelled task.
- Receiving. amqtt acknowledges before anybody has seen the message. Here the receiver's callback comes first, so that
  what nobody printed is sent again to a durable session. At QoS 2 amqtt hands a message on at PUBREL, and never
  answers a PUBREL of an earlier connection: such a message was lost, and its place in the broker's window taken for
  ever.
- Keep-alive. amqtt's read timeout may lose the first byte of a packet; and amqtt takes no notice of a broker that no
  longer answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import websockets
from amqtt.client import MQTTClient
from amqtt.contexts import ClientConfig
from amqtt.errors import (
    AMQTTError,
    ClientError,
    CodecError,
    MQTTError,
    NoDataError,
    ProtocolHandlerError,
)
from amqtt.mqtt.connack import ConnackPacket
from amqtt.mqtt.protocol.client_handler import ClientProtocolHandler
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.session import OutgoingApplicationMessage

from vmq.cli.mqtt import trace
from vmq.cli.mqtt.options import ConnectionOptions
from vmq.cli.mqtt.transport import (
    CLOSE_TIMEOUT,
    StreamWriter,
    WebSocketWriter,
    open_streams,
    reason,
)
from vmq.cli.terminal.console import CliError

T = TypeVar("T")

CONNECT_TIMEOUT: Final = 30.0

# CONNACK return codes, MQTT 3.1.1 table 3.1.
_REFUSALS: Final = {
    1: "unacceptable protocol version",
    2: "client id rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}
_AMQTT_ERRORS: Final = (
    AMQTTError,
    ClientError,
    CodecError,
    MQTTError,
    NoDataError,
    ProtocolHandlerError,
    asyncio.IncompleteReadError,  # escapes from 0.11
)


class Unreachable(CliError):
    """No connection came about, or it was lost; another try may succeed."""


class Refused(CliError):
    """The broker does not want this client."""


def silence_libraries() -> None:
    """Have amqtt and its libraries keep to themselves what the errors raised here say better."""
    for name in ("amqtt", "transitions", "websockets", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class CommandClient(MQTTClient):  # type: ignore[misc]  # amqtt has no types
    """One connection to a broker.

    Args:
        connection: whom to connect to, as whom.
        on_message: called for each message before it is acknowledged; False = not handled, so that it stays
            unacknowledged. It must not raise.
        received: ids of the QoS 2 messages that were handled but not yet released. Connections of one durable session
            share them, lest a message comes twice.
    """

    def __init__(
        self,
        connection: ConnectionOptions,
        on_message: Callable[[PublishPacket], bool] = lambda _packet: True,
        received: set[int] | None = None,
    ) -> None:
        # No plugins: by default, each packet would be logged in a task of its own.
        super().__init__(
            client_id=connection.client_id,
            config=ClientConfig(auto_reconnect=False, plugins={}, cleansession=connection.clean),
        )
        self.connection = connection
        self.on_message = on_message
        self.received = set() if received is None else received
        self.closed = asyncio.Event()
        self._pinger: asyncio.Task[None] | None = None
        self._writer: StreamWriter | WebSocketWriter | None = None

    async def open(self) -> None:
        """Connect. Raises Unreachable or Refused."""
        self.session = self._init_session(self.connection.target.url)
        await self._do_connect()
        if self.connection.keepalive:
            self._pinger = asyncio.create_task(self._keep_alive(self.connection.keepalive))

    async def close(self) -> None:
        """Disconnect, unless that has happened already; returns when the socket is closed."""
        if self._pinger is not None:
            self._pinger.cancel()
        try:
            await asyncio.wait_for(self.disconnect(), CLOSE_TIMEOUT)
        except (TimeoutError, OSError, *_AMQTT_ERRORS):
            pass  # all that is to be said has been sent, or cannot be
        finally:
            # Not amqtt's to close when it was never connected; and the handler forgets a writer once it is closed.
            if self._writer is not None:
                await self._writer.close()
            self.closed.set()

    @property
    def unsent(self) -> int:
        """Bytes that nobody had taken when `close` gave them up."""
        return 0 if self._writer is None else self._writer.unsent

    async def send(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        """Publish a message; returns when it is written (QoS 0) or acknowledged. Raises Unreachable."""
        await self._ask(self.publish(topic, payload, qos, retain))

    async def ask_subscribe(self, filters: list[str], qos: int) -> list[int]:
        """Subscribe; returns the code for each filter, 0x80 = refused. Raises Unreachable."""
        request = self.subscribe([(each, qos) for each in filters])
        # amqtt would wait for the SUBACK of a lost connection for ever.
        codes: list[int] = await self.while_open(self._ask(request))
        return codes

    async def ask_unsubscribe(self, filters: list[str]) -> None:
        """End subscriptions. Raises Unreachable."""
        await self.while_open(self._ask(self.unsubscribe(filters)))

    async def while_open(self, work: Awaitable[T]) -> T:
        """The result of `work`; raises Unreachable if the connection ends first."""
        task = asyncio.ensure_future(work)
        end = asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._lost()
            return await task
        finally:
            for each in (task, end):
                each.cancel()
            await asyncio.gather(task, end, return_exceptions=True)

    def _lost(self) -> Unreachable:
        return Unreachable(f"the connection to {self.connection.target.url} was lost")

    async def _ask(self, request: Awaitable[T]) -> T:
        try:
            result = await request
        except (OSError, *_AMQTT_ERRORS):
            raise self._lost() from None
        if self._handler.is_lost:
            raise self._lost()
        return result

    def _init_session(self, *args: Any, **kwargs: Any) -> Any:
        session = super()._init_session(*args, **kwargs)
        connection = self.connection
        session.keep_alive = connection.keepalive
        session.username = connection.target.username
        session.password = connection.target.password
        if connection.will is not None:
            session.will_flag = True
            session.will_topic = connection.will.topic
            session.will_message = connection.will.payload
            session.will_qos = connection.will.qos
            session.will_retain = connection.will.retain
        return session

    async def _connect_coro(self) -> int:
        """Open the connection and say CONNECT; in the place of amqtt's method of this name."""
        target = self.connection.target
        self._handler = Handler(self)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, self._writer = await open_streams(target, self.connection.context)
                self._handler.attach(self.session, reader, self._writer)
                code = await self._handler.mqtt_connect()
        except TimeoutError:
            text = f"no answer from {target.url} within {CONNECT_TIMEOUT:.0f} s"
        except ConnectionError as problem:
            # Without an errno: the end of the stream where the CONNACK should be.
            text = f"cannot connect to {target.url}: "
            text += reason(problem) if problem.errno else "closed by the server before CONNACK"
        except OSError as problem:
            text = f"cannot connect to {target.url}: {reason(problem)}"
        except websockets.WebSocketException as problem:
            text = f"cannot connect to {target.url}: {problem}"
        except _AMQTT_ERRORS:
            text = f"cannot connect to {target.url}: the server does not speak MQTT"
        else:
            if code == 0:
                await self._start_handler()
                return 0
            await self._handler.stop()
            why = _REFUSALS.get(code, "unknown reason")
            raise Refused(f"refused by {target.url}: {why} (CONNACK code {code})")
        await self._handler.stop()
        raise Unreachable(text)

    async def _start_handler(self) -> None:
        # Zero, now that CONNECT has told the broker: no timers but `_keep_alive`.
        self.session.keep_alive = 0
        self._handler.keepalive_timeout = None
        await self._handler.start()
        self.session.transitions.connect()
        self._connected_state.set()

    async def handle_connection_close(self) -> None:
        """Wait for the end of the connection."""
        try:
            await super().handle_connection_close()
        finally:
            self.closed.set()

    async def _keep_alive(self, interval: int) -> None:
        """Ping the broker, and end the connection once it does not answer."""
        while True:
            await asyncio.sleep(interval)
            try:
                await asyncio.wait_for(self.ping(), interval)
            except (TimeoutError, *_AMQTT_ERRORS):
                await self._handler.handle_connection_closed()
                return


class Handler(ClientProtocolHandler):  # type: ignore[misc]  # amqtt has no types
    """The protocol's flows on one connection."""

    def __init__(self, client: CommandClient) -> None:
        # amqtt tells its plugin manager of each packet; this object stands in for it.
        super().__init__(self)
        self.plugins_manager = self
        self.is_lost = False
        self._client = client

    async def fire_event(self, event: str, *, packet: Any, session: Any) -> None:
        """Called by amqtt for each packet sent and received."""
        if isinstance(packet, ConnackPacket) and not packet.variable_header.session_parent:
            self._client.received.clear()
        if self._client.connection.debug:
            trace.show(self._client.client_id, event.removeprefix("mqtt_packet_"), packet)

    async def handle_connection_closed(self) -> None:
        """Called by amqtt when the connection is gone."""
        self.is_lost = True
        await super().handle_connection_closed()

    async def mqtt_publish(
        self, topic: str, data: bytes, qos: int, retain: bool, ack_timeout: int | None = None
    ) -> OutgoingApplicationMessage:
        """Publish, and wait for the acknowledgements as long as the connection lasts."""
        inflight = self.session.inflight_out
        packet_id = self.session.next_packet_id if qos else None
        message = OutgoingApplicationMessage(packet_id, topic, qos, data, retain)
        packet = message.build_publish_packet()
        if packet_id is None:
            await self._send_packet(packet)
            return message
        inflight[packet_id] = message  # takes the id
        try:
            if qos == 1:
                await self._exchange(packet_id, packet, self._puback_waiters)
            else:
                await self._exchange(packet_id, packet, self._pubrec_waiters)
                release = PubrelPacket.build(packet_id)
                await self._exchange(packet_id, release, self._pubcomp_waiters)
        finally:
            inflight.pop(packet_id, None)
        return message

    async def _exchange(
        self, packet_id: int, packet: Any, waiters: dict[int, asyncio.Future[Any]]
    ) -> None:
        """Send a packet and wait for its answer."""
        answer = waiters[packet_id] = self._loop.create_future()
        try:
            await self._send_packet(packet)
            if self.is_lost:
                raise ProtocolHandlerError("connection lost")
            await answer
        except asyncio.CancelledError:
            # amqtt cancels what waits when the connection ends; whoever cancels this task means it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ProtocolHandlerError("connection lost") from None
        finally:
            waiters.pop(packet_id, None)

    async def handle_publish(self, packet: PublishPacket) -> None:
        """Hand on a message, then acknowledge it."""
        received = self._client.received
        packet_id = packet.packet_id
        again = packet.qos == 2 and packet_id in received
        if not again and not self._client.on_message(packet):
            return
        if packet.qos == 1:
            await self._send_packet(PubackPacket.build(packet_id))
        elif packet.qos == 2:
            received.add(packet_id)  # until PUBREL: the same id is the same message [MQTT-4.3.3-2]
            await self._send_packet(PubrecPacket.build(packet_id))

    async def handle_pubrel(self, packet: PubrelPacket) -> None:
        """Forget the id of a QoS 2 message; the broker needs its PUBCOMP even if nobody knows the id."""
        self._client.received.discard(packet.packet_id)
        await self._send_packet(PubcompPacket.build(packet.packet_id))
