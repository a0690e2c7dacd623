"""Messages in both directions, for as long as one connection to the far broker lasts.

Nothing is acknowledged before it is safe on the other side: a message from here when the far broker
has acknowledged it, a message from there when our broker has. What was not acknowledged when the
connection, or either broker, went away comes again.

Nothing that QoS 2 has to remember is kept here: each step of an exchange with the far broker is done
with our own broker as well, whose session with us outlives it. A message has the same packet id on
both sides, so each of the two takes what comes again for what it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from vmq_hooks import BridgeMessage, BridgeSession, Counter, Message

from vmq_bridge import packets
from vmq_bridge.earlier import Earlier
from vmq_bridge.packets import Packet
from vmq_bridge.remote import Remote
from vmq_bridge.topics import NotCarriedError, Topics


class Counters(NamedTuple):
    """What one bridge counts."""

    #: Messages from the far broker that ours has taken.
    came: Counter
    #: Messages that the far broker has taken; at QoS 0, that were sent.
    went: Counter
    dropped: Counter
    reconnects: Counter


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
        window: packets from there that may wait for our broker; then no more are read.
        limit: bytes of the largest packet that goes there.
        counters: of this bridge.
        on_drop: told of what goes nowhere.
        earlier: knows which ids our broker remembers, if the far broker may have lost its session; None: it has not.
    """

    def __init__(
        self,
        local: BridgeSession,
        remote: Remote,
        topics: Topics,
        *,
        window: int,
        limit: int,
        counters: Counters,
        on_drop: Log,
        earlier: Earlier | None = None,
    ) -> None:
        self._local = local
        self._remote = remote
        self._topics = topics
        self._limit = limit
        self._counters = counters
        self._on_drop = on_drop
        self._earlier = earlier
        self._room = asyncio.Semaphore(window)
        self._taken: asyncio.Queue[_Taken] = asyncio.Queue()
        self._current: _Taken | None = None
        self._releases: set[asyncio.Task[None]] = set()
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
        if found.released:
            self._remote.send(packets.answer(packets.PUBREL, packet_id))
            return
        try:
            topic, highest = self._mapped(message)
        except NotCarriedError as error:
            self._drop(message.topic, error)
            self._local.acknowledge(packet_id)
            return
        qos = min(message.qos, highest)
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

    def _mapped(self, message: Message) -> tuple[str, int]:
        """The topic there and the highest QoS. Raises NotCarriedError."""
        topic, highest = self._topics.outgoing(message.topic)
        if len(topic.encode()) + len(message.payload) + 4 > self._limit:
            raise NotCarriedError("above max_packet_size")
        return topic, highest

    def _on_received(self, packet: Packet) -> None:
        """PUBREC: the far broker has the message; once our broker knows that, it comes back as released."""
        self._local.received(packets.read_packet_id(packet))

    def _on_done(self, packet: Packet) -> None:
        """PUBACK or PUBCOMP: the message is the far broker's."""
        packet_id = packets.read_packet_id(packet)
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
        if found.qos == 2 and self._earlier is not None:
            await self._earlier.admit(self._local, found)
        # Nothing is awaited after this: what our broker is given has its place in the line.
        await self._room.acquire()
        work: asyncio.Task[None] | None = None
        try:
            topic, highest = self._topics.incoming(found.topic)
        except NotCarriedError as error:
            # No rule: left over from what was subscribed to before the configuration changed.
            self._drop(found.topic, error)
        else:
            # Tasks begin in the order of their making, so our broker gets the messages in order.
            work = asyncio.ensure_future(
                self._local.publish(
                    topic,
                    found.payload,
                    qos=min(found.qos, highest),
                    retain=found.retain,
                    packet_id=found.packet_id,
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
                self._drop(taken.topic, error)

    def _drop(self, topic: str, why: ValueError) -> None:
        self._counters.dropped.add()
        self._on_drop(topic, str(why))

    async def _finish(self) -> None:
        """What our broker is still taking when the connection ends."""
        for release in self._releases:
            release.cancel()
        await asyncio.gather(*self._releases, return_exceptions=True)
        left = [] if self._current is None else [self._current]
        while not self._taken.empty():
            left.append(self._taken.get_nowait())
        for taken in left:
            try:
                await self._settle(taken)
            except ConnectionError:
                pass  # our own broker ended the session: it comes again

    async def _on_release(self, packet: Packet) -> None:
        """PUBREL; the far broker needs its PUBCOMP even if nobody knows the id."""
        packet_id = packets.read_packet_id(packet)
        await self._room.acquire()
        task = asyncio.ensure_future(self._release(packet_id))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, packet_id: int) -> None:
        """Answers once our broker has forgotten the id: the next message under it is a new one."""
        try:
            await self._local.release(packet_id)
            if self._earlier is not None:
                self._earlier.released(packet_id)
        except ConnectionError:
            return  # `receive` ends as well, and with it the connection
        finally:
            self._room.release()
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
