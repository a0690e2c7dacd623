"""Durable queues over a real store: limits, order and restarts, against a model."""

import random
from pathlib import Path

import pytest

from tests.support import wire as mqtt
from tests.vmq.support import acknowledge
from tests.vmq.test_store_model import check_sizes, commit
from vmq.core.context import Core, CoreOptions
from vmq.core.output import Output
from vmq.core.queue import Queue
from vmq.core.waiting import PENDING_BYTES
from vmq.mqtt.message import Message
from vmq.store.entries import StoredSession
from vmq.store.lines import is_end
from vmq.store.opening import open_store, stored_sessions
from vmq.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def start(path: Path) -> Store:
    return open_store(path, "os", lambda: None)


def only(store: Store) -> StoredSession:
    (session,) = stored_sessions(store)
    return session


class Line:
    """One durable session's queue over a real store, and a client that acknowledges as told."""

    def __init__(
        self, store: Store, stored: StoredSession | None = None, options: CoreOptions | None = None
    ) -> None:
        self.options = options if options is not None else CoreOptions()
        self.store = store
        self.core = Core(self.options, store, lambda: 1.0, lambda: 1.0, lambda count: 0)
        self.woken = False
        session = store.create_session("dev") if stored is None else stored.number
        self.queue = Queue("dev", self.core, session, self.wake)
        self.output = Output(self.core.outbox)
        if stored is not None:
            self.queue.restore(stored.first, stored.last, stored.last_order)

    def wake(self, _queue: Queue) -> None:
        self.woken = True

    def settle(self) -> None:
        while self.woken:
            self.woken = self.queue.drain_step()
        commit(self.store)

    def go_online(self) -> None:
        self.output = Output(self.core.outbox)
        self.queue.go_online(self.output)
        self.settle()

    def go_offline(self) -> None:
        self.queue.go_offline()
        self.settle()

    def deliver(self, payload: bytes, qos: int, share: bool = False) -> None:
        message = Message(b"t", payload, qos, False)
        message.share = share
        self.queue.deliver(message, qos, False, "", self.core.nobody)
        self.settle()

    def take(self) -> list[tuple[int, bool, int, bytes]]:
        """What went to the client: (packet type, DUP, packet id, payload)."""
        buffer = bytearray(b"".join(self.output.pieces or ()))
        self.output.pieces = None
        taken = []
        for packet in mqtt.split_packets(buffer):
            payload = packet.payload if packet.type == mqtt.PUBLISH else b""
            taken.append((packet.type, packet.dup, packet.packet_id, payload))
        assert not buffer
        return taken


class Sent:
    """What the model knows of one message in flight."""

    def __init__(self, payload: bytes, qos: int, packet_id: int) -> None:
        self.payload = payload
        self.qos = qos
        self.packet_id = packet_id
        self.released = False


HEAVY = (1 << 20) // 3


class Model:
    """What a queue with these options has to do."""

    def __init__(self, options: CoreOptions) -> None:
        self.options = options
        self.online = False
        self.waiting: list[tuple[bytes, int]] = []
        self.inflight: list[Sent] = []
        self.dropped = 0

    def fits(self, payload: bytes) -> bool:
        """Whether the window has a place for a message: an empty one for any."""
        sent = [len(b"t") + len(each.payload) for each in self.inflight if not each.released]
        return not self.inflight or (
            len(self.inflight) < self.options.max_inflight_messages
            and sum(sent) + len(b"t") + len(payload) <= self.options.max_inflight_bytes
        )

    def deliver(self, payload: bytes, qos: int, full: bool) -> bool:
        """Takes a message; whether it is sent at once."""
        is_sent = self.online and not self.waiting and self.fits(payload)
        if not is_sent and full:
            self.dropped += 1
            if not self.options.drop_oldest:
                return False
            if self.waiting:
                del self.waiting[0]
        self.waiting.append((payload, qos))
        return is_sent

    def send(self, taken: list[tuple[int, bool, int, bytes]]) -> None:
        """What waits is sent as far as the window allows, in the right order."""
        count = 0
        end = -1 if self.options.lifo else 0
        while self.waiting and self.fits(self.waiting[end][0]):
            payload, qos = self.waiting.pop(end)
            kind, dup, packet_id, found = taken[count]
            assert (kind, dup, found) == (mqtt.PUBLISH, False, payload)
            assert packet_id not in {each.packet_id for each in self.inflight}
            self.inflight.append(Sent(payload, qos, packet_id))
            count += 1
        assert len(taken) == count

    def resend(self, taken: list[tuple[int, bool, int, bytes]]) -> None:
        """What is in flight is repeated; what waits follows.

        Each PUBLISH in the order of the first sending, each PUBREL in that of the PUBRECs; nothing
        is promised between the two.
        """
        count = len(self.inflight)
        repeated, rest = taken[:count], taken[count:]
        for is_released in (False, True):
            wanted = [
                (mqtt.PUBREL, False, each.packet_id, b"")
                if is_released
                else (mqtt.PUBLISH, True, each.packet_id, each.payload)
                for each in self.inflight
                if each.released is is_released
            ]
            assert [each for each in repeated if (each[0] == mqtt.PUBREL) is is_released] == wanted
        self.send(rest)


