"""Every client publishes for every other client."""

from random import Random

from tests.clients.client import KINDS
from tests.clients.factory import ClientFactory


def test_publishers_to_subscribers(clients: ClientFactory, topic: str) -> None:
    """Ten messages of each, of mixed sizes, reach all others once and in order."""
    receivers = {kind: clients(kind, (f"{topic}/+", 2)) for kind in KINDS}
    for publisher in KINDS:
        random = Random(str(publisher))
        payloads = [
            b"%d:%s" % (number, random.randbytes(random.choice((1, 50, 300))).hex().encode())
            for number in range(10)
        ]
        clients(publisher).publish(f"{topic}/{publisher}", *payloads, b"end", qos=2)
        for subscriber, receiver in receivers.items():
            messages = receiver.receive_until(b"end")
            found = [message.payload for message in messages]
            assert found == payloads, f"{publisher} to {subscriber}"
            assert {message.qos for message in messages} == {2}
