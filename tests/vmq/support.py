"""What the core's tests share: a broker without sockets, and strict clients that talk to it.

A `House` is a registry with its core, a clock that stands still, and optionally a real store. A
`Client` is the far end of a real `Connection` whose transport is a byte buffer. It builds and reads
packets with a codec of its own (that of the conformance tests), and checks everything it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Unpack

from tests.support import wire as mqtt
from tests.vmq.memory_transport import MemoryTransport
from vmq.core.context import Core, CoreOptions
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.mqtt.message import Message
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext
from vmq.store.opening import ended_sessions, open_store, stored_retained, stored_sessions
from vmq.store.store import Store

#: Where the clocks of a test begin: neither is 0, so that a forgotten one shows.
MONOTONIC_START = 1_000.0
WALL_START = 1_700_000_000.0


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def acknowledge(queue: Queue, packet: bytes) -> None:
    """Has the queue's client acknowledge: PUBACK, PUBREC or PUBCOMP packets of one kind."""
    queue.on_acknowledgements(packet[0] >> 4, packet)


class Client:
    """A strict MQTT client over a connection of the house. Nothing is acknowledged by itself."""

    def __init__(self, house: House, *, anonymous: bool = True, new_id: str = "auto-1") -> None:
        self.house = house
        self.transport = MemoryTransport()
        self.buffer = bytearray()
        self.opened: list[Connection] = []
        self.ended: list[Connection] = []
        self.last_id = 0
        self.client_id = ""
        self.connection = Connection(
            house.registry,
            anonymous,
            new_id,
            ListenerContext(self.opened.append, self.ended.append),
        )
        self.connection.connection_made(self.transport)

    # Bytes and packets

    def send(self, *data: bytes) -> None:
        """Sends bytes in one chunk. A transport that was closed reads nothing more."""
        if not self.transport.closed:
            self.connection.data_received(b"".join(data))
            self.house.maybe_settle()

    def take_bytes(self) -> bytes:
        """What the broker wrote since the last look, as bytes."""
        taken = bytes(self.transport.written)
        self.transport.written.clear()
        return taken

    def take(self) -> list[mqtt.Packet]:
        """What the broker wrote since the last look; each packet is one that it may send."""
        self.buffer += self.transport.written
        self.transport.written.clear()
        packets = list(mqtt.split_packets(self.buffer))
        for each in packets:
            check_packet(each)
        return packets

    def expect(self, *wanted: bytes) -> None:
        """Takes what came, which must be these packets and no more."""
        assert [each.raw for each in self.take()] == list(wanted)

    def expect_end(self) -> None:
        """Nothing came, and the connection is closed."""
        self.expect()
        assert self.is_closed()

    def ask(self, data: bytes, *wanted: bytes) -> None:
        """Sends bytes; what comes then must be these packets and no more."""
        self.send(data)
        self.expect(*wanted)

    def take_one(self, kind: int) -> mqtt.Packet:
        """Takes what came, which must be one packet of this type."""
        packets = self.take()
        assert [each.type for each in packets] == [kind], packets
        return packets[0]

    def take_published(self) -> list[tuple[str, bytes]]:
        """Takes what came, all PUBLISH, as (topic, payload)."""
        packets = self.take()
        assert all(each.type == mqtt.PUBLISH for each in packets), packets
        return [(each.topic, each.payload) for each in packets]

    def payloads(self) -> list[bytes]:
        """Takes what came and gives the payloads of the PUBLISH packets in it."""
        return [each.payload for each in self.take() if each.type == mqtt.PUBLISH]

    def is_closed(self) -> bool:
        return self.transport.closed

    # The usual packets

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def connect(
        self, client_id: str = "client", **fields: Unpack[mqtt.ConnectFields]
    ) -> mqtt.Packet:
        """Sends CONNECT; returns the CONNACK, which accepts it. More may have come behind it."""
        self.client_id = client_id
        fields.setdefault("keep_alive", 0)
        fields.setdefault("protocol", "MQTT" if fields.get("level", 4) == 4 else "MQIsdp")
        self.send(mqtt.connect_packet(client_id, **fields))
        self.buffer += self.transport.written
        self.transport.written.clear()
        first = bytes(self.buffer[:4])
        del self.buffer[:4]
        assert first[:2] == b"\x20\x02", f"no CONNACK: {first!r}"
        assert first[3] == 0, f"refused with code {first[3]}"
        return mqtt.Packet(first[0], first[2:])

    def subscribe(self, *pairs: tuple[str, int]) -> list[int]:
        """Subscribes; returns the SUBACK's codes. Nothing else has come before it."""
        self.send(mqtt.subscribe_packet(self.next_id(), *pairs))
        self.buffer += self.transport.written
        self.transport.written.clear()
        length = 4 + len(pairs)
        found = mqtt.Packet(self.buffer[0], bytes(self.buffer[2:length]))
        del self.buffer[:length]
        assert found.type == mqtt.SUBACK, found
        assert found.packet_id == self.last_id
        return found.codes

    def unsubscribe(self, *filters: str) -> None:
        self.send(mqtt.unsubscribe_packet(self.next_id(), *filters))
        assert self.take_one(mqtt.UNSUBACK).packet_id == self.last_id

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, *, retain: bool = False
    ) -> None:
        """Publishes and goes through the whole exchange; leaves unread what came besides."""
        if qos == 0:
            self.send(mqtt.publish_packet(topic, payload, retain=retain))
            return
        pid = self.next_id()
        self.send(mqtt.publish_packet(topic, payload, qos=qos, packet_id=pid, retain=retain))
        if qos == 1:
            self.take_answer(mqtt.PUBACK, pid)
            return
        self.take_answer(mqtt.PUBREC, pid)
        self.send(mqtt.pubrel_packet(pid))
        self.take_answer(mqtt.PUBCOMP, pid)

    def take_answer(self, kind: int, packet_id: int) -> None:
        """Takes one answer out of what came, and leaves the rest to be taken."""
        packets = self.take()
        found = [each for each in packets if each.type == kind and each.packet_id == packet_id]
        assert len(found) == 1, f"waited for type {kind}, id {packet_id}: {packets}"
        packets.remove(found[0])
        self.buffer[:0] = b"".join(each.raw for each in packets)

    def acknowledge(self, *received: mqtt.Packet) -> None:
        """Goes through the exchange of each PUBLISH that was received, leaves the rest unread."""
        for each in received:
            pid = each.packet_id
            if each.qos == 1:
                self.send(mqtt.puback_packet(pid))
            elif each.qos == 2:
                self.send(mqtt.pubrec_packet(pid))
                self.take_answer(mqtt.PUBREL, pid)
                self.send(mqtt.pubcomp_packet(pid))

    def ping(self) -> None:
        """Nothing but the answer has come."""
        self.send(mqtt.PINGREQ_BYTES)
        self.take_one(mqtt.PINGRESP)

    # The connection's end and the socket's state

    def disconnect(self) -> None:
        """DISCONNECT, and the end of the connection after it."""
        self.send(mqtt.DISCONNECT_BYTES)
        assert self.transport.closed
        self.lose()

    def lose(self, error: Exception | None = None) -> None:
        """The connection is gone, as the event loop tells it."""
        self.transport.closed = True
        self.connection.connection_lost(error)
        self.house.maybe_settle()

    def block(self) -> None:
        """The socket's buffer is full."""
        self.connection.pause_writing()

    def unblock(self) -> None:
        self.connection.resume_writing()
        self.house.maybe_settle()

    @property
    def queue(self) -> Queue:
        """The queue that this connection has."""
        subscriber = self.connection.session.subscriber
        assert subscriber is not None
        return subscriber.queue


