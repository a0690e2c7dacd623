"""Programs in groups, by the words of docs/streams.md: walks with answers that are late or lost, and what is bad."""

import asyncio
import threading
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.simulator.seeds import over_seeds
from tests.vmq.streams.support import options
from vmq.streams.flight import groups
from vmq.streams.flight import groups as flight_groups
from vmq.streams.flight.access import Access, Anybody
from vmq.streams.flight.tickets import BadTicketError
from vmq.streams.log.errors import PassingError, StreamError
from vmq.streams.replay import group as module
from vmq.streams.replay.groups import Groups
from vmq.streams.replay.replay import ReplayStart
from vmq.streams.serving.programs import Judged, Programs
from vmq.streams.staging.parts import Staging

PARTITIONS = 3
ASKED = groups.JoinQuery(stream="s", group="g", start="earliest")


def begin(start: ReplayStart, stream: Any) -> None:
    """Where a group begins that is new."""
    start.starts = {each.number: 0 for each in stream.partitions}


class World:
    """A broker's groups, whose clock is the test's, and programs that are their members."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        core = SimpleNamespace(clock=lambda: self.now, wall_clock=lambda: self.now)
        partitions = [
            SimpleNamespace(number=at, earliest=0, end=1 << 40) for at in range(PARTITIONS)
        ]
        stream = SimpleNamespace(
            name="s", partitions=partitions, options=options(), ref=None, gone=False
        )
        catalog = SimpleNamespace(places=None, groups=None, streams={"s": stream})
        keeping: Any = SimpleNamespace(
            unwritten_of=lambda _key, _stream, _since: self.kept,
            on_moved=lambda _group: None,
            leave=self.keep,
            write=self.write,
            begin=lambda: None,
        )
        self.kept: Any = None
        self.groups = Groups(core, catalog, keeping, None)  # type: ignore[arg-type]
        readers: Any = SimpleNamespace(
            core=core, catalog=catalog, groups=self.groups, keeping=keeping
        )
        sinks: Any = SimpleNamespace(staging=Staging(Path("nowhere")))
        self.programs = Programs(readers, sinks)
        self.programs.look = begin  # type: ignore[method-assign]
        self.members: list[Member] = []
        self.names = count()
        #: How far the group is, by what was answered.
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.rows = 0

    def keep(self, group: Any) -> None:
        self.kept = group.place()

    async def write(self, group: Any) -> None:
        self.keep(group)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.programs.look_at_all()
        for group in list(self.groups.all.values()):
            group.look()
        for member in self.members:
            member.hear()
        self.one_owner()

    def one_owner(self) -> None:
        """At any time one program at most may hand over rows of a partition."""
        for number in range(PARTITIONS):
            owners = [each.name for each in self.members if each.may_hand_over(number)]
            assert len(owners) < 2, f"at {self.now}: {number} is {owners}'s"

    def stop(self) -> None:
        self.groups.stop()
        if self.programs.timer is not None:
            self.programs.timer.cancel()


class Part:
    def __init__(self, generation: int, start: int) -> None:
        self.generation = generation
        self.position = start
        self.first = -1
        self.is_leaving = False


class Member:
    """A program: what it knows, and what it does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.number = next(world.names)
        self.name = ""
        self.parts: dict[int, Part] = {}
        self.lease_until = 0.0
        #: Answers on their way: when they come, when the question left, and what was committed by it.
        self.answers: list[tuple[float, float, groups.GroupAnswer, dict[int, int]]] = []

    def may_hand_over(self, number: int) -> bool:
        part = self.parts.get(number)
        return part is not None and not part.is_leaving and self.world.now < self.lease_until

    def hand_over(self) -> None:
        for number, part in self.parts.items():
            if self.may_hand_over(number):
                assert part.position >= self.world.committed[number], "a committed row comes again"
                part.first = part.position if part.first < 0 else part.first
                part.position += self.world.random.randrange(1, 4)
                self.world.rows += 1

    async def join(self) -> None:
        judged = Judged(Anybody(), [], self.world.now)
        self.send(await self.world.programs.join(judged, None, ASKED), {})

    async def beat(self, commits: bool) -> None:
        if self.answers or not self.name:
            return
        done = {n: part.position for n, part in self.parts.items() if commits and part.first >= 0}
        asked = groups.BeatQuery(
            member=self.name,
            has={n: p.first for n, p in self.parts.items() if p.first >= 0 and n not in done},
            commit={n: (self.parts[n].generation, position) for n, position in done.items()},
            back={n: part.generation for n, part in self.parts.items() if part.is_leaving},
        )
        if self.world.random.random() < 0.1:
            return  # the question is lost
        try:
            answer = await self.world.programs.beat(None, asked, still_may=True)
        except groups.UnknownMemberError:
            self.name, self.lease_until = "", 0.0
            self.parts.clear()
            return
        for number, position in done.items():
            if number not in answer.fenced:
                assert position >= self.world.committed[number]
                self.world.committed[number] = position
        self.send(answer, done)

    def send(self, answer: groups.GroupAnswer, done: dict[int, int]) -> None:
        random, now = self.world.random, self.world.now
        if random.random() < 0.1 and self.name:
            return  # it is lost
        delay = random.uniform(2, 8) if random.random() < 0.1 else random.uniform(0, 0.1)
        self.answers.append((now + delay, now, answer, done))

    def hear(self) -> None:
        """Takes up an answer that has come."""
        if not self.answers or self.answers[0][0] > self.world.now:
            return
        _, sent, answer, done = self.answers.pop()
        self.name = answer.member
        self.lease_until = sent + answer.lease
        for number in done:
            if number in self.parts and number not in answer.fenced:
                self.parts[number].first = -1
        for number, part in list(self.parts.items()):
            given = answer.partitions.get(number)
            if given is None or given.generation != part.generation:
                del self.parts[number]
        for number, given in answer.partitions.items():
            part = self.parts.setdefault(number, Part(given.generation, given.start))
            part.is_leaving = given.is_leaving

    async def leave(self) -> None:
        self.world.members.remove(self)
        if self.name and self.world.random.random() < 0.5:  # else it is killed
            try:
                await self.world.programs.leave(None, groups.LeaveQuery(member=self.name))
            except groups.UnknownMemberError:
                pass


