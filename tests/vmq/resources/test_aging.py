import asyncio
from pathlib import Path

import pytest

from tests.support.present import present
from tests.vmq.support import WALL_START, House, publish_numbers, read_on, subscribed, take_numbers
from vmq.resources.aging import sweep


@pytest.fixture
def away(durable: House) -> House:
    """Where what waits for "s", who is away, may be 100 seconds old."""
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    return durable


def look(house: House) -> None:
    asyncio.run(sweep(house.core, [house.registry]))


def left_after(house: House, seconds: float) -> int:
    """How much waits for "s" when so much time has passed and somebody has looked."""
    house.pass_time(seconds)
    look(house)
    return house.queue("s").waiting()


def test_what_waits_too_long_is_dropped(away: House) -> None:
    publish_numbers(away, 1, 2)
    away.pass_time(60)
    publish_numbers(away, 3)
    assert left_after(away, 0) == 3
    assert left_after(away, 41) == 1
    assert away.core.counters.queue_message_expired == 2
    assert [(each.reason, each.messages) for each in away.core.losses.take()] == [("expired", 2)]
    assert read_on(away.client("s", clean=False)) == [3]


def test_age_counts_across_restarts(away: House) -> None:
    publish_numbers(away, 1)
    away.pass_time(60)
    away.restart()
    assert left_after(away, 41) == 0
    assert read_on(away.client("s", clean=False)) == []


@pytest.mark.parametrize("hours", (5, -5))
@pytest.mark.parametrize("restarts", (False, True))
def test_a_clock_that_is_set_makes_nothing_older_or_younger(
    away: House, hours: int, *, restarts: bool
) -> None:
    publish_numbers(away, 1)
    away.pass_time(60)
    away.wall_clock.advance(hours * 3600)
    publish_numbers(away, 2)
    if restarts:
        away.restart()
    for seconds, left in ((39, 2), (2, 1), (58, 1), (2, 0)):
        assert left_after(away, seconds) == left


def test_a_clock_that_begins_anew_at_each_boot_and_is_set_then_keeps_nothing_for_ever(
    away: House,
) -> None:
    years = 50 * 365 * 86_400
    for _ in range(3):
        away.wall_clock.advance(years)
        publish_numbers(away, 1)
        assert left_after(away, 99) == 1
        assert left_after(away, 2) == 0
        away.commit()
        away.wall_clock.advance(-years)
        away.restart()


def test_what_came_before_the_option_has_its_age_too(durable: House) -> None:
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 1)
    assert left_after(durable, 1000) == 1
    durable.options.max_age = 100
    assert left_after(durable, 0) == 0


@pytest.mark.parametrize("lifo", (False, True))
@pytest.mark.parametrize("clean", (False, True))
def test_a_client_that_is_connected_gets_nothing_too_old(
    durable: House, lifo: bool, clean: bool
) -> None:
    durable.options.max_age = 100
    durable.options.lifo = lifo
    durable.options.max_inflight_messages = 1
    client = subscribed(durable, clean=clean)
    publish_numbers(durable, *range(1, 5))
    durable.pass_time(60)
    publish_numbers(durable, *range(5, 8))
    durable.pass_time(41)
    assert read_on(client) == [1, *((7, 6, 5) if lifo else (5, 6, 7))]
    assert client.queue.dropped == 3


def test_qos_0_that_waits_for_a_socket_ages_too(house: House) -> None:
    house.options.max_age = 100
    client = subscribed(house)
    client.block()
    publish_numbers(house, 1, qos=0)
    house.pass_time(101)
    publish_numbers(house, 2, qos=0)
    client.unblock()
    assert take_numbers(client) == [2]


def test_a_queue_whose_first_is_young_is_read_once(away: House) -> None:
    """A sweep over many queues costs nothing but a look at what is known."""
    publish_numbers(away, *range(10))
    look(away)
    queue = away.queue("s")
    assert (queue.seen_first, queue.seen_since) == (queue.first, int(away.wall_clock() * 1000))
    store = present(away.store)
    store.db.close()  # whoever reads it fails
    look(away)
    assert queue.waiting() == 10
    away.restart()


def test_a_message_that_is_gone_does_not_keep_the_rest(away: House) -> None:
    publish_numbers(away, *range(600))
    away.pass_time(101)
    publish_numbers(away, 600)
    assert left_after(away, 0) == 1


@pytest.mark.parametrize("durability", ("os", "memory"))
def test_the_clock_is_read_once_a_commit_that_cannot_gather_for_long(
    tmp_path: Path, durability: str
) -> None:
    house = House(tmp_path / "store", durability=durability)
    subscribed(house, clean=False).lose()
    house.settle()
    house.patient = True
    for number in (1, 2):
        publish_numbers(house, number)
        house.pass_time(5)
    house.settle()
    publish_numbers(house, 3)
    queue, store = house.queue("s"), house.store
    found = [present(store).load_waiting(queue.session, seq) for seq in (1, 2, 3)]
    since = [each.since / 1000 - WALL_START for each in found if each is not None]
    assert since == ([0, 5, 10] if durability == "memory" else [0, 0, 10])
    house.close()