def check_packet(packet: mqtt.Packet) -> None:
    """Whether a packet is one that a server may send, field by field."""
    flags = packet.first & 15
    if packet.type == mqtt.PUBLISH:
        assert packet.qos != 3, packet
        assert not (packet.dup and packet.qos == 0), packet
        assert packet.qos == 0 or packet.packet_id > 0, packet
        assert packet.topic, packet
        return
    assert flags == (2 if packet.type == mqtt.PUBREL else 0), packet
    if packet.type in (mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBREL, mqtt.PUBCOMP, mqtt.UNSUBACK):
        assert len(packet.body) == 2, packet
        assert packet.packet_id > 0, packet
    elif packet.type == mqtt.CONNACK:
        assert len(packet.body) == 2, packet
    elif packet.type == mqtt.PINGRESP:
        assert not packet.body, packet
    else:
        assert packet.type == mqtt.SUBACK, packet
        assert set(packet.codes) <= {0, 1, 2, 128}, packet


class House:
    """A broker's core with nothing around it.

    With `path` it has a store there; unless it `is_alone`, as a node of a cluster has it.
    `settle` does what event loop, committer and queue tasks do;
    it is called after every act of a client unless `patient` is set.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        durability: str = "os",
        change: Callable[[CoreOptions], None] | None = None,
        is_alone: bool = True,
    ) -> None:
        self.path = path
        self.is_alone = is_alone
        self.durability = durability
        self.options = CoreOptions()
        if change is not None:
            change(self.options)
        self.clock = Clock(MONOTONIC_START)
        self.wall_clock = Clock(WALL_START)
        #: What `choose` answers, by default always the first.
        self.choice = 0
        self.patient = False
        self.build()

    def build(self) -> None:
        """A core as it is right after the start, with what the store holds."""
        self.store: Store | None = None
        self.scheduled = 0
        self.woken: list[Queue] = []
        self.purged: list[bytes] = []
        if self.path is not None:
            self.store = open_store(self.path, self.durability, self.on_schedule)
            self.store.is_alone = self.is_alone
        self.core = Core(self.options, self.store, self.clock, self.wall_clock, self.choose)
        #: What is to be done in the next turn of the event loop.
        self.soon: list[Callable[[], None]] = []
        self.core.call_soon = self.soon.append
        # The clock stands still: all writes would be close to each other.
        self.core.cork.close = 0.0
        self.registry = Registry(self.core, self.on_wake, self.purged.append)
        if self.store is not None:
            for session in stored_sessions(self.store):
                self.registry.restore(session)
            for _, message in stored_retained(self.store):
                self.registry.retained.keep(message)
            self.purged.extend(ended_sessions(self.store))

    def on_schedule(self) -> None:
        self.scheduled += 1

    def on_wake(self, queue: Queue) -> None:
        if queue not in self.woken:
            self.woken.append(queue)

    def choose(self, count: int) -> int:
        assert count > 1, "a choice among one"
        return self.choice % count

    def client(self, client_id: str = "", **fields: Unpack[mqtt.ConnectFields]) -> Client:
        """A new connection; with a client id it is connected, its CONNACK read."""
        client = Client(self)
        if client_id:
            client.connect(client_id, **fields)
        return client

    def subscriber(
        self, client_id: str, *pairs: tuple[str, int], **fields: Unpack[mqtt.ConnectFields]
    ) -> Client:
        """A client with these subscriptions."""
        client = self.client(client_id, **fields)
        client.subscribe(*pairs)
        return client

    def expired_after(self, seconds: float) -> int:
        """How many sessions end when so much time has passed."""
        self.pass_time(seconds)
        return self.registry.expire()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.wall_clock.advance(seconds)

    # What the event loop does

    def commit(self) -> None:
        """A group commit."""
        if self.store is None or not self.store.is_due:
            return
        number = self.store.begin_commit()
        self.store.write()
        self.store.end_commit()
        self.core.outbox.release(number)

    def drain(self) -> None:
        """One step of every queue that asked for it."""
        woken, self.woken = self.woken, []
        for queue in woken:
            if queue.drain_step():
                self.on_wake(queue)
        self.core.outbox.flush()

    def turn(self) -> bool:
        """One turn of the event loop, as far as it was asked for; False if it was not."""
        soon = list(self.soon)
        self.soon.clear()
        for call in soon:
            call()
        return bool(soon)

    def settle(self) -> None:
        """Commits and drains until nothing is left to do."""
        for _ in range(100_000):
            self.core.outbox.flush()
            self.commit()
            if self.turn():
                continue
            if not self.woken:
                break
            self.drain()
        else:
            raise AssertionError("the queues never come to rest")
        assert not self.core.outbox.touched
        assert not self.core.outbox.stored.parked

    def maybe_settle(self) -> None:
        if not self.patient:
            self.settle()

    def close(self) -> None:
        """Closes the database and nothing else: what was not committed is lost."""
        if self.store is not None:
            self.store.db.close()

    def restart(self) -> None:
        """The broker is killed and started again on the same store."""
        self.close()
        self.build()

    # Short cuts

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        source: Source | None = None,
    ) -> Message:
        """Publishes past any session, unless one is the source."""
        message = Message(topic.encode(), payload, qos, retain)
        route = self.registry.route(message.topic)
        self.registry.publish(route, message, source or self.core.nobody)
        self.maybe_settle()
        return message

    def queue(self, client_id: str) -> Queue:
        return self.registry.subscribers[client_id].queue

    def retained(self) -> dict[str, bytes]:
        """All retained messages, `$`-topics apart."""
        found = self.registry.retained.match("#")
        return {message.topic.decode(): message.payload for message in found}


@contextmanager
def stored_house(path: Path, **fields: Any) -> Iterator[House]:
    """A house with a store in this folder, closed at the end."""
    with closing(House(path, **fields)) as house:
        yield house


# What tests of queues and sessions say often


def subscribed(house: House, qos: int = 2, *, clean: bool = True) -> Client:
    """The client "s", which is subscribed to "t"."""
    client = house.client("s", clean=clean)
    client.subscribe(("t", qos))
    return client


def publish_numbers(house: House, *values: int, qos: int = 1) -> None:
    """Publishes these payloads to "t"."""
    for value in values:
        house.publish("t", b"%d" % value, qos)


def take_numbers(client: Client) -> list[int]:
    """What was sent since the last look, all of it PUBLISH, by payload."""
    return [int(payload) for _, payload in client.take_published()]


def read_on(client: Client) -> list[int]:
    """Reads and acknowledges until nothing more comes; the payloads in order."""
    seen: list[int] = []
    while packets := client.take():
        for packet in packets:
            if packet.type == mqtt.PUBREL:
                client.send(mqtt.pubcomp_packet(packet.packet_id))
                continue
            seen.append(int(packet.payload))
            if packet.qos:
                build = mqtt.puback_packet if packet.qos == 1 else mqtt.pubrec_packet
                client.send(build(packet.packet_id))
    return seen


def keep_retained(house: House, count: int, qos: int = 0) -> None:
    """Retains so many messages below "r"."""
    for number in range(count):
        house.publish(f"r/{number}", b"%d" % number, qos, retain=True)


def watcher(house: House, topic_filter: str = "#") -> Client:
    client = house.client("watcher")
    client.subscribe((topic_filter, 2))
    return client


def work_of_turns(house: House, before: int) -> list[int]:
    """What was done since, and in each turn until nothing is left."""
    steps = [house.core.work - before]
    while house.turn():
        steps.append(house.core.work - before - sum(steps))
    return steps
