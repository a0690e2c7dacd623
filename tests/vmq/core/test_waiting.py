"""How much may wait for one subscriber, in bytes: in memory, on disk, and in flight."""

import pytest

from tests.support import wire as mqtt
from tests.vmq.support import House, publish_numbers, read_on, subscribed, take_numbers
from vmq.core.waiting import PENDING_BYTES
from vmq.mqtt.message import Message, Transient

MIB = 1 << 20


def send(house: House, number: int, size: int, qos: int = 1) -> None:
    """Publishes a number of so many bytes."""
    house.publish("t", (b"%d" % number).ljust(size), qos)


@pytest.mark.parametrize("clean", (True, False))
def test_the_window_is_bounded_in_bytes_and_one_message_always_goes(
    durable: House, clean: bool
) -> None:
    client = subscribed(durable, clean=clean)
    for index in range(5):
        send(durable, index, 2 * MIB)
    for index in range(5):
        (packet,) = client.take()
        assert int(packet.payload) == index
        assert client.queue.inflight_bytes == 2 * MIB + 1
        client.send(mqtt.puback_packet(packet.packet_id))
    assert client.queue.inflight_bytes == 0
    assert client.queue.dropped == 0


def test_a_small_message_does_not_pass_a_large_one_that_waits(house: House) -> None:
    client = subscribed(house)
    for index, size in enumerate((MIB // 2, MIB // 2, 5)):
        send(house, index, size)
    (first,) = client.take()
    assert client.queue.waiting() == 2
    client.send(mqtt.puback_packet(first.packet_id))
    assert take_numbers(client) == [1, 2]


def test_what_is_no_session_state_takes_no_room_from_messages(house: House) -> None:
    """Nor messages from that: their bytes are counted apart."""
    house.options.max_inflight_messages = 2
    client = subscribed(house)
    queue = client.queue
    held = [Transient(Message(b"j", bytes(MIB), 1, False), b"") for _ in range(3)]
    for each in held:
        queue.send_transient(each)
    publish_numbers(house, 0, 1, 2)
    *_, first, second = client.take()
    assert (first.payload, second.payload) == (b"0", b"1")
    assert (queue.waiting(), queue.inflight_bytes) == (1, 4)
    client.send(mqtt.puback_packet(held[0].packet_id))
    client.expect()
    queue.take_back(held[1])
    assert (queue.transient_bytes, queue.inflight.messages()) == (MIB + 1, 2)
    client.send(mqtt.puback_packet(first.packet_id))
    assert take_numbers(client) == [2]


def test_a_released_message_takes_no_room_in_the_window(house: House) -> None:
    client = subscribed(house)
    send(house, 1, MIB, 2)
    send(house, 2, MIB, 2)
    (first,) = client.take()
    client.send(mqtt.pubrec_packet(first.packet_id))
    assert client.queue.inflight_bytes == 0
    client.take_one(mqtt.PUBREL)
    send(house, 3, 1, 2)  # it does not pass the second one, whose turn is when an exchange ends
    client.send(mqtt.pubcomp_packet(first.packet_id))
    assert take_numbers(client) == [2]


def test_the_bytes_in_flight_have_no_limit_if_the_option_says_so(house: House) -> None:
    house.options.max_inflight_bytes = -1
    client = subscribed(house)
    for index in range(5):
        send(house, index, MIB)
    assert take_numbers(client) == [0, 1, 2, 3, 4]


def test_what_was_in_flight_counts_again_after_a_restart(durable: House) -> None:
    client = subscribed(durable, clean=False)
    send(durable, 0, MIB)
    durable.restart()
    client = durable.client("s", clean=False)
    assert client.queue.inflight_bytes == MIB + 1
    send(durable, 1, MIB)
    assert client.queue.waiting() == 1
    assert read_on(client) == [0, 1]


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize(("oldest", "kept"), ((False, [0, 1, 2]), (True, [2, 3, 4])))
def test_a_clean_client_has_so_many_bytes_in_memory(
    house: House, qos: int, oldest: bool, kept: list[int]
) -> None:
    house.options.max_memory_bytes = 3 * 1001
    house.options.drop_oldest = oldest
    client = subscribed(house)
    client.block()
    for index in range(5):
        send(house, index, 1000, qos)
    queue = client.queue
    assert queue.dropped == 2
    assert queue.pending_bytes + queue.quick_bytes == house.options.max_memory_bytes
    client.unblock()
    assert take_numbers(client) == kept
    assert queue.pending_bytes == queue.quick_bytes == 0


@pytest.mark.parametrize("qos", (0, 1))
def test_a_message_larger_than_all_that_may_wait_drops_no_other(house: House, qos: int) -> None:
    house.options.max_memory_bytes = 1000
    house.options.drop_oldest = True
    client = subscribed(house)
    client.block()
    publish_numbers(house, 1, 2, qos=qos)
    send(house, 3, 1000, qos)
    assert client.queue.dropped == 1
    assert client.queue.waiting() == 2


def test_without_any_option_a_clean_client_loses_no_small_messages(house: House) -> None:
    client = subscribed(house)
    publish_numbers(house, *range(5000))
    assert client.queue.waiting() == 4980
    assert client.queue.dropped == 0
    assert read_on(client) == list(range(5000))


def test_what_waits_in_memory_is_forgotten_with_its_client(house: House) -> None:
    client = subscribed(house)
    queue = client.queue
    client.block()
    send(house, 1, 1000, 0)
    send(house, 2, 1000, 1)
    assert queue.quick_bytes == queue.pending_bytes == 1001
    assert house.core.waiting_bytes == queue.droppable_bytes() == 2 * 1001
    client.lose()
    assert queue.quick_bytes == queue.pending_bytes == house.core.waiting_bytes == 0


def test_a_full_queue_in_bytes_pauses_publishers_until_it_is_half_empty(house: House) -> None:
    house.options.max_memory_bytes = 10_000
    house.options.pause_publisher = True
    client = subscribed(house)
    client.block()
    publisher = house.client("p")
    sent = 0
    while publisher.transport.is_reading():
        publisher.send(mqtt.publish_packet("t", b"%d" % sent))
        sent += 1
    assert client.queue.quick_bytes > 10_000
    house.options.max_msgs_per_drain_step = 1
    house.patient = True
    client.unblock()
    assert not publisher.transport.is_reading()
    house.settle()
    assert publisher.transport.is_reading()
    assert take_numbers(client) == list(range(sent))
    assert client.queue.dropped == 0


@pytest.mark.parametrize("lifo", (False, True))
def test_a_connected_durable_queue_has_a_window_in_memory(durable: House, lifo: bool) -> None:
    durable.options.lifo = lifo
    client = subscribed(durable, clean=False)
    for index in range(100):
        send(durable, index, MIB // 10)
    queue = client.queue
    assert queue.pending_bytes <= PENDING_BYTES
    assert queue.backlog > 70
    assert sorted(read_on(client)) == list(range(100))
    assert queue.waiting_bytes() == 0


@pytest.mark.parametrize("online", (False, True))
@pytest.mark.parametrize(("oldest", "kept"), ((False, [0, 1, 2, 3]), (True, [0, 3, 4, 5])))
def test_a_durable_session_has_so_many_bytes_on_disk(
    durable: House, online: bool, oldest: bool, kept: list[int]
) -> None:
    durable.options.max_inflight_messages = 1
    durable.options.drop_oldest = oldest
    client = subscribed(durable, clean=False)
    send(durable, 0, 2000)
    durable.options.max_bytes = 4 * client.queue.waiting_bytes() + 100
    if not online:
        client.lose()
    for index in range(1, 6):
        send(durable, index, 2000)
    queue = durable.queue("s")
    assert queue.dropped == 2
    assert queue.waiting_bytes() <= durable.options.max_bytes
    if not online:
        client = durable.client("s", clean=False)
    assert read_on(client) == kept


def test_a_body_that_several_sessions_hold_counts_for_each_of_them(durable: House) -> None:
    durable.options.max_bytes = 5000
    for name in ("one", "two"):
        client = durable.subscriber(name, ("t", 1), clean=False)
        client.lose()
    for index in range(5):
        send(durable, index, 2000)
    assert [durable.queue(name).waiting() for name in ("one", "two")] == [2, 2]
