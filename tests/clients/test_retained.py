"""Retained messages, seen by every client."""

import pytest

from tests.clients.client import AT_ONE_QOS, Kind
from tests.clients.factory import ClientFactory


@pytest.mark.parametrize(("kind", "qos"), AT_ONE_QOS, ids=str)
def test_retained(clients: ClientFactory, topic: str, kind: Kind, qos: int) -> None:
    """The last retained message greets a new subscription; an empty one removes it."""
    publisher = clients(kind)
    live = clients("paho", (topic, qos))
    publisher.publish(topic, b"old", qos=qos, retain=True)
    publisher.publish(topic, b"new", qos=qos, retain=True)
    assert [(m.payload, m.retain) for m in live.receive(2)] == [(b"old", False), (b"new", False)]

    late = clients(kind, (topic, qos))
    [greeting] = late.receive(1)
    assert (greeting.payload, greeting.qos, greeting.retain) == (b"new", qos, True)

    publisher.publish(topic, b"", qos=qos, retain=True)
    [cleared] = live.receive(1)
    assert (cleared.payload, cleared.retain) == (b"", False)
    later = clients(kind, (topic, qos))
    publisher.publish(topic, b"end", qos=qos)
    assert later.receive_until(b"end") == []
