"""A whole run: traffic, strikes at random moments of it, and a quiet end."""

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.history import History, Message
from tests.crash.peers import Peer, Publisher, Subscriber
from tests.crash.referee import missing
from tests.crash.retained import Keeper
from tests.crash.stage import Stage

# Steps from the start of a round to its end. The first span often strikes while clients connect
# and get their backlog, the last one in full traffic.
SPANS = ((1, 30), (30, 400), (400, 3000))
# The steps in which a backlog gathers (some 3,000 messages), and the most between two strikes while
# it drains.
BACKLOG_STEPS = 12_000
DRAIN_SPAN = 800
# Seconds without a step that are rest.
REST_TIMEOUT = 30.0
COMMON = "crash/data/common"


@dataclass(frozen=True)
class Plan:
    """What distinguishes one run from another."""

    seed: int
    strikes: int
    stop: signal.Signals = signal.SIGKILL
    env: Mapping[str, str] = field(default_factory=dict)


class Campaign:
    """The clients of a run, and its course."""

    def __init__(self, plan: Plan, data_dir: Path) -> None:
        self.history = History()
        self._plan = plan
        self._random = Random(plan.seed)
        # The tests' own clients may be slower than the broker: no queue may overflow.
        env = {
            "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
            "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
            **plan.env,
        }
        self.stage = Stage(data_dir, env, plan.stop, self.history)
        self.keeper = Keeper("keeper", self.stage, self.history, self._random)
        self.publishers = [
            self._publisher("pub-one", ("crash/data/a", 1), (COMMON, 1)),
            self._publisher("pub-two", ("crash/data/b", 2), (COMMON, 2)),
            self._publisher("pub-mixed", ("crash/data/c", 1), ("crash/data/c", 2), (COMMON, 2)),
        ]
        self.subscribers = [
            self._subscriber("sub-one", "crash/data/+", 1),
            self._subscriber("sub-two", "crash/data/#", 2),
            self._subscriber("sub-sleepy", "crash/data/#", 2),
            self._subscriber("sub-common", COMMON, 2),
        ]
        self._assign_naps()

    def _publisher(self, name: str, *streams: tuple[str, int]) -> Publisher:
        return Publisher(name, self.stage, self.history, streams, self._random)

    def _subscriber(self, name: str, topic_filter: str, qos: int) -> Subscriber:
        def wants(topic: str) -> bool:
            return topic_filter in (topic, "crash/data/#", "crash/data/+")

        return Subscriber(name, self.stage, self.history, topic_filter, wants, qos)

    def _assign_naps(self) -> None:
        """Two are away for some rounds at a time, and so through some of the strikes."""
        for subscriber in self.subscribers[2:]:
            subscriber.naps = self._some_naps()

    def _some_naps(self) -> frozenset[int]:
        """Rounds to sleep through, in runs of one to three; never the first, nor the quiet end."""
        naps: set[int] = set()
        start = 2
        while start <= self._plan.strikes:
            length = self._random.randint(1, 3)
            naps.update(range(start, min(start + length, self._plan.strikes + 1)))
            start += length + self._random.randint(1, 3)
        return frozenset(naps)

    @property
    def peers(self) -> list[Peer]:
        return [self.keeper, *self.publishers, *self.subscribers]

    async def run(self) -> History:
        tasks = [asyncio.create_task(peer.run()) for peer in self.peers]
        try:
            await self._play(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for peer in self.peers:
                if peer.link is not None:
                    peer.link.close()
            self.stage.close()
        return self.history

    async def _play(self, tasks: list[asyncio.Task[None]]) -> None:
        await self.stage.begin_round()
        for subscriber in self.subscribers:
            await subscriber.subscribe()
        for publisher in (self.keeper, *self.publishers):
            link = await publisher.ready()
            publisher.active = True
            publisher.on_progress()
            link.flush()
        await self._take_strikes(tasks)
        for publisher in (self.keeper, *self.publishers):
            publisher.active = False
        await self._settle()
        # Everything is delivered and acknowledged. One more strike must not bring any of it back.
        self.stage.strike()
        await self.stage.end_round()
        await self.stage.begin_round()
        await self._settle()

    async def _take_strikes(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let every round but the last ones end in the middle of the traffic."""
        for _ in range(self._plan.strikes):
            low, high = self._random.choice(SPANS)
            await self._strike_after(self._random.randint(low, high), tasks)

    async def _strike_after(self, steps: int, tasks: list[asyncio.Task[None]]) -> None:
        """End this round after so many steps and begin the next."""
        self.stage.aim(steps)
        if not await self._struck(tasks):
            self.stage.strike()
        await self.stage.end_round()
        await self.stage.begin_round()

    async def _struck(self, tasks: list[asyncio.Task[None]]) -> bool:
        """Wait for the strike; False if a client fails or the traffic comes to rest before it."""
        strike = asyncio.create_task(self.stage.struck.wait())
        done: set[asyncio.Task[Any]] = set()
        steps = -1
        while not done and steps != self.stage.steps:
            steps = self.stage.steps
            done, _ = await asyncio.wait(
                [strike, *tasks], timeout=REST_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        if strike in done:
            return True
        strike.cancel()
        for task in done:
            task.result()
        self.history.object(f"round {self.stage.round}: the traffic came to rest")
        return False

    async def _settle(self) -> None:
        """Send a last message in each stream and wait until it, and so all before it, is there."""
        last: set[Message] = set()
        try:
            for peer in self.peers:
                await peer.ready()
            for publisher in self.publishers:
                last.update(publisher.publish_each())
                (await publisher.ready()).flush()
            for peer in (self.keeper, *self.publishers):
                await _rest(peer)
            for subscriber in self.subscribers:
                await self._arrive(subscriber, last)
        except TimeoutError:
            stuck = [
                f"{s.session.client_id}: {len(self._missing(s))} missing, "
                f"{s.session.unreleased} without PUBREL"
                for s in self.subscribers
            ]
            self.history.object(f"not all came to an end; {'; '.join(stuck)}")

    def _missing(self, subscriber: Subscriber) -> list[Message]:
        return list(missing(self.history, subscriber.session.client_id))

    async def _arrive(self, subscriber: Subscriber, last: set[Message]) -> None:
        session = subscriber.session
        wants = self.history.subscriptions[session.client_id].wants
        wanted = {message for message in last if wants(message.topic)}
        got = self.history.got[session.client_id]
        link = await subscriber.ready()
        await link.until(lambda: wanted <= got and session.unreleased == 0)
        # The answer to a ping comes after all that the broker had to say before it.
        answered = session.pings_answered
        session.ping()
        link.flush()
        await link.until(lambda: session.pings_answered > answered)


class DrainCampaign(Campaign):
    """All but one subscriber miss the traffic; the broker is struck while they catch up."""

    def _assign_naps(self) -> None:
        for subscriber in self.subscribers:
            if subscriber.session.client_id != "sub-two":
                subscriber.naps = frozenset({2})

    async def _take_strikes(self, tasks: list[asyncio.Task[None]]) -> None:
        await self._strike_after(1, tasks)
        await self._strike_after(BACKLOG_STEPS, tasks)
        for publisher in (self.keeper, *self.publishers):
            publisher.active = False
        for _ in range(self._plan.strikes - 2):
            await self._strike_after(self._random.randint(1, DRAIN_SPAN), tasks)


async def _rest(peer: Peer) -> None:
    """Wait until all that the peer published has run through its delivery protocol."""
    link = await peer.ready()
    await link.until(lambda: peer.session.in_flight == 0)
