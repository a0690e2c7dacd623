"""One subscriber's queue: what is sent at once, what waits, what is dropped.

The random walks over all of this together are in test_flows.
"""

import pytest

from tests.support.wire import (
    PUBLISH,
    publish_packet,
)
from tests.vmq.support import (
    House,
    keep_retained,
    publish_numbers,
    read_on,
    subscribed,
    take_numbers,
)

# --- a socket that is full


def test_everything_waits_while_the_socket_is_full_and_leaves_in_order(house: House) -> None:
    client = subscribed(house)
    client.block()
    for number in range(4):
        publish_numbers(house, number, qos=number % 2)
    client.expect()
    assert client.queue.waiting() == 4
    client.unblock()
    sent = take_numbers(client)
    assert [number for number in sent if number % 2 == 0] == [0, 2]
    assert [number for number in sent if number % 2 == 1] == [1, 3]


def test_a_burst_of_bytes_for_a_full_socket_waits_message_by_message(house: House) -> None:
    client = subscribed(house, 0)
    client.block()
    house.client("p").send(*(publish_packet("t", b"%d" % number) for number in range(5)))
    assert client.queue.waiting() == 5
    client.unblock()
    assert take_numbers(client) == [0, 1, 2, 3, 4]


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


def test_a_socket_that_fills_up_again_stops_the_pump(house: House) -> None:
    client = subscribed(house, 0)
    client.block()
    publish_numbers(house, *range(4), qos=0)
    client.transport.buffered = 1
    queue = client.queue
    house.options.max_msgs_per_drain_step = 2
    house.patient = True
    client.unblock()
    client.block()
    house.settle()
    assert take_numbers(client) == [0, 1]
    assert queue.waiting() == 2
    client.unblock()
    house.settle()
    assert take_numbers(client) == [2, 3]


def test_what_is_published_while_a_queue_catches_up_comes_behind(house: House) -> None:
    house.options.max_online_messages = -1
    client = subscribed(house, 0)
    publisher = house.client("p")
    client.block()
    publish_numbers(house, *range(250), qos=0)
    house.patient = True
    client.unblock()
    publish_numbers(house, 250, qos=0)
    publisher.send(publish_packet("t", b"251"), publish_packet("t", b"252"))
    house.settle()
    assert take_numbers(client) == list(range(253))


def test_replies_are_still_written_to_a_full_socket(house: House) -> None:
    client = subscribed(house)
    client.block()
    client.ping()


# --- limits


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize(("oldest", "kept"), ((False, [0, 1, 2]), (True, [3, 4, 5])))
def test_a_full_online_queue_drops_by_the_rule(
    house: House, qos: int, oldest: bool, kept: list[int]
) -> None:
    house.options.max_online_messages = 3
    house.options.drop_oldest = oldest
    client = subscribed(house)
    client.block()
    publish_numbers(house, *range(6), qos=qos)
    assert client.queue.dropped == house.core.counters.queue_message_drop == 3
    client.unblock()
    assert take_numbers(client) == kept


@pytest.mark.parametrize(("oldest", "kept"), ((False, [0, 1, 2]), (True, [3, 4, 5])))
def test_a_full_offline_queue_drops_by_the_rule(
    durable: House, oldest: bool, kept: list[int]
) -> None:
    durable.options.max_offline_messages = 3
    durable.options.drop_oldest = oldest
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(6))
    assert durable.queue("s").dropped == 3
    client = durable.client("s", clean=False)
    assert take_numbers(client) == kept


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
    client = durable.client("s", clean=False)
    client.subscribe(("r/#", 1), ("t", 1))
    assert client.queue.waiting() == 3
    publish_numbers(durable, 4)
    assert client.queue.dropped == 1
    assert read_on(client) == [0, 2, 3, 4]


@pytest.mark.parametrize("oldest", (False, True))
def test_a_limit_of_0_keeps_nothing(durable: House, oldest: bool) -> None:
    durable.options.max_offline_messages = 0
    durable.options.drop_oldest = oldest
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 0, 1)
    assert durable.queue("s").waiting() == 0
    assert durable.queue("s").dropped == 2


