"""The producers of one node, and how their batches come to leaders: to this node's own groups, or to another node's."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmq.clustering.delivery.backlog import Backlog
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.pace import Pace
from vmq.clustering.messages.raft import GroupEnvelope, Produce, Produced
from vmq.clustering.raft.appender import ReplicatedAppender
from vmq.clustering.raft.dotted import DottedProducer, DottedRow
from vmq.clustering.raft.groups.passes import LoopPasses
from vmq.clustering.raft.kept import KeptMessages, gathering_of, produce, size_of
from vmq.clustering.raft.places import Key, Places
from vmq.clustering.raft.produce import REFUSED, Sent, Take
from vmq.clustering.raft.producer import Producer
from vmq.clustering.raft.records import node_of
from vmq.core.output import Output
from vmq.runtime.metrics import Family, Sample
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.messages import Mark

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog, Stream

#: Microseconds that a row's time may be ahead of its leader's clock.
_AHEAD: Final = 300_000_000
#: Questions of which the answer may still come.
_MOST: Final = 10_000


class Roads:
    """The producers. In the event loop.

    Args:
        groups: this node's.
        places: where partitions are.
        catalog: the streams.
        outboxes: to the other nodes.
        wall_clock: seconds since 1970.
        limit: bytes that may wait for leaders.
        folder: where this node keeps what it has acknowledged without a quorum.

    Raises:
        OSError: the disk.
    """

    def __init__(
        self,
        groups: LoopPasses,
        places: Places,
        catalog: "Catalog",
        outboxes: Outboxes,
        wall_clock: Callable[[], float],
        limit: int,
        folder: Path,
    ) -> None:
        self._groups = groups
        self._places = places
        self._catalog = catalog
        self._outboxes = outboxes
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()
        self._producers: dict[Key, Producer] = {}
        self._dotted: dict[Key, DottedProducer] = {}
        self.backlog = Backlog(limit)
        self._kept = KeptMessages(folder, self._in_loop)
        self._appenders: dict[str, ReplicatedAppender] = {}
        #: Streams whose messages wait for earlier ones that go another way.
        self._held: set[str] = set()
        self.soon = Pace(self.now, self.later).soon
        self._questions: dict[int, Callable[[int], None]] = {}
        self._question = 0
        #: Rows whose times were too far ahead.
        self._clamped = 0
        self._is_closed = False
        self._restore()

    def close(self) -> None:
        """Nothing is handed in any more."""
        self._is_closed = True
        for _, each in self._all():
            each.close()
        self._kept.close()

    def _restore(self) -> None:
        """What an earlier life of this node has acknowledged without a quorum is handed in. Raises `OSError`."""
        for key, group, sent in list(self._kept.found()):
            producer = self.producer(*key)
            if producer is None:
                self._kept.keeper(key, is_synced=True).drop()  # there is no such stream any more
            else:
                producer.restore(group, sent)

    def _in_loop(self, what: Callable[[], None]) -> None:
        """In another thread: has something called in the loop."""
        try:
            self._loop.call_soon_threadsafe(self._run, what)
        except RuntimeError:
            pass  # the broker has ended

    # --- the write side of streams

    def tap(self, stream: "Stream") -> ReplicatedAppender:
        """The write side of a stream."""
        found = self._appenders.get(stream.name)
        if found is None or found.stream is not stream or found.options is not stream.options:
            find = self.producer, self.dotted
            found = ReplicatedAppender(stream, *find, self._places.is_here)
            self._appenders[stream.name] = found
            for (name, _), producer in self._all():
                if name == stream.name:
                    producer.acks = stream.options.acknowledged_by
                    producer.keeps = producer.may_keep and stream.options.without_quorum == "keep"
        return found

    def append_rows(
        self,
        stream: "Stream",
        number: int,
        rows: Gathering,
        size: int,
        done: Callable[[bool], None],
    ) -> None:
        """Has rows of one partition in the log; `done` says whether they are as safe as the stream asks."""
        producer = self.producer(stream.name, number)
        if producer is None or not producer.has_room(size):
            done(False)
            return
        stream.appender.messages += len(rows.topics)
        wanted = producer.add(rows, size)
        producer.when_safe(wanted, lambda: done(True))

    async def written(self) -> None:
        """Returns when what was taken so far is as safe as its streams ask."""
        waiting = []
        for _, producer in self._all():
            if producer.waiting:
                done: asyncio.Future[bool] = self._loop.create_future()
                producer.when_safe(producer.taken, partial(_settle, done))
                waiting.append(done)
        if waiting:
            await asyncio.wait(waiting)

    def producer(self, stream: str, number: int) -> Producer | None:
        """The producer of a partition, which may have no place yet; None: there is none, or the broker ends."""
        key = (stream, number)
        found = self._producers.get(key)
        if found is None and (known := self._known(stream)) is not None:
            is_synced = known.options.durability == "fsync"
            given = *self._given(known, key), self._kept.keeper(key, is_synced)
            found = self._producers[key] = Producer(*given)
            found.keeps = known.options.without_quorum == "keep"
            found.is_held = stream in self._held
        return found

    def dotted(self, stream: str, number: int) -> DottedProducer | None:
        """The producer of a partition for rows with dots; None as of `producer`."""
        key = (stream, number)
        found = self._dotted.get(key)
        if found is None and (known := self._known(stream)) is not None:
            found = self._dotted[key] = DottedProducer(*self._given(known, key))
            found.is_held = stream in self._held
        return found

    def _known(self, stream: str) -> "Stream | None":
        return None if self._is_closed else self._catalog.streams.get(stream)

    def _given(
        self, stream: "Stream", key: Key
    ) -> "tuple[str, str, Roads, Callable[[int], None], Backlog]":
        """What both are made of."""
        place = self._places.places.get(key)
        group, acks = "" if place is None else place.group, stream.options.acknowledged_by
        return group, acks, self, partial(self._lose, stream.name), self.backlog

    def add_row(
        self,
        address: str,
        number: int,
        row: DottedRow,
        publisher: Output | None,
        then: Callable[[], None],
    ) -> None:
        """Has a row in the log once, where `ReplicatedAppender.reserve` said; `then` follows when it is safe."""
        stream, partition, store, boot = address.split("\0")
        producer = self.dotted(stream, int(partition))
        if producer is not None:
            wanted = producer.add_row((store, boot, number), row, publisher)
            producer.when_safe(wanted, then)
        elif stream not in self._catalog.streams:
            then()  # it was deleted

    def _of(self, key: Key) -> list[Producer]:
        found = self._producers.get(key), self._dotted.get(key)
        return [each for each in found if each is not None]

    def _all(self) -> Iterator[tuple[Key, Producer]]:
        yield from self._producers.items()
        yield from self._dotted.items()

    def hold(self, stream: str) -> None:
        """What is taken for a stream from now on waits until `let_go`."""
        self._held.add(stream)

    def let_go(self, stream: str) -> None:
        """Nothing goes before it any more."""
        self._held.discard(stream)
        for (name, _), producer in self._all():
            if name == stream:
                producer.is_held = False
                producer.flush()

    def _lose(self, stream: str, count: int) -> None:
        known = self._catalog.streams.get(stream)
        if known is not None:
            known.appender.refuse(1, count)

    def follow(self, keys: Collection[Key] | None = None) -> None:
        """Partitions (None: all) have other places: what waits goes to the group of now, or nowhere."""
        wanted = {key for key, _ in self._all()} if keys is None else keys
        for key in wanted:
            place = self._places.places.get(key)
            is_gone = key[0] not in self._catalog.streams
            for producer in self._of(key):
                if is_gone:
                    producer.give_up()
                elif place is not None and place.group != producer.group:
                    producer.move_to(place.group)
            if is_gone:
                self._producers.pop(key, None)
                self._dotted.pop(key, None)

    def led(self, group: str) -> None:
        """There is news of a group's leader."""
        key = self._places.keys.get(group)
        for found in () if key is None else self._of(key):
            found.led()

    # --- what producers ask

    @property
    def store(self) -> str:
        return self._places.name

    def boot(self) -> str:
        return self._groups.boot()

    def now(self) -> float:
        return self._loop.time()

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self._loop.call_later(seconds, self._run, what)

    def _run(self, what: Callable[[], None]) -> None:
        if not self._is_closed:
            what()
            self._outboxes.flush()

    def candidates(self, group: str) -> list[str]:
        return self._places.candidates(group)

    def hand_in(
        self, group: str, to: str, sent: Sent, early: bool, answer: Callable[[int], None]
    ) -> bool:
        if to == self._places.name:
            self._take(group, sent.mark, sent.rows, sent.size, early, answer)
            return True
        self._question += 1
        message = produce(self._question, group, sent, early)
        self._groups.tell_leader(group)
        if not self._outboxes.send_at_once(node_of(to), message):
            return False
        self._questions[self._question] = answer
        sent.question = self._question
        if len(self._questions) > _MOST:
            del self._questions[next(iter(self._questions))]
        return True

    def _take(
        self,
        group: str,
        mark: Mark,
        rows: Gathering,
        size: int,
        early: bool,
        answer: Callable[[int], None],
    ) -> None:
        latest = int(self._wall_clock() * 1_000_000) + _AHEAD
        if rows.times and max(rows.times) > latest:
            # A clock a year ahead would keep its segment for ever.
            for place, each in enumerate(rows.times):
                if each > latest:
                    rows.times[place] = latest
                    self._clamped += 1
        self._groups.take(Take(group, mark, rows, size, early, self._groups.in_loop(answer)))

    def carry(self, peer: str, raw: bytes) -> None:
        """Hands what this node's groups say to the node of a member."""
        self._outboxes.send_at_once(node_of(peer), GroupEnvelope(raw))

    def on_committed(self, group: str, own: Sequence[Mark]) -> None:
        """The copy here knows that rows of this node are committed: their leader need not say so."""
        key = self._places.keys.get(group)
        for producer in () if key is None else self._of(key):
            if producer.group == group:
                for sent in producer.confirm(own):
                    self._questions.pop(sent.question, None)

    # --- what others send

    def on_produced(self, message: Produced) -> None:
        """What became of rows that were handed in."""
        answer = self._questions.pop(message.question, None)
        if answer is not None:
            answer(message.status + message.left_out)

    def on_produce(self, peer: str, message: Produce) -> None:
        """A node hands in rows of its own."""
        if node_of(message.store.removeprefix(DOTTED)) != peer:
            return
        rows = gathering_of(message)
        mark = Mark(message.store, message.boot, message.first, len(rows.topics))

        def answer(status: int) -> None:
            left_out = max(0, status - REFUSED)
            produced = Produced(message.question, status - left_out, left_out=left_out)
            self._outboxes.send_at_once(peer, produced)

        self._take(message.group, mark, rows, size_of(rows), message.early, answer)

    # --- what is shown

    def problems(self) -> Iterator[str]:
        """What waits for leaders, if that is much, and what only this node has."""
        backlog = self.backlog
        if backlog.size > backlog.limit // 2:
            yield (
                f"messages that wait for leaders of streams take {backlog.size} of {backlog.limit} bytes "
                "(cluster.leader_buffer_bytes): publishers are not read, or disconnected"
            )
        for (name, number), producer in self._producers.items():
            if producer.kept > 0:
                yield (
                    f"stream {name!r}, partition {number}: {producer.kept} messages that are acknowledged are on this "
                    "node alone, until it has a quorum"
                )
        if self._kept.failure:
            yield f"what has no quorum cannot be kept: {self._kept.failure}"

    def families(self) -> Iterator[Family]:
        """What waits for leaders, and what only this node has, for metrics."""
        kept = sum(max(0, each.kept) for each in self._producers.values())
        for name, value, text in (
            (
                "stream_replica_wait_bytes",
                self.backlog.size,
                "Bytes of messages that wait until replicas have them.",
            ),
            (
                "stream_kept_messages",
                kept,
                "Messages that are acknowledged and on this node alone, until their partition has a quorum.",
            ),
        ):
            yield Family(name, "gauge", text, (Sample((), value),))
        text = "Messages for replicated streams whose time was more than 5 minutes ahead of this node's clock."
        yield Family("stream_times_clamped", "counter", text, (Sample((), self._clamped),))


def _settle(done: "asyncio.Future[bool]") -> None:
    if not done.done():
        done.set_result(True)