class Play:
    """A queue over a real store and its model, through one random history."""

    def __init__(self, path: Path, seed: int, options: CoreOptions, heavy: float = 0.0) -> None:
        self.heavy = heavy
        self.rng = random.Random(seed)
        self.path = path
        self.options = options
        self.line = Line(start(path), options=options)
        self.model = Model(options)
        self.made = 0
        self.dropped_before = 0
        self.restarts = 0
        commit(self.line.store)

    def deliver(self) -> None:
        line, rng = self.line, self.rng
        for _ in range(rng.choice((1, 1, 3, 12))):
            self.made += 1
            large = b"x" * 2000 if rng.random() < 0.1 else b""
            if rng.random() < self.heavy:
                large = b"x" * rng.choice((HEAVY, HEAVY, 4 * HEAVY))
            payload, qos = b"%d " % self.made + large, rng.choice((1, 2))
            limit = self.options.max_offline_messages
            waiting = line.queue.waiting()
            assert waiting == len(self.model.waiting)
            is_sent = self.model.deliver(payload, qos, 0 <= limit <= waiting)
            line.deliver(payload, qos, rng.random() < 0.2)
            if is_sent:
                self.model.send(line.take())
            else:
                assert line.take() == []

    def acknowledge(self) -> None:
        if not (self.model.online and self.model.inflight):
            return
        queue = self.line.queue
        index = 0 if self.rng.random() < 0.7 else self.rng.randrange(len(self.model.inflight))
        each = self.model.inflight[index]
        if each.qos == 1:
            acknowledge(queue, mqtt.puback_packet(each.packet_id))
        elif each.released:
            acknowledge(queue, mqtt.pubcomp_packet(each.packet_id))
        else:
            acknowledge(queue, mqtt.pubrec_packet(each.packet_id))
            each.released = True
            self.model.inflight.append(self.model.inflight.pop(index))
            self.line.settle()
            assert self.line.take() == [(mqtt.PUBREL, False, each.packet_id, b"")]
            return
        del self.model.inflight[index]
        self.line.settle()
        self.model.send(self.line.take())

    def connect(self) -> None:
        if self.model.online:
            self.line.go_offline()
            self.model.online = False
        else:
            self.line.go_online()
            self.model.online = True
            self.model.resend(self.line.take())

    def restart(self) -> None:
        """The process is killed; everything was committed."""
        self.restarts += 1
        self.dropped_before += self.line.queue.dropped
        self.line.store.db.close()
        store = start(self.path)
        self.line = Line(store, only(store), self.options)
        self.model.online = False

    def run(self, steps: int) -> None:
        acts = [self.deliver] * 8 + [self.acknowledge] * 16 + [self.connect] * 2 + [self.restart]
        for _ in range(steps):
            self.rng.choice(acts)()
            self.check()
        self.finish()

    def check(self) -> None:
        """What is counted is what is there, and memory holds a window of it, bounded."""
        queue = self.line.queue
        pending = queue.pending or ()
        assert queue.pending_bytes == sum(each.message.length() for each in pending)
        assert queue.pending_bytes <= PENDING_BYTES + max(
            (each.message.length() for each in pending), default=0
        )
        assert self.line.core.waiting_bytes == queue.droppable_bytes() == 0
        sent = [each for each in queue.inflight.values() if not each.released]
        assert queue.inflight_bytes == sum(each.message.length() for each in sent)
        assert queue.inflight_bytes <= self.options.max_inflight_bytes or len(sent) == 1
        check_sizes(self.line.store, self.restarts)

    def finish(self) -> None:
        """The client comes and stays: everything that is left arrives, and nothing stays behind."""
        if not self.model.online:
            self.connect()
        while self.model.inflight:
            self.acknowledge()
        assert self.model.waiting == []
        assert self.dropped_before + self.line.queue.dropped == self.model.dropped
        keys = [key for key, _ in self.line.store.db.iterator() if key[:1] in b"qimc"]
        left = [key for key in keys if not is_end(key)]
        assert left == []
        self.line.store.db.close()


def options_of(*, window: int, limit: int, lifo: bool, oldest: bool, step: int) -> CoreOptions:
    options = CoreOptions()
    options.max_inflight_messages = window
    options.max_online_messages = options.max_offline_messages = limit
    options.lifo = lifo
    options.drop_oldest = oldest
    options.max_msgs_per_drain_step = step
    return options


#: Where a queue has no limit nothing is dropped.
LIMITS = [(-1, False), (15, False), (15, True)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("lifo", (False, True))
@pytest.mark.parametrize(("limit", "oldest"), LIMITS)
def test_a_queue_against_a_model(
    path: Path, seed: int, lifo: bool, limit: int, oldest: bool
) -> None:
    window = (1, 3, 20)[(seed + lifo + oldest) % 3]
    step = (4, 100)[seed % 2]
    options = options_of(window=window, limit=limit, lifo=lifo, oldest=oldest, step=step)
    Play(path, seed, options).run(300)


@pytest.mark.parametrize("lifo", (False, True))
@pytest.mark.parametrize(("limit", "oldest"), LIMITS)
def test_a_queue_of_heavy_messages_against_a_model(
    path: Path, lifo: bool, limit: int, oldest: bool
) -> None:
    window = 2 if limit < 0 else 20
    options = options_of(window=window, limit=limit, lifo=lifo, oldest=oldest, step=100)
    Play(path, 1, options, 0.5).run(60)
