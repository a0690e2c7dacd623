"""Every client publishes for every other client."""

from random import Random

import pytest

from tests.clients.client import KINDS, Kind
from tests.clients.factory import ClientFactory


@pytest.mark.parametrize("subscriber", KINDS, ids=str)
@pytest.mark.parametrize("publisher", KINDS, ids=str)
def test_publisher_to_subscriber(
    clients: ClientFactory, topic: str, publisher: Kind, subscriber: Kind
) -> None:
    """Ten messages of mixed sizes cross once each and in order, at each QoS."""
    random = Random(f"{publisher}{subscriber}")
    payloads = [
        b"%d:%s" % (number, random.randbytes(random.choice((1, 50, 300))).hex().encode())
        for number in range(10)
    ]
    sender = clients(publisher)
    for qos in (0, 1, 2):
        receiver = clients(subscriber, (f"{topic}/{qos}/+", qos))
        sender.publish(f"{topic}/{qos}/x", *payloads, b"end", qos=qos)
        messages = receiver.receive_until(b"end")
        assert [message.payload for message in messages] == payloads
        assert {message.qos for message in messages} == {qos}
