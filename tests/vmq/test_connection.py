"""A connection between an asyncio transport and a session."""

import pytest

from tests.support.wire import (
    PINGREQ_BYTES,
    PINGRESP_BYTES,
    Will,
    connect_packet,
    publish_packet,
    subscribe_packet,
)
from tests.vmq.support import Client, House, MemoryTransport
from vmq.connection import Connection


@pytest.fixture
def house() -> House:
    return House()


# --- opening and closing


def test_the_listener_is_told_of_both_ends_once(house: House) -> None:
    client = Client(house)
    assert client.opened == [client.connection]
    client.connect("c")
    assert client.ended == []
    client.lose()
    client.connection.connection_lost(None)
    assert client.ended == [client.connection]


def test_a_connection_is_told_of_before_anything_is_read(house: House) -> None:
    seen: list[object] = []
    transport = MemoryTransport()
    connection = Connection(
        house.registry,
        True,
        "id",
        lambda connection: seen.append(connection.transport),
        lambda connection: seen.append(connection.transport),
    )
    connection.connection_made(transport)
    connection.connection_lost(None)
    assert seen == [transport, None]


def test_the_end_of_the_stream_closes_the_transport(house: House) -> None:
    client = house.client("c")
    assert client.connection.eof_received() is False


def test_closing_writes_what_is_there_first(house: House) -> None:
    client = house.client("c")
    client.connection.add(PINGRESP_BYTES)
    client.connection.close("enough")
    assert not client.is_closed()
    house.settle()
    assert client.take_bytes() == PINGRESP_BYTES
    assert client.is_closed()


def test_closing_twice_ends_the_session_once(house: House) -> None:
    watcher = house.client("w")
    watcher.subscribe(("will", 0))
    client = house.client("c", will=Will("will", b"x"))
    client.connection.close("one reason")
    client.connection.close("another")
    house.settle()
    assert watcher.payloads() == [b"x"]


def test_what_is_written_to_a_lost_connection_goes_nowhere(house: House) -> None:
    client = house.client("c")
    connection = client.connection
    client.lose()
    connection.add(PINGRESP_BYTES)
    house.settle()
    assert connection.pieces == []
    assert client.take_bytes() == b""
    connection.abort()


def test_aborting_drops_the_transport_at_once(house: House) -> None:
    client = house.client("c")
    client.connection.add(PINGRESP_BYTES)
    client.connection.abort()
    assert client.transport.aborted


def test_a_loss_during_a_pass_of_another_is_written_out(house: House) -> None:
    """Nobody flushes after `connection_lost` but the connection itself."""
    house.patient = True
    watcher = house.client("w")
    watcher.send(subscribe_packet(1, ("will", 0)))
    watcher.take()
    client = house.client("c", will=Will("will", b"x"))
    client.lose()
    assert watcher.payloads() == [b"x"]


# --- the peer's name


@pytest.mark.parametrize(
    ("peer", "shown"),
    (
        (("192.0.2.1", 4711), "192.0.2.1:4711"),
        (("2001:db8::1", 4711, 0, 0), "[2001:db8::1]:4711"),
        ("embedded", "embedded"),
        (None, "None"),
    ),
)
def test_the_peer_is_shown_as_an_address(house: House, peer: object, shown: str) -> None:
    client = Client(house)
    client.transport.peer = peer
    assert client.connection.describe() == shown


def test_the_peer_is_known_after_the_end(house: House) -> None:
    client = Client(house)
    shown = client.connection.describe()
    client.lose()
    assert client.connection.describe() == shown == "192.0.2.1:4711"


# --- time


def test_bytes_from_the_peer_are_a_sign_of_life_and_bytes_to_it_are_not(house: House) -> None:
    client = house.client("c")
    client.subscribe(("a", 0))
    seen = client.connection.seen
    client.connection.expiring = True
    house.clock.advance(5)
    house.publish("a", b"x")
    assert client.connection.seen == seen
    assert client.connection.expiring
    client.send(PINGREQ_BYTES)
    assert client.connection.seen == seen + 5
    assert not client.connection.expiring


def test_the_session_task_is_woken_when_connect_is_accepted_and_at_the_end(house: House) -> None:
    client = Client(house)
    woken: list[str] = []
    client.connection.wake_task = lambda: woken.append("woken")
    client.send(connect_packet("c")[:4])
    assert woken == []
    client.send(connect_packet("c")[4:])
    assert woken == ["woken"]
    client.send(PINGREQ_BYTES)
    assert woken == ["woken"]
    client.disconnect()
    assert woken == ["woken"] * 2


# --- a peer that does not read


def test_a_full_socket_leaves_messages_to_the_queue(house: House) -> None:
    client = house.client("c")
    client.subscribe(("a", 0))
    client.block()
    house.publish("a", b"x")
    assert client.take_bytes() == b""
    client.unblock()
    assert client.payloads() == [b"x"]


def test_blocking_before_connect_counts_as_well(house: House) -> None:
    client = Client(house)
    client.block()
    client.connect("c")
    client.subscribe(("a", 0))
    house.publish("a", b"x")
    assert client.take_bytes() == b""
    client.unblock()
    assert client.payloads() == [b"x"]


