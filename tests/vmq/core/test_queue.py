"""One subscriber's queue: what is sent at once, what waits, what is dropped.

The random walks over all of this together are in test_flows.
"""

import pytest

from tests.vmq.support import (
    House,
    keep_retained,
    publish_numbers,
    read_on,
    subscribed,
    take_numbers,
)


def test_the_fast_path_is_open_only_to_a_queue_with_nothing_in_the_way(house: House) -> None:
    client = subscribed(house, 0)
    queue = client.queue
    states = [queue.fast]
    client.block()
    publish_numbers(house, 0, qos=0)
    states.append(queue.fast)
    client.unblock()
    states.append(queue.fast)
    client.disconnect()
    states.append(queue.fast)
    assert states == [True, False, True, False]


@pytest.mark.parametrize("qos", (0, 1))
def test_one_message_goes_for_one_in_a_queue_beyond_its_limit(house: House, qos: int) -> None:
    house.options.drop_oldest = True
    client = subscribed(house)
    client.block()
    publish_numbers(house, *range(5), qos=qos)
    house.options.max_online_messages = 2
    publish_numbers(house, 5, qos=qos)
    assert client.queue.dropped == 1
    client.unblock()
    assert take_numbers(client) == [1, 2, 3, 4, 5]


def test_retained_messages_beyond_the_limit_do_not_all_go_for_one_message(durable: House) -> None:
    durable.options.drop_oldest = True
    durable.options.max_inflight_messages = durable.options.max_online_messages = 1
    keep_retained(durable, 4, qos=1)
    client = durable.subscriber("s", ("r/#", 1), ("t", 1), clean=False)
    assert client.queue.waiting() == 3
    publish_numbers(durable, 4)
    assert client.queue.dropped == 1
    assert read_on(client) == [0, 2, 3, 4]


def test_a_limit_of_minus_1_is_none(durable: House) -> None:
    durable.options.max_offline_messages = -1
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(1500))
    assert durable.queue("s").dropped == 0
    assert read_on(durable.client("s", clean=False)) == list(range(1500))
