import asyncio
from collections.abc import AsyncIterator
from unittest.mock import patch

import pytest
from vmq_hooks import Plugin, hook

from tests.support.peer import Peer
from vmq.broker import Broker
from vmq.config.options import Config
from vmq.http.dashboard import walk
from vmq.http.dashboard.walk import (
    MOST,
    MOST_TOLD,
    HookTimes,
    SessionWalk,
    Top,
    most_frequent,
    shown,
)


class Slow(Plugin):
    @hook
    def on_publish(self) -> None:
        pass

    @hook
    def auth_on_publish(self) -> bool:
        return True


@pytest.fixture
async def broker(config: Config) -> AsyncIterator[Broker]:
    async with Broker(config, plugins={"slow": Slow()}) as found:
        yield found


def test_the_largest_are_kept() -> None:
    top = Top()
    for value in range(50):
        top.offer(value % 25, f"c{value}", "")
    rows = top.rows()
    assert len(rows) == MOST
    assert [row.value for row in rows] == sorted((row.value for row in rows), reverse=True)
    assert rows[0].value == rows[1].value == 24
    top = Top()
    top.offer(0, "nobody", "")
    assert top.rows() == []


async def test_who_has_most_in_its_queue_and_waits_longest_is_first(broker: Broker) -> None:
    now = [10.0]
    sessions = SessionWalk(broker, lambda: now[0])
    publisher = Peer(broker.registry(), "publisher")
    slow = Peer(broker.registry(), "<img src=x onerror=alert(1)>", ("a", 1))
    away = Peer(broker.registry(), "away", ("b", 1), clean=False)
    away.connection.connection_lost(None)
    publisher.publish("a", qos=1)
    publisher.publish("b", b"y" * 5000, qos=1)
    first = await sessions.once()
    assert [row.name for row in first["queue_bytes"]] == ["away"]
    assert first["queue_bytes"][0].value >= 5000
    assert first["inflight_age"] == [], "it was sent just now"
    now[0] += 7
    second = await sessions.once()
    (row,) = second["inflight_age"]
    assert (row.name, row.value) == ("<img src=x onerror=alert(1)>", 7.0)
    slow.acknowledge(1)
    assert (await sessions.once())["inflight_age"] == []


@patch.object(walk, "SLICE", 5)
async def test_a_walk_leaves_the_loop_to_others(broker: Broker) -> None:
    for number in range(23):
        Peer(broker.registry(), f"c{number}")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    sessions = SessionWalk(broker, lambda: 0.0)
    await sessions.once()
    task.cancel()
    assert sessions.seen == 23
    assert turns >= 23 // 5


async def test_hooks_are_told_with_the_mean_of_what_they_took(broker: Broker) -> None:
    hooks = HookTimes(broker)
    hooks.look()
    Peer(broker.registry(), "me").publish("a")
    times = broker.plugins.guards["slow"].times_of("auth_on_publish")
    before = (times.count, times.total)
    times.observe(0.25)
    times.observe(0.75)
    assert times.count == before[0] + 2
    row = hooks.look()[0]
    assert row.name == "slow.auth_on_publish"
    assert row.value == pytest.approx(1000 * times.total / times.count)
    assert hooks.look() == []


def test_what_came_once_is_no_news() -> None:
    found = most_frequent([("a", 1), ("b", 3)])
    assert [row.name for row in found] == ["b", "a"], "with others' it may be more"
    worst = shown({"reconnects": found, "logins_refused": found})
    assert [[row.name for row in rows] for rows in worst.values()] == [["b"], ["b", "a"]]
    many = most_frequent([(str(n), n + 2) for n in range(100)])
    assert len(many) == MOST_TOLD
    assert len(shown({"reconnects": many})["reconnects"]) == MOST
