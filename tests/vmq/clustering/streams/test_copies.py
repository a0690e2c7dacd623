"""Partitions that are given while several nodes take themselves for their owners: a seeded model of nodes and links.

What nodes do is as it is: `Handover`, `GivenCopies`, `RemotePartitions`, the writer and the log. Links keep their order
and take their time, records spread one by one, and anybody may claim the partition at any time.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.vmq.streams.support import batch_of, make, options, read_all, row
from vmq.clustering.messages.streams import AskCopy, CopyFound
from vmq.clustering.streams import copies, handover
from vmq.clustering.streams.copies import GivenCopies
from vmq.clustering.streams.handover import Handover
from vmq.clustering.streams.remote_partitions import RemotePartitions
from vmq.streams.log import writer as writing
from vmq.streams.log.keys import Keys
from vmq.streams.log.partition import Partition
from vmq.streams.log.writer import Commit, Item, PartitionWriter

NAMES = ("a", "b", "c")
KEYS = Keys(options())


class Node:
    """One node, in all the parts that `Handover` knows: a disk that is fast, a catalog of one stream, its records."""

    is_replicated, number, name, given_up = False, 1, "s", 0

    def __init__(self, folder: Path, own_name: str, world: "World") -> None:
        self.own_name, self.world = own_name, world
        self.record = (0, "a")
        self.partition = make(folder / own_name, segment_bytes=1)
        self.partitions = [self.partition]
        self.streams, self.members = {"s": self}, set(NAMES)
        self.appender = self.commits = self.writer = self.catalog = self.damage = self
        self.options, self.safe, self.keys = SimpleNamespace(replicas=1), [None], KEYS
        self.messages, self.handlers = 0, dict[type, Callable[[str, Any], None]]()
        #: It stands for whatever those parts ask of a whole node.
        self.all = cast("Any", self)
        self.copies = GivenCopies(self.all, self.all)
        self.places = RemotePartitions(self.all, self.all)
        self.handover = Handover(self.all, self.all, self.places, self.all, self.copies)

    # --- records, and where messages are held

    def owner(self, _stream: str, _number: int) -> str | None:
        return None if self.record[1] == self.own_name else self.record[1]

    def has_record(self, *_: object) -> bool:
        return False  # what is nowhere is given nowhere by itself

    def set_owner(self, _stream: str, _number: int, node: str) -> None:
        self.learn((max(self.record[0], self.world.time) + 1, node))
        for each in self.world.others(self):
            self.world.post(f"{self.own_name}>{each.own_name} records", each.learn, self.record)

    def learn(self, record: tuple[int, str]) -> None:
        self.record = max(self.record, record)
        if self.owner("s", 0) is None:
            self.partition.accept_copy()
        self.handover.look()

    def at(self, *_: object) -> None:
        return None

    def now(self) -> int:
        return 1

    def up(self) -> list[str]:
        return [each.own_name for each in self.world.others(self)]

    @contextmanager
    def own(self, *_: object) -> Iterator[int]:
        yield 1

    async def quiet(self, *_: object) -> None:
        await asyncio.sleep(0)

    # --- the disk

    def add(self, item: Item, _size: int) -> int:
        PartitionWriter().attempt(Commit([item], lambda: None))
        return 1

    def call(self, function: Callable[[], Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(function())
        return done

    async def wait(self) -> None:
        await asyncio.sleep(0)

    def put(self) -> None:
        """Takes a message, whose ever it is."""
        self.world.time += 1
        self.add(Item(self.partition, batch_of([row(self.world.time)]), KEYS), 0)
        self.handover.look()

    # --- links

    def on(self, kind: type, handle: Callable[[str, Any], None]) -> None:
        self.handlers[kind] = handle

    def send_quick(self, peer: str, message: Any) -> None:
        handle = self.world.nodes[peer].handlers[type(message)]
        self.world.post(f"{self.own_name}>{peer} quick", handle, self.own_name, message)

    def send(self, peer: str, rows: Any, done: Callable[[bool], None]) -> None:
        def take() -> None:
            self.world.nodes[peer].places.take_rows(self.own_name, rows)
            self.world.nodes[peer].handover.look()
            self.world.post(f"{peer}>{self.own_name}", done, True)

        self.world.post(f"{self.own_name}>{peer}", take)

    def introduce(self, *_: object) -> bool:
        return True

    has_room = introduce

    def flush(self) -> None: ...


class World:
    """Three nodes, and what is on its way between them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.time = Random(seed), 0
        self.links: dict[str, deque[Callable[[], None]]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.nodes = {name: Node(folder, name, self) for name in NAMES}

    def others(self, node: Node) -> list[Node]:
        return [each for each in self.nodes.values() if each is not node]

    def post(self, link: str, act: Callable[..., None], *about: Any) -> None:
        self.links.setdefault(link, deque()).append(lambda: act(*about))

    async def deliver(self) -> bool:
        """Has one link bring something; False if there is nothing."""
        busy = sorted(link for link, waiting in self.links.items() if waiting)
        if busy:
            self.links[self.random.choice(busy)].popleft()()
        for _ in range(self.random.randrange(1, 12)):
            await asyncio.sleep(0)
        return bool(busy)

    def happen(self, claims: float) -> None:
        """Something that may happen at any time: a message, a claim, a partition that is given away."""
        node = self.random.choice(list(self.nodes.values()))
        owns, chance = node.owner("s", 0) is None, self.random.random()
        if chance < claims:
            node.set_owner("s", 0, node.own_name)
        elif chance < 0.4 and (owns or claims):
            node.put()
        elif chance < 0.6 and owns:
            heir = self.random.choice(self.others(node)).own_name
            giving = node.handover._give(node.all, node.partition, heir)
            self.tasks.add(asyncio.get_running_loop().create_task(giving))

    def is_busy(self) -> bool:
        each = self.nodes.values()
        return any(node.handover._task or node.handover._timer for node in each) or any(
            not task.done() for task in self.tasks
        )

    async def run(self, claims: float) -> Counter[bytes]:
        """How many times each message is in the log in the end."""
        for _ in range(250):
            self.happen(claims)
            await self.deliver()
        while await self.deliver() or self.is_busy():
            pass
        await asyncio.gather(*self.tasks, return_exceptions=True)  # some were refused
        [owner] = {node.record[1] for node in self.nodes.values()}
        for node in self.others(self.nodes[owner]):
            assert node.partition.is_copy or node.partition.kept == node.partition.end
        log = self.nodes[owner].partition
        assert not log.is_copy
        return Counter(each["payload"] for each in read_all(log))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[list[int]]]:
    """Runs seeds; returns those that lose a message, or have one more often than so many times."""

    async def find(seeds: Iterable[int], claims: float = 0.05, most: int = 1_000_000) -> list[int]:
        loop, found = asyncio.get_running_loop(), []

        async def at_once(_: None, function: Callable[..., Any], *about: Any) -> Any:
            return function(*about)

        monkeypatch.setattr(loop, "run_in_executor", at_once)
        for seed in seeds:
            world = World(tmp_path / str(seed), seed)
            times = await world.run(claims)
            wanted = {row(number + 1)["payload"] for number in range(world.time)}
            if times.keys() != wanted or max(times.values(), default=0) > most:
                found.append(seed)
            for node in world.nodes.values():
                node.partition.close()
        return found

    monkeypatch.setattr(handover, "_AGAIN", 0.0)
    monkeypatch.setattr(handover, "_LAST", 3)
    monkeypatch.setattr(copies, "_AGAIN", 3600.0)
    return find


