"""What waits in the store for a durable session, and in which order it leaves."""

import pytest

from tests.support import wire as mqtt
from tests.vmq.support import Client, House, publish_numbers, read_on, subscribed
from vmq.core.waiting import PENDING_IN_MEMORY


def test_the_oldest_message_of_a_lifo_queue_that_drains_is_in_the_store(durable: House) -> None:
    durable.options.lifo = True
    durable.options.drop_oldest = True
    durable.options.max_inflight_messages = 1
    durable.options.max_online_messages = 5
    durable.options.max_offline_messages = 5
    durable.options.max_msgs_per_drain_step = 2
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(5))
    client = durable.client("s", clean=False)
    publish_numbers(durable, 5, 6)
    assert durable.queue("s").dropped == 1
    assert read_on(client) == [4, 6, 5, 3, 2, 1]


@pytest.mark.parametrize("lifo", (False, True))
def test_a_durable_queue_holds_a_bounded_number_of_messages_in_memory(
    durable: House, lifo: bool
) -> None:
    durable.options.lifo = lifo
    durable.options.max_inflight_messages = 1
    durable.options.max_online_messages = -1
    client = subscribed(durable, clean=False)
    total = PENDING_IN_MEMORY + 200
    publish_numbers(durable, *range(total))
    queue = client.queue
    assert queue.pending is not None
    assert len(queue.pending) <= PENDING_IN_MEMORY
    assert queue.waiting() == total - 1
    order = [0, *range(total - 1, 0, -1)] if lifo else list(range(total))
    assert read_on(client) == order


def test_an_offline_queue_holds_no_messages_in_memory(durable: House) -> None:
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(50))
    queue = durable.queue("s")
    assert not queue.pending
    assert queue.backlog == 50


def test_a_backlog_drains_step_by_step(durable: House) -> None:
    durable.options.max_inflight_messages = 0
    durable.options.max_msgs_per_drain_step = 10
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(35))
    durable.patient = True
    client = Client(durable)
    client.send(mqtt.connect_packet("s", clean=False))
    durable.commit()
    client.take_one(mqtt.CONNACK)
    steps = []
    while durable.woken:
        durable.drain()
        durable.commit()
        steps.append(len(client.take()))
    assert sum(steps) == 35
    assert max(steps) <= 10


def test_no_place_before_the_least_is_used_again(durable: House) -> None:
    durable.options.lifo = True
    durable.options.max_inflight_messages = 1
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 0, 1, 2)
    queue = durable.queue("s")
    queue.least_seq = 3
    client = durable.client("s", clean=False)
    client.acknowledge(client.take_one(mqtt.PUBLISH))  # 2, and 1 is sent
    assert queue.next_seq == 3
    publish_numbers(durable, 3)
    assert queue.next_seq == 4
    assert read_on(client) == [1, 3, 0]


def test_the_limit_counts_messages_after_a_restart_as_well(durable: House) -> None:
    durable.options.lifo = True
    durable.options.max_inflight_messages = 1
    durable.options.max_offline_messages = 5
    client = subscribed(durable, clean=False)
    publish_numbers(durable, 0, 1)  # 1 stays, for a newer one is always there
    for number in range(2, 12):
        publish_numbers(durable, number)
        client.acknowledge(client.take_one(mqtt.PUBLISH))
    publish_numbers(durable, 12)
    durable.restart()
    publish_numbers(durable, 13)
    assert durable.queue("s").dropped == 0