def test_a_peer_that_takes_no_replies_is_not_read_further(house: House) -> None:
    client = house.client("c")
    client.connection.reply_limit = 1000
    client.block()
    client.transport.buffered = 1000
    client.send(PINGREQ_BYTES)
    assert client.transport.is_reading()
    client.transport.buffered = 1001
    client.send(PINGREQ_BYTES * 3)
    assert not client.transport.is_reading()
    client.send(PINGREQ_BYTES)  # what was read before is still handled
    client.transport.buffered = 0
    client.unblock()
    assert client.transport.is_reading()
    assert client.take_bytes() == PINGRESP_BYTES * 5


def test_a_flood_of_requests_without_reading_costs_a_bounded_amount(house: House) -> None:
    """As an event loop behaves: it reads while it may, and the socket takes nothing."""
    client = house.client("c")
    client.connection.reply_limit = 10_000
    rounds = 0
    while client.transport.is_reading() and rounds < 10_000:
        rounds += 1
        client.send(PINGREQ_BYTES * 50, publish_packet("a", b"x", qos=1, packet_id=1) * 50)
        client.transport.buffered = len(client.transport.written)
        if client.transport.buffered > 5_000 and not client.connection.blocked:
            client.block()
    assert not client.transport.is_reading()
    assert len(client.transport.written) < 11_000


def test_replies_that_wait_for_a_slow_disk_are_bounded_as_well(house: House) -> None:
    client = house.client("c")
    house.patient = True
    client.connection.reply_limit = 10_000
    client.connection.barrier = 1
    rounds = 0
    while client.transport.is_reading() and rounds < 1_000:
        rounds += 1
        client.send(PINGREQ_BYTES * 50)
    assert not client.transport.is_reading()
    assert client.connection.held_bytes < 11_000
    house.core.outbox.release(1)
    assert client.take_bytes() == PINGRESP_BYTES * 50 * rounds
    assert client.connection.held_bytes == 0
    assert client.transport.is_reading()


def test_many_small_replies_behind_a_slow_disk_count_what_they_cost(house: House) -> None:
    client = house.client("c")
    house.patient = True
    client.connection.reply_limit = 10_000
    client.connection.barrier = 1
    for _ in range(100):
        client.send(PINGREQ_BYTES)
    assert not client.transport.is_reading(), "100 replies of two bytes are 100 objects"


def test_messages_do_not_pile_up_behind_a_slow_disk(house: House) -> None:
    house.options.max_online_messages = 5
    client = house.client("c")
    client.subscribe(("a", 0))
    publisher = house.client("p")
    house.patient = True
    client.connection.barrier = 1
    client.connection.reply_limit = 40_000
    for number in range(100):
        publisher.send(publish_packet("a", b"%03d" % number + b"." * 1_000))
    assert client.connection.held_bytes < 13_000
    assert client.queue.waiting() == 5
    sent = 100 - 5 - client.queue.dropped
    client.connection.barrier = 0
    house.core.outbox.release(1)
    assert [int(each[:3]) for each in client.payloads()] == [*range(sent + 5)]
    assert not client.connection.blocked
    assert client.queue.fast


def test_a_slow_disk_and_a_full_socket_must_both_be_over(house: House) -> None:
    client = house.client("c")
    house.patient = True
    client.connection.reply_limit = 400
    client.connection.barrier = 1
    client.send(PINGREQ_BYTES)
    states = []
    client.block()
    house.core.outbox.release(1)
    states.append(client.connection.blocked)
    client.unblock()
    states.append(client.connection.blocked)
    client.connection.barrier = 2
    client.send(PINGREQ_BYTES)
    client.block()
    client.unblock()
    states.append(client.connection.blocked)
    house.core.outbox.release(2)
    states.append(client.connection.blocked)
    assert states == [True, False, True, False]


def test_a_peer_that_is_only_slow_is_read_on(house: House) -> None:
    client = house.client("c")
    client.connection.reply_limit = 10
    client.transport.buffered = 100
    client.send(PINGREQ_BYTES)
    assert client.transport.is_reading(), "not blocked: the loop has room"


def test_unblocking_a_closing_connection_sends_nothing_more(house: House) -> None:
    client = house.client("c")
    client.subscribe(("a", 0))
    client.block()
    house.publish("a", b"x")
    client.connection.replies_unread = True
    client.transport.reading = False
    client.connection.close("enough")
    client.connection.resume_writing()
    house.settle()
    assert client.take_bytes() == b""
    assert not client.transport.is_reading()


def test_the_queue_of_a_session_that_was_taken_over_is_not_touched(house: House) -> None:
    older = house.client("c")
    older.subscribe(("a", 0))
    newer = house.client("c")
    newer.subscribe(("a", 0))
    older.connection.pause_writing()
    house.publish("a", b"x")
    assert newer.payloads() == [b"x"]
    older.connection.resume_writing()
    newer.ping()