Model = Callable[..., Awaitable[list[int]]]


async def test_nothing_is_lost_whoever_claims_a_partition(model: Model) -> None:
    assert await model(range(10)) == []


async def test_with_one_owner_at_a_time_each_message_is_there_once(model: Model) -> None:
    assert await model(range(10), claims=0.0, most=1) == []


async def test_a_question_that_is_asked_again_is_answered_once() -> None:
    """However long the disk takes; and again, once it is answered: that answer may be lost."""
    disk, outboxes, of_b = Future[bool](), Mock(), Mock(is_replicated=False, partitions=[Mock()])
    of_b.appender.commits.writer.call.return_value = disk
    streams = Mock(catalog=Mock(streams={"s": of_b}), now=lambda: 1)
    given = GivenCopies(streams, outboxes)
    for _ in range(3):
        given._on_ask("a", AskCopy(7, "s", 0, 0, counts=False))
    disk.set_result(True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    outboxes.send_quick.assert_called_once_with("a", CopyFound(7, is_whole=True))
    given._on_ask("a", AskCopy(7, "s", 0, 0, counts=False))
    await asyncio.sleep(0)
    assert outboxes.send_quick.call_count == 2


async def asks_nobody(*_: object, **__: object) -> bool:
    return True


def makes_room(self: Partition, base: int, giver: str | None = None) -> None:
    self.giver = self.giver if giver is None else giver
    BEGIN_AT(self, base, giver)


BEGIN_AT = Partition.begin_at


@pytest.mark.parametrize(
    ("where", "rule", "without", "seed"),
    [
        pytest.param(GivenCopies, "is_whole", asks_nobody, 0, id="the giver asks before it deletes"),
        pytest.param(Partition, "begin_at", makes_room, 0, id="no copy goes over rows of its own"),
        pytest.param(
            writing, "takes_from", lambda place, giver: giver in (None, place.giver), 2,
            id="rows of its own go into no copy",
        ),
        pytest.param(Handover, "_gone", property(lambda _: None, lambda *_: None), 0, id="once"),
    ],
)  # fmt: skip
async def test_without_a_rule_messages_are_lost_or_there_twice(
    where: object, rule: str, without: object, seed: int, model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(where, rule, without, raising=False)
    how = {"claims": 0.0, "most": 1} if rule == "_gone" else {}
    assert await model([seed], **how) == [seed]