@over_seeds(20)
def test_one_owner_a_partition_and_no_row_skipped_or_again(seed: int) -> None:
    asyncio.run(walk(seed))


async def walk(seed: int) -> None:
    world = World(seed)
    random = world.random
    for _ in range(400):
        if len(world.members) < 4 and random.random() < 0.05:
            world.members.append(Member(world))
            await world.members[-1].join()
        if world.members and random.random() < 0.03:
            await random.choice(world.members).leave()
        for member in list(world.members):
            if random.random() < 0.7:
                member.hand_over()
            if random.random() < 0.5:
                await member.beat(commits=random.random() < 0.6)
            if not member.name and not member.answers:
                await member.join()
        world.pass_time(random.choice([0.05, 0.2, 1.0, 1.0]))
        for group in world.groups.all.values():
            for number, position in group.place().positions.items():
                assert position == world.committed[number], "a row was skipped, or comes again"
    assert world.rows > 50
    world.stop()


BAD = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{" * 1000,
    b'{"member": 5}',
    b'{"member": "x"}',
    b"\xff",
    b"x" * 70_000,
]
MEMBER = "0" * 32


@pytest.mark.parametrize("action", sorted(groups.ACTIONS))
def test_what_means_nothing_is_a_clear_error(action: str) -> None:
    class Nobody:
        def ask(self, *_: object) -> Any:
            raise AssertionError("it was understood")

    more = [
        {"member": MEMBER, "commit": {"0": [1]}},
        {"member": MEMBER, "commit": {"-1": [1, 1]}},
        {"member": MEMBER, "commit": {"1024": [1, 1]}},
        {"member": MEMBER, "has": {"0": 1 << 63}},
        {"member": MEMBER, "more": 1},
        {"member": MEMBER, "batch": 1, "parts": [[0, 0]], "commit": {}},
        {"stream": "s", "group": ""},
        {"stream": "s", "group": "g", "where": [["a", "~", 1]]},
        {"stream": "s" * 101, "group": "g"},
    ]
    for body in [*BAD, *map(msgspec.json.encode, more)]:
        with pytest.raises(BadTicketError, match="accepted"):
            groups.group_answer(Nobody(), Anybody(), None, action, body, threading.Event())


def test_an_end_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_groups, "_LOOK", 0.0)
    waiting: Future[groups.GroupAnswer] = Future()

    class Silent:
        def ask(
            self, access: Access, user: str | None, asked: groups.Asked
        ) -> Future[groups.GroupAnswer]:
            return waiting

    stopping = threading.Event()
    stopping.set()
    body = msgspec.json.encode(groups.LeaveQuery(member="0" * 32))
    with pytest.raises(PassingError, match="does not answer"):
        groups.group_answer(Silent(), Anybody(), None, "group-leave", body, stopping)
    assert waiting.cancelled()


async def test_a_user_has_so_many_programs_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmq.streams.serving.programs.MOST_OF_USER", 2)
    world = World(1)
    judged = Judged(Anybody(), [], world.now)
    for _ in range(2):
        await world.programs.join(judged, None, ASKED)
    with pytest.raises(StreamError, match="2 programs of this user"):
        await world.programs.join(judged, None, ASKED)
    await world.programs.join(judged, "another", ASKED)
    world.stop()


async def test_a_program_that_commits_nothing_for_a_minute_has_no_lease() -> None:
    """It stops before others get what it had, and comes back with a commit."""
    world = World(1)
    judged = Judged(Anybody(), [], world.now)
    answer = await world.programs.join(judged, None, ASKED)

    async def beat(**more: Any) -> groups.GroupAnswer:
        asked = groups.BeatQuery(member=answer.member, has={0: 0}, **more)
        return await world.programs.beat(None, asked, still_may=True)

    lease = 5.0
    until = world.now + module.ACK_TIMEOUT
    while lease:
        lease = (await beat()).lease
        assert world.now + lease <= until + 1.0
        world.pass_time(0.5)
    (member,) = world.programs.members.values()
    while not member.is_stalled:
        await beat()
        world.pass_time(0.5)
    assert (await beat()).partitions == {}
    assert (await beat(commit={0: (1, 5)})).fenced == [0]
    found = await beat()
    assert sorted(found.partitions) == list(range(PARTITIONS))
    assert found.lease == 5.0
    world.stop()
