"""One subscriber's queue: what is sent at once, what waits, what is dropped, what is repeated.

The random walks over all of this together are in test_flows.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wire import (
    PUBLISH,
    PUBREL,
    Packet,
    puback_packet,
    pubcomp_packet,
    publish_packet,
    pubrec_packet,
)
from tests.vmq.support import (
    Client,
    House,
    keep_retained,
    publish_numbers,
    read_on,
    stored_house,
    subscribed,
    take_numbers,
)


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[House]:
    """A house with a store."""
    with stored_house(tmp_path) as house:
        yield house


# --- the inflight window


@pytest.mark.parametrize("qos", (1, 2))
def test_the_window_lets_so_many_out_and_each_end_of_an_exchange_one_more(
    house: House, qos: int
) -> None:
    house.options.max_inflight_messages = 2
    client = subscribed(house)
    publish_numbers(house, 0, 1, 2, 3, qos=qos)
    first, second = client.take()
    assert (first.payload, second.payload) == (b"0", b"1")
    client.acknowledge(first)
    assert take_numbers(client) == [2]
    client.acknowledge(second)
    assert take_numbers(client) == [3]
    assert len(client.queue.inflight) == 2


def test_a_qos_2_exchange_holds_its_place_until_pubcomp(house: House) -> None:
    house.options.max_inflight_messages = 1
    client = subscribed(house)
    publish_numbers(house, 0, 1, qos=2)
    pid = client.take_one(PUBLISH).packet_id
    client.send(pubrec_packet(pid))
    assert client.take_one(PUBREL).packet_id == pid
    assert client.queue.waiting() == 1
    client.send(pubcomp_packet(pid))
    assert take_numbers(client) == [1]


def test_acknowledgements_may_come_in_any_order(house: House) -> None:
    house.options.max_inflight_messages = 3
    client = subscribed(house)
    publish_numbers(house, *range(6))
    packets = client.take()
    for packet in reversed(packets):
        client.acknowledge(packet)
    assert take_numbers(client) == [3, 4, 5]


def test_a_window_of_0_is_no_limit_but_that_of_packet_ids(house: House) -> None:
    house.options.max_inflight_messages = 0
    client = subscribed(house)
    publish_numbers(house, *range(200))
    assert take_numbers(client) == list(range(200))


def test_qos_0_does_not_wait_for_the_window(house: House) -> None:
    house.options.max_inflight_messages = 1
    client = subscribed(house)
    publish_numbers(house, 0, 1)
    publish_numbers(house, 2, qos=0)
    assert take_numbers(client) == [0, 2]


def test_packet_ids_go_round_and_pass_over_those_in_use(house: House) -> None:
    client = subscribed(house)
    publish_numbers(house, 0)
    [held] = client.take()
    assert held.packet_id == 1
    client.queue.last_packet_id = 65_534
    publish_numbers(house, 1, 2)
    assert [packet.packet_id for packet in client.take()] == [65_535, 2]


def test_all_packet_ids_in_use_is_a_closed_window(house: House) -> None:
    house.options.max_inflight_messages = 0
    house.options.max_online_messages = 1
    client = subscribed(house)
    house.patient = True
    for _ in range(65_537):
        house.publish("t", b"", 1)
    house.settle()
    packets = client.take()
    assert len({packet.packet_id for packet in packets}) == len(packets) == 65_535
    assert client.queue.dropped == 1
    client.send(puback_packet(777))
    assert client.take_one(PUBLISH).packet_id == 777


# --- acknowledgements that mean nothing


def test_an_unknown_puback_or_pubcomp_is_ignored(house: House) -> None:
    client = subscribed(house)
    client.send(puback_packet(9), pubcomp_packet(9))
    client.expect()
    client.ping()


def test_an_unknown_pubrec_is_answered(house: House) -> None:
    client = subscribed(house)
    client.send(pubrec_packet(9))
    assert client.take_one(PUBREL).packet_id == 9


def test_a_puback_does_not_end_a_qos_2_exchange_nor_pubcomp_one_that_is_not_released(
    house: House,
) -> None:
    client = subscribed(house)
    publish_numbers(house, 0, qos=2)
    pid = client.take_one(PUBLISH).packet_id
    client.send(puback_packet(pid), pubcomp_packet(pid))
    assert list(client.queue.inflight) == [pid]


def test_a_pubrec_does_not_end_a_qos_1_exchange(house: House) -> None:
    client = subscribed(house)
    publish_numbers(house, 0)
    pid = client.take_one(PUBLISH).packet_id
    client.send(pubrec_packet(pid), pubcomp_packet(pid))
    assert list(client.queue.inflight) == [pid]


def test_a_second_pubrec_is_answered_again(house: House) -> None:
    client = subscribed(house)
    publish_numbers(house, 0, qos=2)
    pid = client.take_one(PUBLISH).packet_id
    client.send(pubrec_packet(pid), pubrec_packet(pid))
    assert [packet.type for packet in client.take()] == [PUBREL, PUBREL]


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


# --- repeats


def repeated(packets: list[Packet]) -> list[tuple[int, bool]]:
    return [(packet.packet_id, packet.dup) for packet in packets]


def test_what_is_unacknowledged_comes_again_in_order_with_dup_and_its_id(durable: House) -> None:
    client = subscribed(durable, clean=False)
    publish_numbers(durable, 0, 1, qos=1)
    publish_numbers(durable, 2, qos=2)
    before = client.take()
    assert not any(packet.dup for packet in before)
    client.lose()
    again = durable.client("s", clean=False).take()
    assert repeated(again) == [(packet.packet_id, True) for packet in before]
    assert [packet.payload for packet in again] == [b"0", b"1", b"2"]


def test_after_pubrec_only_the_pubrel_comes_again_in_the_order_of_the_pubrecs(
    durable: House,
) -> None:
    client = subscribed(durable, clean=False)
    publish_numbers(durable, 0, 1, 2, qos=2)
    first, second, third = (packet.packet_id for packet in client.take())
    client.send(pubrec_packet(third), pubrec_packet(first))
    client.lose()
    for _ in range(2):
        client = durable.client("s", clean=False)
        packets = client.take()
        assert [(packet.type, packet.packet_id) for packet in packets] == [
            (PUBLISH, second),
            (PUBREL, third),
            (PUBREL, first),
        ]
        client.lose()
        durable.restart()


def test_a_repeat_of_a_retained_message_is_still_marked_as_one(durable: House) -> None:
    keep_retained(durable, 1, qos=1)
    client = durable.client("s", clean=False)
    client.subscribe(("r/#", 1))
    client.lose()
    packet = durable.client("s", clean=False).take_one(PUBLISH)
    assert (packet.retain, packet.dup) == (True, True)


def test_a_restart_goes_on_where_the_broker_was(durable: House) -> None:
    durable.options.max_inflight_messages = 2
    client = subscribed(durable, clean=False)
    publish_numbers(durable, *range(5), qos=2)
    first = client.take()[0]
    client.send(pubrec_packet(first.packet_id))
    durable.restart()
    publish_numbers(durable, 5, qos=2)
    client = durable.client("s", clean=False)
    packets = client.take()
    assert [packet.type for packet in packets] == [PUBLISH, PUBREL]
    assert (packets[0].payload, packets[0].dup) == (b"1", True)
    client.acknowledge(packets[0])
    client.send(pubcomp_packet(packets[1].packet_id))
    assert read_on(client) == [2, 3, 4, 5]


def test_a_lifo_queue_repeats_in_the_order_of_sending_after_a_restart(durable: House) -> None:
    durable.options.lifo = True
    durable.options.max_inflight_messages = 2
    client = subscribed(durable, clean=False)
    publish_numbers(durable, *range(4))
    client.acknowledge(*client.take())
    assert take_numbers(client) == [3, 2]
    durable.restart()
    assert take_numbers(durable.client("s", clean=False)) == [3, 2]


# --- retry_interval


def test_without_retry_interval_nothing_is_repeated_on_a_connection(house: House) -> None:
    client = subscribed(house)
    publish_numbers(house, 0)
    assert client.queue.inflight[1].sent_at == 0.0


def test_a_retry_repeats_what_is_old_enough(house: House) -> None:
    house.options.retry_interval = 10.0
    client = subscribed(house)
    publish_numbers(house, 0, qos=1)
    publish_numbers(house, 1, qos=2)
    house.clock.advance(6)
    publish_numbers(house, 2, qos=2)
    first, second, third = (packet.packet_id for packet in client.take())
    client.send(pubrec_packet(second))
    assert client.take_one(PUBREL).packet_id == second
    house.clock.advance(4)
    retry(house, client)
    assert [(p.type, p.packet_id, p.dup) for p in client.take()] == [
        (PUBLISH, first, True),
        (PUBREL, second, False),
    ]
    house.clock.advance(6)
    retry(house, client)
    assert repeated(client.take()) == [(third, True)]
    house.clock.advance(4)
    retry(house, client)
    assert [packet.packet_id for packet in client.take()] == [first, second]


def test_a_retry_leaves_a_full_socket_alone(house: House) -> None:
    house.options.retry_interval = 1.0
    client = subscribed(house)
    publish_numbers(house, 0)
    client.take()
    client.block()
    for _ in range(5):
        house.clock.advance(2)
        retry(house, client)
    assert client.take_bytes() == b""


def retry(house: House, client: Client) -> None:
    client.queue.retry(house.clock())
    house.settle()


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
