"""Whose publications are on their way: what of the publisher goes along with each."""

from typing import Any

import pytest

from tests.support.wire import Will, publish_packet
from tests.vmq.support import Client, House
from vmq.core.source import Source


@pytest.fixture
def full(house: House) -> Client:
    """A client whose queue is full, and stops those who publish to it."""
    house.options.pause_publisher = True
    house.options.max_online_messages = 1
    house.options.max_inflight_messages = 1
    client = house.subscriber("s", ("full", 1))
    client.block()
    while client.queue.waiting() < 1:
        house.publish("full", b"x", 1)
    return client


def is_read(client: Client) -> bool:
    return client.transport.is_reading()


def test_who_publishes_to_a_full_queue_is_read_no_further(house: House, full: Client) -> None:
    publisher = house.client("p")
    publisher.send(publish_packet("full", b"1", qos=1, packet_id=1))
    assert not is_read(publisher)
    assert full.queue.waiting() == 2
    house.publish("full", b"of nobody", 1)
    assert full.queue.dropped == 1


def test_one_publication_amid_another_leaves_each_its_own_source(
    house: House, full: Client
) -> None:
    """A plugin that publishes while it is told of a message stops whom it publishes by, and no one else."""
    inner, outer = house.client("inner"), house.client("outer")

    def on_publish(_user: Any, who: Any, message: Any) -> None:
        if message.topic == "first":
            inner.connection.data_received(publish_packet("elsewhere", b"x"))

    house.core.hooks.on_publish = on_publish
    house.core.hooks.resolve()
    outer.send(
        publish_packet("first", b"x", qos=1, packet_id=1),
        publish_packet("full", b"x", qos=1, packet_id=2),
    )
    assert is_read(inner)
    assert not is_read(outer)


def test_a_will_stops_nobody(house: House, full: Client) -> None:
    """Neither a connection that ends, nor the one that takes its session over."""
    house.client("c", will=Will("full", b"gone", qos=1))
    successor = house.client("c")
    assert is_read(successor)
    assert full.queue.dropped == 1


def test_messages_of_another_node_stop_nobody_here(house: House, full: Client) -> None:
    source = Source(house.core.outbox.nowhere, node="b")
    assert source.publisher() is None
    house.publish("full", b"x", 1, source=source)
    assert full.queue.dropped == 1


def test_a_connection_that_ends_is_nobody_to_stop(client: Client) -> None:
    session = client.connection.session
    assert session.publisher() is client.connection
    client.disconnect()
    assert session.publisher() is None
    assert (session.client_id, session.node) == ("c", "")