def test_a_limit_of_minus_1_is_none(durable: House) -> None:
    durable.options.max_offline_messages = -1
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(1500))
    assert durable.queue("s").dropped == 0
    assert read_on(durable.client("s", clean=False)) == list(range(1500))


def test_inflight_messages_do_not_count_as_waiting(house: House) -> None:
    house.options.max_inflight_messages = 2
    house.options.max_online_messages = 1
    client = subscribed(house)
    publish_numbers(house, *range(4))
    assert client.queue.waiting() == 1
    assert read_on(client) == [0, 1, 2]


def test_the_oldest_qos_0_message_does_not_make_room_for_qos_1(house: House) -> None:
    house.options.max_online_messages = 1
    house.options.drop_oldest = True
    client = subscribed(house)
    client.block()
    publish_numbers(house, 0, qos=0)
    publish_numbers(house, 1, qos=1)
    client.unblock()
    assert take_numbers(client) == [0]


def test_a_queue_that_still_drains_has_the_larger_limit(durable: House) -> None:
    durable.options.max_inflight_messages = 1
    durable.options.max_online_messages = 2
    durable.options.max_offline_messages = 5
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(4))
    durable.options.max_msgs_per_drain_step = 2
    client = durable.client("s", clean=False)
    publish_numbers(durable, 4, 5, 6)
    assert durable.queue("s").dropped == 1
    assert read_on(client) == [0, 1, 2, 3, 4, 5]


def test_the_online_limit_holds_again_once_the_backlog_is_loaded(durable: House) -> None:
    durable.options.max_inflight_messages = 1
    durable.options.max_online_messages = 2
    durable.options.max_offline_messages = 9
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, *range(4))
    client = durable.client("s", clean=False)
    publish_numbers(durable, 4)
    assert durable.queue("s").dropped == 1
    assert read_on(client) == [0, 1, 2, 3]


def test_a_client_that_never_reads_costs_a_bounded_amount(house: House) -> None:
    house.options.max_online_messages = 50
    client = subscribed(house)
    client.block()
    for number in range(500):
        publish_numbers(house, number, qos=number % 3)
    assert client.queue.waiting() == 50
    assert client.take_bytes() == b""


# --- upgrade_outgoing_qos


def test_upgraded_messages_go_out_at_the_qos_of_the_subscription(house: House) -> None:
    house.options.upgrade_outgoing_qos = True
    client = subscribed(house, 2)
    publish_numbers(house, 0, qos=0)
    publish_numbers(house, 1, qos=1)
    house.client("p").send(publish_packet("t", b"2"), publish_packet("t", b"3"))
    assert [packet.qos for packet in client.take()] == [2, 2, 2, 2]


def test_an_upgraded_message_is_kept_for_an_offline_session(durable: House) -> None:
    durable.options.upgrade_outgoing_qos = True
    subscribed(durable, 1, clean=False).lose()
    publish_numbers(durable, 0, qos=0)
    client = durable.client("s", clean=False)
    packet = client.take_one(PUBLISH)
    assert (packet.qos, packet.payload) == (1, b"0")


def test_retained_messages_are_upgraded_too(house: House) -> None:
    house.options.upgrade_outgoing_qos = True
    keep_retained(house, 1)
    client = house.client("s")
    client.subscribe(("r/#", 1))
    assert client.take_one(PUBLISH).qos == 1


# --- the ends


def test_qos_0_is_for_those_who_are_there(durable: House) -> None:
    subscribed(durable, clean=False).lose()
    publish_numbers(durable, 0, qos=0)
    assert durable.queue("s").waiting() == 0
    durable.client("s", clean=False).expect()


def test_what_waits_at_qos_0_goes_with_the_connection(durable: House) -> None:
    client = subscribed(durable, clean=False)
    client.block()
    publish_numbers(durable, 0, qos=0)
    publish_numbers(durable, 1, qos=1)
    client.lose()
    assert take_numbers(durable.client("s", clean=False)) == [1]


def test_without_a_store_no_session_is_durable(house: House) -> None:
    subscribed(house, clean=False).lose()
    assert "s" not in house.registry.subscribers
