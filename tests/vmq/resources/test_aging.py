import asyncio
from pathlib import Path

import pytest

from tests.support.present import present
from tests.vmq.support import WALL_START, House, publish_numbers, read_on, subscribed, take_numbers
from vmq.resources.aging import sweep


def look(house: House) -> None:
    asyncio.run(sweep(house.core, [house.registry]))


def test_what_waits_too_long_is_dropped(durable: House) -> None:
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 1, 2)
    durable.pass_time(60)
    publish_numbers(durable, 3)
    look(durable)
    assert durable.queue("s").waiting() == 3
    durable.pass_time(41)
    look(durable)
    assert durable.queue("s").waiting() == 1
    assert durable.core.counters.queue_message_expired == 2
    assert [(each.reason, each.messages) for each in durable.core.losses.take()] == [("expired", 2)]
    assert read_on(durable.client("s", clean=False)) == [3]


def test_age_counts_across_restarts(durable: House) -> None:
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 1)
    durable.pass_time(60)
    durable.restart()
    durable.pass_time(41)
    look(durable)
    assert durable.queue("s").waiting() == 0
    assert read_on(durable.client("s", clean=False)) == []


@pytest.mark.parametrize("hours", (5, -5))
@pytest.mark.parametrize("restarts", (False, True))
def test_a_clock_that_is_set_makes_nothing_older_or_younger(
    durable: House, hours: int, *, restarts: bool
) -> None:
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 1)
    durable.pass_time(60)
    durable.wall_clock.advance(hours * 3600)
    publish_numbers(durable, 2)
    if restarts:
        durable.restart()
    for seconds, left in ((39, 2), (2, 1), (58, 1), (2, 0)):
        durable.pass_time(seconds)
        look(durable)
        assert durable.queue("s").waiting() == left


def test_a_clock_that_begins_anew_at_each_boot_and_is_set_then_keeps_nothing_for_ever(
    durable: House,
) -> None:
    years = 50 * 365 * 86_400
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    for _ in range(3):
        durable.wall_clock.advance(years)
        publish_numbers(durable, 1)
        durable.pass_time(99)
        look(durable)
        assert durable.queue("s").waiting() == 1
        durable.pass_time(2)
        look(durable)
        assert durable.queue("s").waiting() == 0
        durable.commit()
        durable.wall_clock.advance(-years)
        durable.restart()


def test_what_came_before_the_option_has_its_age_too(durable: House) -> None:
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 1)
    durable.pass_time(1000)
    look(durable)
    assert durable.queue("s").waiting() == 1
    durable.options.max_age = 100
    look(durable)
    assert durable.queue("s").waiting() == 0


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


def test_a_queue_whose_first_is_young_is_read_once(durable: House) -> None:
    """A sweep over many queues costs nothing but a look at what is known."""
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(10))
    look(durable)
    queue = durable.queue("s")
    assert (queue.seen_first, queue.seen_since) == (queue.first, int(durable.wall_clock() * 1000))
    store = present(durable.store)
    store.db.close()  # whoever reads it fails
    look(durable)
    assert queue.waiting() == 10
    durable.restart()


def test_a_message_that_is_gone_does_not_keep_the_rest(durable: House) -> None:
    durable.options.max_age = 100
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(600))
    durable.pass_time(101)
    publish_numbers(durable, 600)
    look(durable)
    assert durable.queue("s").waiting() == 1


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
