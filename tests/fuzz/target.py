"""What the fuzzer's bytes mean to decoder and session, and what must hold whatever they are.

An input is one byte of options, then blocks: a byte that steers, a byte with a length, and so many
bytes that a peer sends in one chunk. Two peers take part, so that one can take over, block or flood
the other, and a bystander whom nothing may touch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.wire import connect_packet
from tests.vmq.memory_transport import MemoryTransport
from tests.vmq.support import Client, House
from vmq.core.context import CoreOptions

#: Where the many stores lie that it makes: memory, if there is a folder of it.
RAM: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None

#: An id that no input names: its client may not be taken over.
BYSTANDER: Final = "bystander-4c1f0a9e"

# Options (the first byte).
ONE_INFLIGHT, DROP_OLDEST, NEWEST_FIRST, UPGRADE, PAUSE, TIGHT, STORED, RETRY = (
    1 << bit for bit in range(8)
)

# What the steering byte says: bit 0 is the peer, bits 1 to 3 what happens before its bytes.
SECOND_PEER: Final = 1
RESTART, STALL, READ_ON, LOSE, BEGIN, BEGIN_DURABLE, WAIT = (act << 1 for act in range(1, 8))
ACTS: Final = 7 << 1

#: The socket's buffer of a peer that reads nothing is full from here on.
HIGH_WATER: Final = 2048
#: So much of unread replies, and the broker reads that peer no further.
REPLY_LIMIT: Final = 4096
#: What the chunks of one pass may add to that: an input is a few KiB.
ONE_PASS: Final = 256 * 1024


class Violation(AssertionError):  # noqa: N818 - what a fuzzer looks for
    """The broker broke its promise. Not an AssertionError of a test that went wrong."""


class SlowTransport(MemoryTransport):
    """A transport whose peer may stop to read: its buffer fills, as an event loop's does."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled = False
        self.client: Client | None = None

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.stalled:
            self.buffered += len(data)
            self.maybe_pause()

    def maybe_pause(self) -> None:
        assert self.client is not None
        connection = self.client.connection
        if self.buffered > HIGH_WATER and not connection.blocked:
            connection.pause_writing()

    def read_on(self) -> None:
        assert self.client is not None
        self.stalled = False
        self.buffered = 0
        if self.client.connection.blocked:
            self.client.unblock()


class Peer:
    """One of the two that send what the input says."""

    def __init__(self, house: House, name: str) -> None:
        self.house = house
        self.name = name
        self.begin()

    def begin(self) -> None:
        """A new connection; nothing is sent yet."""
        self.client = Client(self.house)
        self.transport = SlowTransport()
        self.transport.client = self.client
        self.client.transport = self.transport
        self.client.connection.transport = self.transport
        self.client.connection.listener.reply_limit = REPLY_LIMIT
        self.fed = 0

    def act(self, steer: int) -> None:
        """What happens before the bytes of a block."""
        what = steer & ACTS
        if what == STALL:
            self.transport.stalled = True
        elif what == READ_ON:
            self.transport.read_on()
        elif what in (LOSE, BEGIN, BEGIN_DURABLE):
            self.lose()
            self.begin()
            if what != LOSE:
                self.feed(connect_packet(self.name, clean=what == BEGIN, keep_alive=9))
        elif what == WAIT:
            self.house.clock.advance(1.0)
            self.house.wall_clock.advance(1.0)
            self.retry()

    def retry(self) -> None:
        """What the session's task does from time to time."""
        subscriber = self.client.connection.session.subscriber
        if subscriber is not None and not self.transport.closed:
            subscriber.queue.retry(self.house.clock())
            self.house.settle()

    def feed(self, data: bytes) -> None:
        """Sends a chunk, unless the broker does not read from this peer any more."""
        if data and not self.transport.closed and self.transport.reading:
            self.fed += len(data)
            self.client.send(data)

    def lose(self) -> None:
        """The connection goes; whatever was stalled goes with it."""
        self.check()
        self.client.lose()

    def check(self) -> None:
        """What must hold between two chunks."""
        connection = self.client.connection
        session = connection.session
        kept = session.decoder.waiting_bytes()
        largest = 5 + self.house.options.max_connect_size
        if session.subscriber is not None:
            largest = 5 + self.house.options.max_packet_size
        if kept > min(self.fed, largest):
            raise Violation(f"the decoder keeps {kept} bytes, {self.fed} were sent")
        if connection.pieces or connection.is_held():
            raise Violation("something was left unwritten")
        if connection.closing and not self.transport.closed:
            raise Violation("the connection closes, but its transport does not")
        if self.transport.buffered > HIGH_WATER + REPLY_LIMIT + ONE_PASS:
            raise Violation(f"{self.transport.buffered} bytes wait for a peer that does not read")
        self.client.take()


