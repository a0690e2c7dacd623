"""Messages in both directions, for as long as one connection to the far broker lasts.

Nothing is acknowledged before it is safe on the other side: a message from here when the far broker
has acknowledged it, a message from there when our broker has. What was not acknowledged when the
connection, or either broker, went away comes again. Out there it goes under the packet id that it has
in our own session, so that a far broker which knows us takes a QoS 2 message that comes again for what
it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from vmq_hooks import BridgeMessage, BridgeSession, Counter

from vmq_bridge import packets
from vmq_bridge.packets import Packet
from vmq_bridge.remote import Remote
from vmq_bridge.topics import Topics


class Counters(NamedTuple):
    """What one bridge counts."""

    #: Messages from the far broker that ours has taken.
    came: Counter
    #: Messages that the far broker has taken; at QoS 0, that were sent.
    went: Counter
    dropped: Counter
    reconnects: Counter


class Exchanges:
    """What QoS 2 has to remember from one connection to the next, as long as the far broker does."""

    def __init__(self) -> None:
        #: Outgoing: PUBREC came, and PUBREL is to be answered yet.
        self.released: set[int] = set()
        #: Incoming: taken and not yet released by the far broker [MQTT-4.3.3-2].
        self.received: set[int] = set()

    def forget(self) -> None:
        """The far broker has forgotten: ids mean nothing any more."""
        self.released.clear()
        self.received.clear()


class Log(Protocol):
    """Tells of a message that was dropped."""

    def __call__(self, topic: str, why: str) -> None: ...


class _Taken(NamedTuple):
    """A message from there on its way into our broker."""

    qos: int
    packet_id: int
    topic: str
    work: "asyncio.Task[None] | None"


class Relay:
    """One connection's messages.

    Args:
        local: our broker.
        remote: the far one.
        topics: the names on both sides.
        exchanges: of QoS 2; outlives the connection.
        window: messages from there that may wait for our broker; then no more are read.
        limit: bytes of the largest packet that goes there.
        counters: of this bridge.
        on_drop: told of what goes nowhere.
    """

    def __init__(
        self,
        local: BridgeSession,
        remote: Remote,
        topics: Topics,
        exchanges: Exchanges,
        *,
        window: int,
        limit: int,
        counters: Counters,
        on_drop: Log,
    ) -> None:
        self._local = local
        self._remote = remote
        self._topics = topics
        self._exchanges = exchanges
        self._limit = limit
        self._counters = counters
        self._on_drop = on_drop
        self._room = asyncio.Semaphore(window)
        self._taken: asyncio.Queue[_Taken] = asyncio.Queue()
        self._current: _Taken | None = None
        self._by_kind: dict[int, Callable[[Packet], Awaitable[None] | None]] = {
            packets.PUBLISH: self._on_publish,
            packets.PUBACK: self._on_done,
            packets.PUBREC: self._on_received,
            packets.PUBCOMP: self._on_done,
            packets.PUBREL: self._on_release,
            packets.SUBACK: remote.answered,
            packets.UNSUBACK: remote.answered,
            packets.PINGRESP: lambda _packet: None,
        }

    async def run(self, greet: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carries messages until something ends; `greet` subscribes, before messages go out.

        Raises:
            ConnectionError: one of the brokers has closed.
        """

        async def out() -> None:
            await greet()
            await self._pump()

        try:
            await _first_to_end(
                [self._read(), self._acknowledge(), out(), self._remote.keep_alive()]
            )
        finally:
            await self._finish()

    # From here to there

    async def _pump(self) -> None:
        while True:
            self._send(await self._local.receive())
            await self._remote.flush()

    def _send(self, found: BridgeMessage) -> None:
        message, packet_id, again = found.message, found.packet_id, found.again
        if not again:
            # The id is a new message's, whatever became of the one that had it.
            self._exchanges.released.discard(packet_id)
        mapped = self._topics.outgoing(message.topic)
        if mapped is None or len(mapped[0].encode()) + len(message.payload) + 4 > self._limit:
            why = "no rule has this topic" if mapped is None else "above max_packet_size"
            self._counters.dropped.add()
            self._on_drop(message.topic, why)
            self._local.acknowledge(packet_id)
            return
        topic, highest = mapped
        qos = min(message.qos, highest)
        if packet_id in self._exchanges.released and qos == 2:
            self._remote.send(packets.answer(packets.PUBREL, packet_id))
            return
        self._remote.send(
            packets.publish(
                topic,
                message.payload,
                qos=qos,
                retain=message.retain,
                packet_id=packet_id,
                dup=again and self._remote.session_present,
            )
        )
        if qos == 0:
            self._counters.went.add()
            self._local.acknowledge(packet_id)

    def _on_received(self, packet: Packet) -> None:
        """PUBREC: the far broker has the message, and is told that it may go on."""
        packet_id = packets.read_packet_id(packet)
        self._exchanges.released.add(packet_id)
        self._remote.send(packets.answer(packets.PUBREL, packet_id))

    def _on_done(self, packet: Packet) -> None:
        """PUBACK or PUBCOMP: the message is the far broker's."""
        packet_id = packets.read_packet_id(packet)
        self._exchanges.released.discard(packet_id)
        self._counters.went.add()
        self._local.acknowledge(packet_id)

    # From there to here

    async def _read(self) -> None:
        while True:
            packet = await self._remote.read()
            handle = self._by_kind.get(packet.kind)
            if handle is None:
                raise packets.PacketError(f"it sent a packet of type {packet.kind}")
            waiting = handle(packet)
            if waiting is not None:
                await waiting

    async def _on_publish(self, packet: Packet) -> None:
        found = packets.read_publish(packet)
        # Nothing is awaited after this: what our broker is given has its place in the line.
        await self._room.acquire()
        work: asyncio.Task[None] | None = None
        if found.qos == 2 and found.packet_id in self._exchanges.received:
            pass  # taken already: the PUBREC was lost
        elif (mapped := self._topics.incoming(found.topic)) is None:
            # Left over from what was subscribed to before the configuration changed.
            self._counters.dropped.add()
            self._on_drop(found.topic, "no rule has this topic")
        else:
            topic, highest = mapped
            # Tasks begin in the order of their making, so our broker gets the messages in order.
            work = asyncio.ensure_future(
                self._local.publish(
                    topic, found.payload, qos=min(found.qos, highest), retain=found.retain
                )
            )
        self._taken.put_nowait(_Taken(found.qos, found.packet_id, found.topic, work))

    async def _acknowledge(self) -> None:
        """Answers the far broker, in its order [MQTT-4.6.0-2], once our broker has the message."""
        while True:
            taken = self._current = await self._taken.get()
            await self._settle(taken)
            self._current = None
            self._room.release()
            if taken.qos:
                kind = packets.PUBACK if taken.qos == 1 else packets.PUBREC
                self._remote.send(packets.answer(kind, taken.packet_id))
                await self._remote.flush()

    async def _settle(self, taken: _Taken) -> None:
        """Waits until our broker has the message, or has refused it."""
        if taken.work is not None:
            await asyncio.wait([taken.work])  # cancelled, it leaves the work alone
            try:
                taken.work.result()
                self._counters.came.add()
            except ValueError as error:
                # It would be refused the next time, too.
                self._counters.dropped.add()
                self._on_drop(taken.topic, str(error))
        if taken.qos == 2:
            self._exchanges.received.add(taken.packet_id)

    async def _finish(self) -> None:
        """What our broker is taking when the connection ends: of QoS 2 that has to be known, lest it comes twice."""
        left = [] if self._current is None else [self._current]
        while not self._taken.empty():
            left.append(self._taken.get_nowait())
        for taken in left:
            try:
                await self._settle(taken)
            except ConnectionError:
                pass  # our own broker ended the session: it comes again

    def _on_release(self, packet: Packet) -> None:
        """PUBREL; the far broker needs its PUBCOMP even if nobody knows the id."""
        packet_id = packets.read_packet_id(packet)
        self._exchanges.received.discard(packet_id)
        self._remote.send(packets.answer(packets.PUBCOMP, packet_id))


async def _first_to_end(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all of them until the first ends, which raises what it raised."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
