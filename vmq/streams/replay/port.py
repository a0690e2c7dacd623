"""The readers of streams as the core knows them: whoever subscribes to `$replay/FROM/FILTER` comes by here."""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, Final

from vmq.core.context import Core
from vmq.core.hook_sites import Pending
from vmq.core.ports import ReadersPort
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.mqtt.message import Transient
from vmq.mqtt.special import SpecialTopicError, is_group, is_read
from vmq.runtime.metrics import Family, Kind, Sample
from vmq.runtime.scheduling import share_interpreter
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.reader_places import CursorKey
from vmq.streams.replay.duty_cycle import Backlogs, DutyCycle, LiveTraffic
from vmq.streams.replay.groups import Groups, deleted
from vmq.streams.replay.keeping import HasPlace, Keeping
from vmq.streams.replay.member import GroupMember
from vmq.streams.replay.packets import PacketProcess
from vmq.streams.replay.replay import Readers, Replay, ReplayStart
from vmq.streams.replay.sending import ReplaySender
from vmq.streams.replay.starting import ReplayStarter, request_of

log = logging.getLogger("vmq.streams")

#: Replays of a broker, and of a client of it, at a time.
MOST: Final = 100
MOST_A_CLIENT: Final = 2
#: Seconds of a turn of the event loop that all of them may take.
TURN: Final = 0.00005
#: What they may take of the event loop's time while others have messages, and of that of one processor to read; and how
#: long they rest at most.
SENDING: Final = 1 / 100
READING: Final = 1 / 8
RESTS: Final = (0.1, 1.0)
#: Seconds that a timer of the event loop takes at least; a rest that is shorter is none.
SHORTEST: Final = 0.001
#: Threads that read for them, and their niceness.
_THREADS: Final = 2
NICENESS: Final = 10


def _give_way() -> None:
    """The event loop goes before this thread wherever they want the same processor."""
    nice = os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


