"""MQTT clients for tests: one for plain functions, one for coroutines.

Both are the client of `vmq sub` below. The first has an event loop in a thread of its own, the second is in the test's.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from amqtt.mqtt.publish import PublishPacket
from vmq_hooks.testing import LoopThread

from vmq.cli.mqtt.client import CommandClient, Refused, Unreachable, silence_libraries
from vmq.cli.mqtt.options import ConnectionOptions, Will, client_id_of
from vmq.cli.mqtt.target import parse_url
from vmq.embedded import ReceivedMessage
from vmq.testing.closing import Closing

__all__ = ["AsyncMqttClient", "MqttClient", "Will"]

T = TypeVar("T")

#: Seconds that a client waits for what must come.
PATIENCE: Final = 10.0

_FAILURE: Final = 0x80


class _Session:
    """One connection, in the clients' loop."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self.connection = connection
        self.messages: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        self.client: CommandClient

    def _on_message(self, packet: PublishPacket) -> bool:
        payload = bytes(packet.data or b"")
        self.messages.put_nowait(
            ReceivedMessage(packet.topic_name, payload, packet.qos, packet.retain_flag)
        )
        return True

    async def open(self) -> None:
        silence_libraries()
        self.client = CommandClient(self.connection, self._on_message)
        try:
            await self.client.open()
        except (Refused, Unreachable) as error:
            await self.client.close()
            kind = ConnectionRefusedError if isinstance(error, Refused) else ConnectionError
            raise kind(str(error)) from None

    async def publish(self, topic: str, payload: bytes | str, qos: int, retain: bool) -> None:
        data = payload.encode() if isinstance(payload, str) else payload
        if not isinstance(data, bytes):  # of a number there would be as many zeros
            raise TypeError(f"payload {payload!r}; accepted: bytes or text")
        with self._lost():
            await self.client.while_open(self.client.send(topic, data, qos, retain))

    async def subscribe(self, filters: tuple[str, ...], qos: int) -> None:
        with self._lost():
            codes = await self.client.ask_subscribe(list(filters), qos)
        refused = [each for each, code in zip(filters, codes, strict=True) if code == _FAILURE]
        if refused:
            raise PermissionError(f"the broker refuses to subscribe to {', '.join(refused)}")

    async def unsubscribe(self, filters: tuple[str, ...]) -> None:
        with self._lost():
            await self.client.ask_unsubscribe(list(filters))

    async def receive(self, timeout: float) -> ReceivedMessage:  # noqa: ASYNC109 - the caller's limit
        """The next message; what had come before the connection ended is still to be had."""
        with self._lost():
            try:
                async with asyncio.timeout(timeout):
                    if not self.messages.empty():
                        return self.messages.get_nowait()
                    return await self.client.while_open(self.messages.get())
            except TimeoutError:
                raise TimeoutError(f"no message within {timeout:g} s") from None

    async def drop(self) -> None:
        """Ends the connection as a broken network does: without DISCONNECT."""
        writer = self.client._writer
        if writer is not None:
            writer._transport().abort()
        await self.client.closed.wait()
        await self.client.close()

    async def wait_closed(self) -> None:
        await self.client.closed.wait()

    async def close(self) -> None:
        await self.client.close()

    @contextlib.contextmanager
    def _lost(self) -> Any:
        try:
            yield
        except Unreachable as error:
            raise ConnectionError(str(error)) from None


def _session(
    url: str,
    client_id: str,
    username: str | None,
    password: str | None,
    clean: bool,
    keepalive: int,
    will: Will | None,
    context: ssl.SSLContext | None,
) -> _Session:
    target, _topic = parse_url(url)
    if username is not None:
        target = replace(target, username=username, password=password)
    name = client_id or client_id_of(None, "test")
    options = ConnectionOptions(
        target,
        name,
        keepalive,
        clean,
        will,
        context=context or (ssl.create_default_context() if target.is_tls else None),
    )
    return _Session(options)


