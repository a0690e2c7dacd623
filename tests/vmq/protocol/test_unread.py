"""A connection whose peer does not read, or whose replies wait for the disk: what may wait for it is bounded."""

from tests.support import wire as mqtt
from tests.vmq.support import Client, House
from vmq.core.output import COMMITS, REPLIES, SOCKET


def test_a_full_socket_leaves_messages_to_the_queue(house: House) -> None:
    for is_full_at_first in (True, False):
        client = Client(house)
        if is_full_at_first:
            client.block()
        client.connect("c")
        client.subscribe(("a", 0))
        client.block()
        house.publish("a", b"x")
        assert client.take_bytes() == b""
        client.unblock()
        assert client.payloads() == [b"x"]


def test_a_peer_that_takes_no_replies_is_not_read_further(client: Client) -> None:
    client.connection.listener.reply_limit = 1000
    client.block()
    client.transport.buffered = 1000
    client.send(mqtt.PINGREQ_BYTES)
    assert client.transport.is_reading()
    client.transport.buffered = 1001
    client.send(mqtt.PINGREQ_BYTES * 3)
    assert not client.transport.is_reading()
    client.send(mqtt.PINGREQ_BYTES)  # what was read before is still handled
    client.transport.buffered = 0
    client.unblock()
    assert client.transport.is_reading()
    assert client.take_bytes() == mqtt.PINGRESP_BYTES * 5


def test_a_flood_of_requests_without_reading_costs_a_bounded_amount(client: Client) -> None:
    """As an event loop behaves: it reads while it may, and the socket takes nothing."""
    client.connection.listener.reply_limit = 10_000
    rounds = 0
    while client.transport.is_reading() and rounds < 10_000:
        rounds += 1
        client.send(
            mqtt.PINGREQ_BYTES * 50, mqtt.publish_packet("a", b"x", qos=1, packet_id=1) * 50
        )
        client.transport.buffered = len(client.transport.written)
        if client.transport.buffered > 5_000 and not client.connection.blocked:
            client.block()
    assert not client.transport.is_reading()
    assert len(client.transport.written) < 11_000


def test_replies_that_wait_for_a_slow_disk_are_bounded_as_well(
    house: House, client: Client
) -> None:
    house.patient = True
    client.connection.listener.reply_limit = 10_000
    client.connection.answer_after(house.core.outbox.stored, 1)
    rounds = 0
    while client.transport.is_reading() and rounds < 1_000:
        rounds += 1
        client.send(mqtt.publish_packet("t", b"", qos=1, packet_id=rounds) * 50)
    assert not client.transport.is_reading()
    assert client.connection.held_bytes < 11_000
    house.core.outbox.release(1)
    assert [each.packet_id for each in client.take()] == [
        number for number in range(1, rounds + 1) for _ in range(50)
    ]
    assert client.connection.held_bytes == 0
    assert client.transport.is_reading()


def test_many_small_replies_behind_a_slow_disk_count_what_they_cost(
    house: House, client: Client
) -> None:
    house.patient = True
    client.connection.listener.reply_limit = 10_000
    client.connection.answer_after(house.core.outbox.stored, 1)
    for _ in range(100):
        client.send(mqtt.publish_packet("t", b"", qos=1, packet_id=1))
    assert not client.transport.is_reading(), "100 replies of two bytes are 100 objects"


def test_messages_do_not_pile_up_behind_a_slow_disk(house: House) -> None:
    house.options.max_online_messages = 5
    client = house.subscriber("c", ("a", 0))
    publisher = house.client("p")
    house.patient = True
    client.connection.deliver_after(house.core.outbox.stored, 1)
    client.connection.listener.reply_limit = 40_000
    for number in range(100):
        publisher.send(mqtt.publish_packet("a", b"%03d" % number + b"." * 1_000))
    assert client.connection.held_bytes < 13_000
    assert client.queue.waiting() == 5
    sent = 100 - 5 - client.queue.dropped
    house.core.outbox.release(1)
    assert [int(each[:3]) for each in client.payloads()] == [*range(sent + 5)]
    assert not client.connection.blocked
    assert client.queue.fast


def test_a_slow_disk_and_a_full_socket_must_both_be_over(house: House, client: Client) -> None:
    house.patient = True
    client.connection.listener.reply_limit = 400
    delivery = b"\x30\x03\0\1t"
    client.connection.deliver_after(house.core.outbox.stored, 1)
    client.connection.add(delivery)
    house.core.outbox.flush()
    states = []
    client.block()
    house.core.outbox.release(1)
    states.append(client.connection.blocked)
    client.unblock()
    states.append(client.connection.blocked)
    client.connection.deliver_after(house.core.outbox.stored, 2)
    client.connection.add(delivery)
    house.core.outbox.flush()
    client.block()
    client.unblock()
    states.append(client.connection.blocked)
    house.core.outbox.release(2)
    states.append(client.connection.blocked)
    assert states == [SOCKET, 0, COMMITS, 0]


def test_a_peer_that_is_only_slow_is_read_on(client: Client) -> None:
    client.connection.listener.reply_limit = 10
    client.transport.buffered = 100
    client.send(mqtt.PINGREQ_BYTES)
    assert client.transport.is_reading(), "not blocked: the loop has room"


def test_unblocking_a_closing_connection_sends_nothing_more(house: House, client: Client) -> None:
    client.subscribe(("a", 0))
    client.block()
    house.publish("a", b"x")
    client.connection.pause_for(REPLIES)
    client.transport.reading = False
    client.connection.close("enough")
    client.connection.resume_writing()
    house.settle()
    assert client.take_bytes() == b""
    assert not client.transport.is_reading()


def test_the_queue_of_a_session_that_was_taken_over_is_not_touched(house: House) -> None:
    older = house.subscriber("c", ("a", 0))
    newer = house.subscriber("c", ("a", 0))
    older.connection.pause_writing()
    house.publish("a", b"x")
    assert newer.payloads() == [b"x"]
    older.connection.resume_writing()
    newer.ping()
