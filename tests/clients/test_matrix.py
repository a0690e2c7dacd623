"""Every client publishes for every other client."""

from random import Random

import pytest

from tests.clients.client import KINDS, Kind
from tests.clients.factory import ClientFactory


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("subscriber", KINDS, ids=str)
@pytest.mark.parametrize("publisher", KINDS, ids=str)
def test_publisher_to_subscriber(
    clients: ClientFactory, topic: str, publisher: Kind, subscriber: Kind, qos: int
) -> None:
    """Twenty messages of mixed sizes cross once each and in order."""
    random = Random(f"{publisher}{subscriber}{qos}")
    payloads = [
        b"%d:%s" % (number, random.randbytes(random.choice((1, 50, 300))).hex().encode())
        for number in range(20)
    ]
    receiver = clients(subscriber, (f"{topic}/+", qos))
    sender = clients(publisher)
    sender.publish(f"{topic}/x", *payloads, qos=qos)
    sender.publish(f"{topic}/x", b"end", qos=qos)
    messages = receiver.receive_until(b"end")
    assert [message.payload for message in messages] == payloads
    assert {message.qos for message in messages} == {qos}