def options_of(byte: int) -> Callable[[CoreOptions], None]:
    """The options that the first byte of an input chooses."""

    def change(options: CoreOptions) -> None:
        options.max_inflight_messages = 1 if byte & ONE_INFLIGHT else 3
        options.max_online_messages = 5
        options.max_offline_messages = 4
        options.max_msgs_per_drain_step = 2
        options.drop_oldest = byte & DROP_OLDEST != 0
        options.lifo = byte & NEWEST_FIRST != 0
        options.upgrade_outgoing_qos = byte & UPGRADE != 0
        options.pause_publisher = byte & PAUSE != 0
        options.max_packet_size = 4096
        if byte & TIGHT:
            options.max_packet_size = 64
            options.max_message_size = 16
            options.max_client_id_size = 23
            options.max_subscriptions_per_client = 3
            options.topic_max_depth = 3
            options.max_retained_messages = 3
            options.max_retained_bytes = 64
            options.topic_cache = 2
            options.flapping_limit = 3
        if byte & RETRY:
            options.retry_interval = 1.0

    return change


def blocks_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Steering byte and bytes of each block; the last one may be cut."""
    position = 1
    while position + 1 < len(data):
        start = position + 2
        position = start + data[position + 1]
        yield data[start - 2], data[start:position]


def run(data: bytes, prepare: Callable[[House], None] = lambda _house: None) -> None:
    """Plays one input. `prepare` may change the house before the peers come.

    Raises:
        Violation: something is unbounded, or the broker logged a defect of its own.
        AssertionError: it sent what no server may send, or touched the bystander.
    """
    chosen = options_of(data[0] if data else 0)
    options = CoreOptions()
    chosen(options)
    with ExitStack() as stack:
        stack.enter_context(no_defects_logged())
        path = None
        if data and data[0] & STORED:
            path = Path(stack.enter_context(TemporaryDirectory(dir=RAM)))
        house = House(path, change=chosen)
        stack.callback(house.close)
        play(house, data, Limits(options), prepare)


def play(house: House, data: bytes, limits: Limits, prepare: Callable[[House], None]) -> None:
    bystander = house.client(BYSTANDER)
    prepare(house)
    peers = (Peer(house, "first"), Peer(house, "second"))
    for steer, chunk in blocks_of(data):
        if steer & ACTS == RESTART and house.store is not None:
            for each in peers:
                each.lose()
            house.restart()
            bystander = house.client(BYSTANDER)
            for each in peers:
                each.begin()
        peer = peers[steer & SECOND_PEER]
        peer.act(steer)
        peer.feed(chunk)
        for each in peers:
            each.check()
        limits.check(house)
    for peer in peers:
        peer.lose()
    limits.check(house)
    registry = house.registry
    if house.store is None and (len(registry.subscribers) > 1 or registry.trie.count):
        raise Violation("something is left of peers that are gone")
    bystander.ping()


class Limits:
    """What the queues of an input may hold."""

    def __init__(self, options: CoreOptions) -> None:
        self.inflight = options.max_inflight_messages
        self.waiting = max(options.max_online_messages, options.max_offline_messages)
        if options.pause_publisher:
            self.waiting += 256  # a publisher that is to be paused finishes the chunk that it is at
        self.retained = 0

    def check(self, house: House) -> None:
        """Raises Violation if a queue holds more."""
        if house.registry.retained.count and not self.retained:
            # Those that a subscription brings join a stored queue beyond its limit: see
            # test_the_bursts_of_a_durable_session_are_bounded in tests/vmq/core/test_retained_burst.py.
            self.retained = 1000
        most = self.waiting + self.retained
        for subscriber in house.registry.subscribers.values():
            queue = subscriber.queue
            if queue.waiting() > most:
                raise Violation(f"{queue.waiting()} messages wait, the limit is {most}")
            if len(queue.inflight) > self.inflight:
                raise Violation(f"{len(queue.inflight)} messages are in flight")


class _Listener(logging.Handler):
    """Collects what a broker should never log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(logging.Formatter().format(record))


@contextmanager
def no_defects_logged() -> Iterator[None]:
    """Raises Violation at the end if the broker logged an error."""
    log, listener = logging.getLogger("vmq"), _Listener()
    log.addHandler(listener)
    try:
        yield
    finally:
        log.removeHandler(listener)
    if listener.seen:
        raise Violation("\n".join(listener.seen))
