"""Messages that wait where they were published while their partition goes from one node to another.

Messages of one key are to be in the log in the order in which a node took them, though those before a change of the
owner go to the old one, and those behind it to the new one. So the old owner asks every node to **hold** the partition:
what is published there waits in memory, unacknowledged, and the node says so on the outbox that all its earlier
messages for the partition are on. When the old owner has heard that of all that are up, it has all that was sent, gives
the last rows to the next owner, and says in the metadata who that is; each node that sees it sends what waits to the
new owner. A node that does not answer is not waited for long: its messages may come out of order then, but none is
lost.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import HoldPartition, PartitionHeld
from vmq.core.context import Core
from vmq.core.on_commit import OnCommit
from vmq.core.output import Output
from vmq.disk.durable import Confirmations

if TYPE_CHECKING:
    from vmq.streams.catalog import Stream

log = logging.getLogger("vmq.cluster")

#: Seconds that the owner waits for the others.
PATIENCE: Final = 3.0
#: Seconds until it asks again.
_AGAIN: Final = 0.5
#: Seconds that messages wait without another word of the owner.
LONGEST: Final = 10.0
#: Bytes of messages that wait for one partition; more are not taken.
LIMIT: Final = 32 << 20
#: Bytes that a message counts for beside its topic and payload.
_ENVELOPE: Final = 200

Key = tuple[str, int]


class Appends(Protocol):
    """Where messages that waited go on."""

    @property
    def stream(self) -> "Stream": ...

    def place(self, message: "HeldMessages") -> int:
        """Gives a message to its partition; returns the commit that its acknowledgement waits for."""


class HeldMessages(NamedTuple):
    """Messages of one client and topic that wait, and the acknowledgement that does."""

    tap: "Appends"
    topic: bytes
    payloads: list[bytes]
    qos: int
    retain: bool
    client_id: str
    time: int
    wait: Confirmations | None


class _Held:
    """One partition that is held, on the word of its owner."""

    def __init__(self, by: str, number: int) -> None:
        self.by = by
        self.number = number
        self.waiting: list[HeldMessages] = []
        self.size = 0
        #: Connections that read no more meanwhile.
        self.paused: list[Output] = []
        self.timer: asyncio.TimerHandle | None = None


class PartitionOwners(Protocol):
    """Who owns what."""

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""

    def on_held(self) -> None:
        """Messages of another set of partitions wait."""


class PartitionHolds:
    """The partitions that one node holds, and those that it asks others to hold. Made in the event loop."""

    def __init__(self, name: str, core: Core, outboxes: Outboxes, placed: PartitionOwners) -> None:
        self._name = name
        self._core = core
        self._outboxes = outboxes
        self._placed = placed
        self._loop = asyncio.get_running_loop()
        self._held: dict[Key, _Held] = {}
        #: Who has not answered yet, by the number of the question.
        self._asked: dict[int, set[str]] = {}
        self._last = int(core.wall_clock() * 1000)  # above those of an earlier life
        self._news = asyncio.Event()
        #: Times that messages went on though another node had not said what becomes of their partition.
        self.given_up = 0

    # --- what waits

    def holds(self, stream: str, partition: int) -> bool:
        """Whether messages for a partition have to wait."""
        return bool(self._held) and (stream, partition) in self._held

    def holds_any(self, stream: str) -> bool:
        """Whether messages for any partition of a stream have to wait."""
        return any(key[0] == stream for key in self._held)

    def has_room(self, stream: str, partition: int, size: int) -> bool:
        """Whether so many bytes may wait, too."""
        return self._held[stream, partition].size + size + _ENVELOPE <= LIMIT

    def keep(
        self,
        tap: "Appends",
        partition: int,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        publisher: Output | None,
    ) -> bool:
        """Has messages wait, and their acknowledgement with them; False if there is no room.

        The client that published them is read no further.
        """
        held = self._held[tap.stream.name, partition]
        size = sum(map(len, payloads)) + (len(topic) + _ENVELOPE) * len(payloads)
        if held.size + size > LIMIT:
            return False
        held.size += size
        wait = None
        if publisher is not None:
            if publisher not in held.paused:
                held.paused.append(publisher)
                publisher.pause()
            if qos:
                wait = publisher.confirmations()
                wait.expect()
        held.waiting.append(HeldMessages(tap, topic, payloads, qos, retain, client_id, time, wait))
        return True

    # --- where another node is the owner

    def on_hold(self, peer: str, asked: HoldPartition) -> None:
        """The owner of a partition asks to hold it; again and again, until it has an answer."""
        key = (asked.stream, asked.partition)
        held = self._held.get(key)
        if not asked.seconds:
            if held is not None and held.by == peer:
                self._end(key)
            return
        if self._placed.owner(*key) == peer:
            if held is not None and (held.by, held.number) == (peer, asked.number):
                return  # the answer is under way
            self._begin(key, peer, asked.number, min(asked.seconds, LONGEST))
        self._outboxes.send(peer, PartitionHeld(asked.number))

    def on_held(self, peer: str, answer: PartitionHeld) -> None:
        """A peer holds what it was asked to."""
        asked = self._asked.get(answer.number)
        if asked is not None:
            asked.discard(peer)
            self._news.set()

    def look(self) -> None:
        """Owners may have changed: what waits for another one than it was held by goes on."""
        for key, held in list(self._held.items()):
            if (self._placed.owner(*key) or self._name) != held.by:
                self._end(key)

    def on_down(self, peer: str) -> None:
        """A node cannot be reached: what it holds goes on, and nobody waits for its answer."""
        self._news.set()
        for key, held in list(self._held.items()):
            if held.by == peer:
                self._end(key)

    def close(self) -> None:
        """Nothing waits any more: the broker stops."""
        for key in list(self._held):
            self._end(key)

    # --- where this node is the owner

    @contextmanager
    def own(self, stream: str, partition: int, peers: Callable[[], Iterable[str]]) -> Iterator[int]:
        """A partition of this node is held here, and goes on in the end; gives the number by which `quiet` asks."""
        key = (stream, partition)
        self._last = number = self._last + 1
        self._begin(key, self._name, number, 0.0)
        try:
            yield number
        finally:
            if (
                self._placed.owner(stream, partition) is None
            ):  # it stays here, and nobody hears of a new owner
                for peer in peers():
                    self._outboxes.send_quick(peer, HoldPartition(stream, partition, number, 0.0))
            if key in self._held:
                self._end(key)

    async def quiet(
        self, stream: str, partition: int, number: int, peers: Callable[[], Iterable[str]]
    ) -> None:
        """Returns when the nodes that are up hold a partition, and what they had sent is here; or after `PATIENCE`."""
        self._asked[number] = asked = set(peers())
        try:
            async with asyncio.timeout(PATIENCE):
                while waited := asked & set(peers()):
                    for peer in waited:
                        self._outboxes.send_quick(
                            peer, HoldPartition(stream, partition, number, LONGEST)
                        )
                    self._news.clear()
                    try:
                        async with asyncio.timeout(_AGAIN):
                            await self._news.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            self.given_up += 1
            log.warning(
                "stream=%s partition=%d: what comes from %s may be out of order: no answer",
                stream,
                partition,
                " ".join(sorted(asked)),
            )
        finally:
            del self._asked[number]

    # --- how it is done

    def _begin(self, key: Key, by: str, number: int, seconds: float) -> None:
        held = self._held.get(key)
        if held is None:
            self._held[key] = held = _Held(by, number)
            self._placed.on_held()
        held.by, held.number = by, number
        if held.timer is not None:
            held.timer.cancel()
        held.timer = self._loop.call_later(seconds, partial(self._late, key)) if seconds else None

    def _late(self, key: Key) -> None:
        log.warning("stream=%s partition=%d: its owner is silent, messages go on", *key)
        self.given_up += 1
        self._end(key)

    def _end(self, key: Key) -> None:
        """What waits goes on, in order."""
        held = self._held.pop(key)
        for each in held.waiting:
            commit = each.tap.place(each)
            if each.wait is not None:
                self._confirm(each, each.wait, commit)
        self._stop(held)
        self._placed.on_held()
        self._outboxes.flush()

    def _confirm(self, message: HeldMessages, wait: Confirmations, commit: int) -> None:
        """Confirms messages once the log that has them, or the store that sends them on, is safe."""
        core = self._core
        assert core.store is not None, "a node has a store"
        kept = OnCommit(core.outbox, core.store)
        if commit > 0:
            appender = message.tap.stream.appender
            kept.answer_after(appender.safe_of(message.topic, message.client_id), commit)
        kept.after(wait.confirm)

    def _stop(self, held: _Held) -> None:
        if held.timer is not None:
            held.timer.cancel()
        for output in held.paused:
            output.resume()
