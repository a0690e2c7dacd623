"""Clients with a socket: they connect in every round, publish as fast as acknowledged, receive."""

import asyncio
from collections.abc import Callable
from random import Random

from tests.crash.history import History, Message
from tests.crash.session import Outgoing, StrictSession
from tests.crash.stage import Stage
from tests.support.wire import split_packets

TIMEOUT = 60.0


class Link(asyncio.Protocol):
    """One connection of a session. `after` is called when a chunk of packets was handled."""

    def __init__(self, session: StrictSession, stage: Stage, after: Callable[[], None]) -> None:
        self.closed = asyncio.Event()
        self._session = session
        self._stage = stage
        self._after = after
        self._unread = bytearray()
        self._changed = asyncio.Event()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._session.begin()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        for packet in split_packets(self._unread):
            self._session.receive(packet)
            self._stage.step()
        self._after()
        self.flush()
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._session.lost()
        self.closed.set()
        self._changed.set()

    def flush(self) -> None:
        """Write what the session has to say."""
        if self._session.output:
            self._transport.write(bytes(self._session.output))
            self._session.output.clear()

    def close(self) -> None:
        """Close the connection once everything is written."""
        self._transport.close()

    async def until(self, done: Callable[[], bool]) -> bool:
        """Wait until `done`, looked at whenever something arrives; False if the link went first.

        Raises TimeoutError when neither happens.
        """
        async with asyncio.timeout(TIMEOUT):
            while not done():
                if self.closed.is_set():
                    return False
                self._changed.clear()
                await self._changed.wait()
        return True


class Peer:
    """A durable client that is there in every round but its `naps`. `active`: it may publish."""

    def __init__(self, client_id: str, stage: Stage, history: History) -> None:
        self.session = StrictSession(client_id, history)
        self.active = False
        self.naps: frozenset[int] = frozenset()
        self.link: Link | None = None
        self._stage = stage
        self._history = history
        self._accepted = asyncio.Event()

    async def run(self) -> None:
        """Connect in each round until cancelled."""
        seen = 0
        while True:
            seen = await self._stage.next_round(seen)
            if seen not in self.naps:
                await self.live()

    async def live(self) -> None:
        """Connect and stay until the connection ends."""
        link = await self.connect(self.session, self._after_packets)
        if link is None:
            return
        self.link = link
        await link.closed.wait()
        self.link = None
        self._accepted.clear()
        if not self._stage.struck.is_set():
            self._history.object(f"{self.session.client_id}: the broker closed the connection")

    async def connect(self, session: StrictSession, after: Callable[[], None]) -> Link | None:
        """A new connection of the session, or None if the broker was struck meanwhile."""
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_connection(
                lambda: Link(session, self._stage, after), *self._stage.address
            )
        except OSError as error:
            if not self._stage.struck.is_set():
                self._history.object(f"{session.client_id} cannot connect: {error}")
            return None
        return link

    def _after_packets(self) -> None:
        if self.session.connected:
            self._accepted.set()
        self.on_progress()

    def on_progress(self) -> None:
        """Called after each chunk of packets."""

    async def ready(self) -> Link:
        """Wait for the broker's CONNACK, in a round that is not struck; return the connection."""
        await asyncio.wait_for(self._accepted.wait(), TIMEOUT)
        assert self.link is not None
        return self.link


class Subscriber(Peer):
    """A durable client with one subscription, made once and for all before the first message."""

    def __init__(
        self,
        client_id: str,
        stage: Stage,
        history: History,
        topic_filter: str,
        wants: Callable[[str], bool],
        qos: int,
    ) -> None:
        super().__init__(client_id, stage, history)
        self._filter = topic_filter
        self._qos = qos
        history.subscribe(client_id, wants, qos)

    async def subscribe(self) -> None:
        """Subscribe, and wait for the broker's answer."""
        link = await self.ready()
        self.session.subscribe(self._filter, self._qos)
        link.flush()
        assert await link.until(lambda: bool(self.session.granted))
        assert self.session.granted == [self._qos], self.session.granted


class Publisher(Peer):
    """A durable client that keeps `window` messages under way while it is `active`."""

    def __init__(
        self,
        client_id: str,
        stage: Stage,
        history: History,
        streams: tuple[tuple[str, int], ...],
        random: Random,
    ) -> None:
        super().__init__(client_id, stage, history)
        self._streams = streams
        self._numbers = dict.fromkeys(streams, 0)
        self._random = random
        self._window = random.randint(5, 40)

    def on_progress(self) -> None:
        if self.active:
            self.publish_some()

    def publish_some(self) -> None:
        """Fill the window."""
        while self.session.connected and self.session.in_flight < self._window:
            self._publish(self._random.choice(self._streams))

    def publish_each(self) -> list[Message]:
        """Publish one message in each stream; return them."""
        return [self._publish(stream) for stream in self._streams]

    def _publish(self, stream: tuple[str, int]) -> Message:
        topic, qos = stream
        message = Message(self.session.client_id, topic, qos, self._numbers[stream])
        self._numbers[stream] += 1
        [size] = self._random.choices((0, 10, 100, 1000, 20_000), (30, 30, 30, 8, 2))
        self.session.publish(
            Outgoing(
                topic,
                message.payload(bytes(size)),
                qos,
                retain=False,
                on_sent=lambda: self._history.sent(message),
                on_acknowledged=lambda: self._history.acknowledge(message),
            )
        )
        return message