class StreamReaders(ReadersPort):
    """The replays of a broker.

    Args:
        core: that of the broker.
        registry: the topic tree that streams are of.
        catalog: the streams.
        folder: where cursors are kept.
    """

    def __init__(self, core: Core, registry: Registry, catalog: Catalog, folder: Path) -> None:
        super().__init__()
        self.core = core
        self.registry = registry
        self.catalog = catalog
        self.threads = ThreadPoolExecutor(_THREADS, "vmq-replay", _give_way)
        self.keeping = Keeping(folder, self.all, catalog)
        catalog.on_shared = self.on_shared
        catalog.on_dropped = self.on_dropped
        live = LiveTraffic(self.traffic)
        self.packets = PacketProcess(live)
        backlogs = Backlogs()
        self.duty = DutyCycle(live, backlogs, SENDING, RESTS[0])
        reading = DutyCycle(live, backlogs, READING, RESTS[1])
        self.readers = Readers(self.threads, self.packets, reading)
        self.groups = Groups(core, catalog, self.keeping, self.readers)
        self.starter = ReplayStarter(core, catalog, self.threads, self.keeping)
        #: Those of each client that has or had any since it is connected, by filter.
        self.replays: dict[Queue, dict[str, Replay]] = {}
        self.by_number: dict[int, Replay] = {}
        self.numbers = count(1)
        #: Those that have something to send.
        self.ready: deque[Replay] = deque()
        self.is_due = False
        self.loop = asyncio.get_running_loop()
        self.rest: asyncio.TimerHandle | None = None
        #: What was found out for clients that are subscribing, or were.
        self.prepared: dict[Queue, dict[str, ReplayStart]] = {}
        #: Tells a cluster of the cursors that were here before it.
        self.sharing: asyncio.Task[None] | None = None
        self.messages = 0
        self.lost = 0

    def all(self) -> Iterator[HasPlace]:
        """Whose places are kept."""
        yield from self.by_number.values()
        yield from self.groups.all.values()

    def traffic(self) -> int:
        """Grows with each message that somebody else publishes, or gets."""
        counters = self.core.counters
        return counters.mqtt_publish_received + counters.router_matches_local

    # Subscribing

    def prepare(self, client: Any, topic_filter: str) -> Pending | None:
        queue: Queue = client.queue_of()
        if client.registry.mountpoint or topic_filter in self.replays.get(queue, ()):
            return None
        pending = Pending(lambda: None)

        def then(start: ReplayStart) -> None:
            if queue.online:
                self.prepared.setdefault(queue, {})[topic_filter] = start
            pending.finish(None)

        try:
            self.starter.find(
                queue, topic_filter, then, client.subscriber.find(topic_filter) is None
            )
        except SpecialTopicError:
            return None  # `grant` says why
        return pending

    def grant(self, client: Any, topic_filter: str, qos: int) -> int:
        queue: Queue = client.queue_of()
        granted = min(qos, 1)
        running = self.replays.get(queue, {}).get(topic_filter)
        if running is not None:  # the same again goes on where it is
            running.sender.qos = granted
            return granted
        start = self.prepared.get(queue, {}).get(topic_filter)
        flaw = self.flaw(client, queue, topic_filter) if start is None else start.error
        if flaw := flaw or self.limit(queue, topic_filter):
            self.prepared.get(queue, {}).pop(topic_filter, None)
            return self.refuse(client, topic_filter, flaw)
        if client.subscriber.find(topic_filter) is not None:
            # To the registry it is nothing new, but its replay has ended or is not there yet.
            self.core.call_soon(lambda: self.on_subscribed(queue, topic_filter))
        return granted

    def limit(self, queue: Queue, topic_filter: str) -> str:
        """Which limit is reached, if one is."""
        if is_group(topic_filter):
            return self.groups.limit()
        members = self.groups.members
        if len(self.by_number) - len(members) >= MOST:
            return f"{MOST} clients read history already"
        of_client = self.replays.get(queue, {}).values()
        if sum(each not in members for each in of_client) >= MOST_A_CLIENT:
            return f"a client has {MOST_A_CLIENT} replays at a time"
        return ""

    def flaw(self, client: Any, queue: Queue, topic_filter: str) -> str:
        """Why nothing was looked up."""
        if client.registry.mountpoint:
            return "streams keep no messages under a mountpoint"
        try:
            request = request_of(topic_filter, self.core.wall_clock())
            request.stream_of(self.catalog.streams)
        except SpecialTopicError as error:
            return str(error)
        return "it cannot be read now"

    def on_subscribed(self, queue: Queue, topic_filter: str) -> None:
        start = self.prepared.get(queue, {}).pop(topic_filter, None)
        if start is not None and queue.online:
            self.begin(queue, topic_filter, start)

    def begin(self, queue: Queue, topic_filter: str, start: ReplayStart) -> None:
        """Has a subscription read."""
        subscriber = self.registry.subscribers.get(queue.client_id)
        subscription = None if subscriber is None else subscriber.find(topic_filter)
        if subscription is None or topic_filter in self.replays.get(queue, ()):
            return
        if start.stream.gone:
            self.tell_of_end(queue, topic_filter, deleted(start.stream))
            return
        share_interpreter()  # with the threads that read
        number, qos = next(self.numbers), min(subscription.qos, 1)
        sender = ReplaySender(self.core, queue, number, qos, start.request.prefetch)
        told = self.on_ready, self.on_over
        if is_group(topic_filter):
            replay: Replay = self.groups.member(start, queue, topic_filter, sender, told)
        else:
            self.take_over(start)
            replay = Replay(start, queue, topic_filter, sender, self.readers, *told)
            self.tell_of_begin(replay)
        self.by_number[sender.number] = replay
        self.replays.setdefault(queue, {})[topic_filter] = replay
        self.keeping.begin()
        if isinstance(replay, GroupMember):
            self.groups.join(replay)
        else:
            replay.fill()

    def take_over(self, start: ReplayStart) -> None:
        """A cursor is one client's: whoever asks last goes on where the other one was."""
        if start.key is None or start.reader is None:
            return
        for other in list(self.by_number.values()):
            if other.key == start.key:
                self.on_over(other, "another client goes on with its cursor")
        if start.is_new:
            return
        known = self.keeping.unwritten_of(start.key, start.stream.ref, start.since)
        shared = self.keeping.found_in_cluster(start.key, start.stream.ref)
        if shared is not None and not shared.is_own:
            known = shared.place
        if known is not None:
            start.starts = start.reader.begin(start.request.start, known.positions)

    def tell_of_begin(self, replay: Replay) -> None:
        """The other nodes of a cluster are to know who reads by a cursor now."""
        if replay.key is not None and self.keeping.shared is not None:
            self.keeping.shared.take((replay.key, replay.stream.ref.text, replay.place()))

    def on_shared(self) -> None:
        """There is a cluster now, whose cursors these are."""
        shared = self.keeping.shared
        if shared is not None:
            shared.on_taken = self.on_taken
            shared.on_forgotten = self.keeping.forget_here
            for replay in self.by_number.values():
                if not isinstance(replay, GroupMember):
                    self.tell_of_begin(replay)
            self.sharing = self.loop.create_task(self.keeping.share())

    def on_taken(self, key: CursorKey, node: str) -> None:
        """A client of another node reads by a cursor now."""
        for replay in list(self.by_number.values()):
            if replay.key == key:
                self.on_over(replay, f"another client goes on with its cursor, at node {node}")

    def on_unsubscribed(self, queue: Queue, topic_filter: str) -> None:
        replay = self.replays.get(queue, {}).get(topic_filter)
        if replay is not None:
            self.end(replay)
            replay.sender.take_back()
        self.keeping.forget_session(queue, topic_filter)

    def on_online(self, queue: Queue) -> None:
        registry = self.core.registries.find(queue.mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(queue.client_id)
        for topic_filter in () if subscriber is None else list(subscriber.subscriptions):
            if is_read(topic_filter):
                self.resume(queue, topic_filter)

    def resume(self, queue: Queue, topic_filter: str) -> None:
        """A durable session that reads is here again."""

        def then(start: ReplayStart) -> None:
            if start.error:
                self.tell_of_end(queue, topic_filter, start.error)
            elif queue.online:
                self.begin(queue, topic_filter, start)

        try:
            self.starter.find(queue, topic_filter, then, is_new=False)
        except SpecialTopicError as error:
            self.tell_of_end(queue, topic_filter, str(error))

    def on_offline(self, queue: Queue) -> None:
        self.prepared.pop(queue, None)
        replays = self.replays.pop(queue, None)
        if replays is None:
            return
        for delivery in queue.inflight.values():
            if isinstance(delivery, Transient):
                queue.take_back(delivery)
        for run in queue.inflight.all_runs():
            queue.take_back_run(run)
        for replay in list(replays.values()):
            self.end(replay)

    # Sending

    def on_ready(self, replay: Replay) -> None:
        """A replay may have something to send."""
        if not replay.is_due and replay.sender.is_ready():
            replay.is_due = True
            self.ready.append(replay)
        if replay.is_due and not (self.rest is not None and replay.is_behind):
            self.schedule()

    def schedule(self) -> None:
        """Has the next turn come: soon, or when others have been given way to."""
        if self.is_due:
            return
        if self.rest is not None:
            self.rest.cancel()
            self.rest = None
        wait = self.duty.wait(self.core.clock()) if self.duty.is_shared else 0.0
        if wait and all(each.is_behind for each in self.ready):
            self.rest = self.loop.call_later(max(wait, SHORTEST), self.turn)
        else:
            self.is_due = True
            self.core.call_soon(self.turn)

    def turn(self) -> None:
        """Sends for a part of a turn of the event loop: one after the other, each a bit."""
        self.is_due, self.rest = False, None
        ready = self.ready
        now = self.core.clock()
        until = now + TURN
        rests = self.duty.wait(now) >= SHORTEST
        is_history = False
        began = time.thread_time() if self.duty.is_shared else 0.0
        for _ in range(len(ready)):
            replay = ready.popleft()
            if rests and replay.is_behind and not replay.is_over:
                ready.append(replay)
                continue
            replay.is_due = False
            if replay.is_over or not self.groups.may_send(replay):
                continue
            is_history |= replay.is_behind
            self.step(replay, until)
            if self.core.clock() >= until:
                break
        self.core.outbox.flush()
        if began and is_history:
            self.duty.spend(time.thread_time() - began)
        if ready:
            self.schedule()

    def step(self, replay: Replay, until: float) -> None:
        """Has one send a bit."""
        before = replay.sender.messages
        more = replay.step(until)
        self.messages += replay.sender.messages - before
        if more:
            replay.is_due = True
            self.ready.append(replay)
        if isinstance(replay, GroupMember):
            self.groups.on_moved(replay.group)
        else:
            self.keeping.on_moved(replay)

    def on_unblocked(self, queue: Queue) -> None:
        for replay in self.replays.get(queue, {}).values():
            self.on_ready(replay)

    def on_settled(self, queue: Queue) -> None:
        for replay in list(self.replays.get(queue, {}).values()):
            if not replay.sender.has_news:
                continue
            replay.sender.has_news = False
            if isinstance(replay, GroupMember):
                self.groups.on_acknowledged(replay)
            else:
                self.keeping.on_moved(replay)
            self.on_ready(replay)

    def on_committed(self) -> None:
        """Streams have more."""
        for replay in list(self.by_number.values()):
            replay.look()

    # The end

    def on_over(self, replay: Replay, why: str) -> None:
        """A replay cannot go on."""
        self.tell_of_end(replay.queue, replay.topic_filter, why)
        self.end(replay)

    def on_dropped(self, stream: Stream) -> None:
        """A stream was deleted."""
        for replay in list(self.by_number.values()):
            if replay.stream is stream and not isinstance(replay, GroupMember):
                self.on_over(replay, deleted(stream))
        self.groups.on_dropped(stream)
        self.keeping.forget_stream(stream.ref)

    def end(self, replay: Replay) -> None:
        """Ends one; its subscription stays as it is."""
        replay.stop()
        self.lost += replay.reader.lost
        self.by_number.pop(replay.sender.number, None)
        self.replays.get(replay.queue, {}).pop(replay.topic_filter, None)
        if isinstance(replay, GroupMember):
            self.groups.leave(replay)
        else:
            self.keeping.leave(replay)

    def tell_of_end(self, queue: Queue, topic_filter: str, why: str) -> None:
        log.warning(
            'replay ended client=%s filter="%s": %s', queue.client_id, topic_filter[:200], why
        )

    async def stop(self) -> None:
        """Keeps how far cursors are, and reads no more."""
        self.core.readers = ReadersPort()
        for replay in list(self.by_number.values()):
            self.end(replay)
        self.groups.stop()
        if self.sharing is not None:
            self.sharing.cancel()
        await self.keeping.stop()
        self.starter.stop()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.packets.close()

    def families(self) -> Iterator[Family]:
        """The figures."""
        lost = self.lost + sum(each.reader.lost for each in self.by_number.values())
        failed = self.starter.expressions.failed
        figures: tuple[tuple[str, Kind, str, int], ...] = (
            (
                "stream_replays",
                "gauge",
                "Replays of history to clients of MQTT.",
                len(self.by_number) - len(self.groups.members),
            ),
            (
                "stream_replay_messages",
                "counter",
                "Messages that replays have sent.",
                self.messages,
            ),
            (
                "stream_replay_lost",
                "counter",
                "Messages that retention deleted before replays came to them.",
                lost,
            ),
            (
                "stream_replay_unfit",
                "counter",
                "Messages for which an expression of a replay was neither true nor false.",
                failed,
            ),
        )
        for name, kind, text, value in figures:
            yield Family(name, kind, text, (Sample((), value),))
        yield from self.groups.families()
