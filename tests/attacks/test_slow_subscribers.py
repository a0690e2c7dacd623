"""Subscribers slower than their publishers, with the options as they are shipped: what is acknowledged arrives."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tests.attacks.size import size
from tests.support.wire import PUBACK, Packet, Wire, puback_packet, publish_packet

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory
    from vmq.testing.process import BrokerProcess

#: Messages that the publisher has under way at once.
UNDER_WAY: Final = 100


def publish_all(publisher: Wire, numbers: range, acknowledged: list[int]) -> None:
    """Publishes numbers at QoS 1, and notes those that were acknowledged."""
    for begin in range(numbers.start, numbers.stop, UNDER_WAY):
        some = range(begin, min(begin + UNDER_WAY, numbers.stop))
        publisher.send(
            *(
                publish_packet("t", b"%d" % each, qos=1, packet_id=each % 60_000 + 1)
                for each in some
            )
        )
        for each in some:
            publisher.expect(PUBACK)
            acknowledged.append(each)


def take(subscriber: Wire, received: list[Packet], count: int) -> None:
    """Receives and acknowledges until it has so many messages."""
    while len(received) < count:
        packets = subscriber.recv_packets()
        received += packets
        subscriber.send(*(puback_packet(each.packet_id) for each in packets))


def connect_subscriber(broker: BrokerProcess, stack: ExitStack, *, clean: bool = False) -> Wire:
    wire = stack.enter_context(Wire.connect_tcp(broker.tcp))
    if not wire.connect("slow", clean=clean).session_present:
        wire.subscribe(("t", 1))
    return wire


def test_a_connected_durable_subscriber_that_is_slower_loses_nothing(
    fresh_broker: BrokerFactory,
) -> None:
    """It lags by thousands of messages; in the middle the broker is killed."""
    total = size(6000, 40_000)
    acknowledged: list[int] = []
    received: list[Packet] = []
    broker = fresh_broker()
    with ExitStack() as stack:
        subscriber = connect_subscriber(broker, stack)
        publisher = stack.enter_context(Wire.connected(broker.tcp, "publisher"))
        publish_all(publisher, range(total // 2), acknowledged)
        take(subscriber, received, total // 10)
        broker.kill()
        broker.wait()
    broker = fresh_broker(data_dir=broker.data_dir)
    with ExitStack() as stack:
        subscriber = connect_subscriber(broker, stack)
        publisher = stack.enter_context(Wire.connected(broker.tcp, "publisher"))
        publish_all(publisher, range(total // 2, total), acknowledged)
        seen = {int(each.payload) for each in received}
        while len(seen) < total:
            some: list[Packet] = []
            take(subscriber, some, 1)
            received += some
            seen.update(int(each.payload) for each in some)
    assert acknowledged == list(range(total))
    first = [int(each.payload) for each in received if not each.dup]
    assert first == sorted(first)
    assert [number for number, count in Counter(first).items() if count > 1] == []
    assert "drop" not in broker.stderr_text()


def test_many_publishers_with_one_message_each_under_way_to_one_clean_subscriber_lose_nothing(
    fresh_broker: BrokerFactory,
) -> None:
    """Together they are faster than the window of one subscriber; none of them is alone."""
    clients, rounds = size(100, 2000), size(40, 100)
    broker = fresh_broker()
    received: list[Packet] = []
    with ExitStack() as stack:
        subscriber = connect_subscriber(broker, stack, clean=True)
        publishers = []
        for index in range(clients):
            publisher = stack.enter_context(Wire.connected(broker.tcp, f"p{index}"))
            publishers.append(publisher)
        for turn in range(rounds):
            for index, publisher in enumerate(publishers):
                payload = b"%d %d" % (index, turn)
                publisher.send(publish_packet("t", payload, qos=1, packet_id=1))
            for publisher in publishers:
                publisher.expect(PUBACK)
            take(subscriber, received, (turn + 1) * clients // 3)
        take(subscriber, received, rounds * clients)
    found = [tuple(int(part) for part in each.payload.split()) for each in received]
    assert len(found) == len(set(found)) == rounds * clients
    last: dict[int, int] = {}
    for index, turn in found:
        assert turn == last.get(index, -1) + 1
        last[index] = turn