class _Named:
    """What both kinds of client share.

    Args:
        url: the broker: `mqtt://HOST:PORT`, `mqtts://`, `ws://`, `wss://` or `unix://`; it may hold user and password.
        client_id: a random one if it is left out.
        username: the user name.
        password: the password.
        clean: whether the session ends with the connection.
        keepalive: seconds between pings; 0 = none.
        will: what the broker publishes when the client vanishes.
        context: for TLS; the authorities of the system if it is left out.
    """

    def __init__(
        self,
        url: str,
        client_id: str = "",
        *,
        username: str | None = None,
        password: str | None = None,
        clean: bool = True,
        keepalive: int = 0,
        will: Will | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._session = _session(
            url, client_id, username, password, clean, keepalive, will, context
        )

    @property
    def client_id(self) -> str:
        """The client id."""
        return self._session.connection.client_id

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands."""
        client = getattr(self._session, "client", None)
        return client is not None and not client.closed.is_set()


class MqttClient(_Named, Closing):
    """An MQTT 3.1.1 client for plain test functions; `open` connects it, or `with`.

    What the broker refuses, and a connection that is lost, raise ConnectionError.
    """

    _thread: LoopThread | None = None

    def __enter__(self) -> Self:
        return self.open()

    def open(self) -> Self:
        """Connects. Raises ConnectionRefusedError with the CONNACK's code if the broker does not let it in."""
        assert self._thread is None, "it is open already"
        self._thread = LoopThread("vmq.testing client")
        try:
            self._do(self._session.open())
        except BaseException:
            self.close()
            raise
        return self

    def publish(
        self, topic: str, payload: bytes | str = b"", qos: int = 0, retain: bool = False
    ) -> None:
        """Publishes; returns when the message is written (QoS 0) or acknowledged."""
        self._do(self._session.publish(topic, payload, qos, retain))

    def subscribe(self, *filters: str, qos: int = 0) -> None:
        """Subscribes. Raises PermissionError if the broker refuses a filter."""
        self._do(self._session.subscribe(filters, qos))

    def unsubscribe(self, *filters: str) -> None:
        """Ends subscriptions."""
        self._do(self._session.unsubscribe(filters))

    def receive(self, timeout: float = PATIENCE) -> ReceivedMessage:
        """The next message. Raises TimeoutError if there is none within so many seconds."""
        return self._running().run(self._session.receive(timeout), timeout + PATIENCE)

    def wait_closed(self) -> None:
        """Waits for the end of the connection."""
        self._do(self._session.wait_closed())

    def drop(self) -> None:
        """Ends the connection as a broken network does: without DISCONNECT."""
        self._do(self._session.drop())

    def close(self) -> None:
        """Disconnects; a client that is closed already stays so."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._session.close())
            finally:
                thread.close()

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise ConnectionError("the client is not connected: `open` connects it")
        return self._thread

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            thread = self._running()
        except ConnectionError:
            work.close()
            raise
        return thread.run(work)


class AsyncMqttClient(_Named):
    """An MQTT 3.1.1 client for tests that are coroutines; `await client.open()` connects it, or `async with`."""

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> Self:
        """Connects. Raises ConnectionRefusedError with the CONNACK's code if the broker does not let it in."""
        await self._do(self._session.open())
        return self

    async def publish(
        self, topic: str, payload: bytes | str = b"", qos: int = 0, retain: bool = False
    ) -> None:
        """Publishes; returns when the message is written (QoS 0) or acknowledged."""
        await self._do(self._session.publish(topic, payload, qos, retain))

    async def subscribe(self, *filters: str, qos: int = 0) -> None:
        """Subscribes. Raises PermissionError if the broker refuses a filter."""
        await self._do(self._session.subscribe(filters, qos))

    async def unsubscribe(self, *filters: str) -> None:
        """Ends subscriptions."""
        await self._do(self._session.unsubscribe(filters))

    async def receive(self, timeout: float = PATIENCE) -> ReceivedMessage:  # noqa: ASYNC109 - as `MqttClient.receive`
        """The next message. Raises TimeoutError if there is none within so many seconds."""
        return await self._session.receive(timeout)

    async def wait_closed(self) -> None:
        """Waits for the end of the connection."""
        await self._do(self._session.wait_closed())

    async def drop(self) -> None:
        """Ends the connection as a broken network does: without DISCONNECT."""
        await self._do(self._session.drop())

    async def close(self) -> None:
        """Disconnects."""
        await self._do(self._session.close())

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wait_for(work, PATIENCE)
