"""Retained messages, seen by every client."""

import pytest

from tests.clients.client import AT_ONE_QOS, KINDS, Kind
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


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_wildcard_subscription_gets_all_retained(
    clients: ClientFactory, topic: str, kind: Kind
) -> None:
    """One wildcard subscription is greeted by each retained message that it matches."""
    publisher = clients("paho")
    names = [f"{topic}/room/{number}" for number in range(50)]
    for name in names:
        publisher.publish(name, name.encode(), qos=1, retain=True)
    publisher.publish(f"{topic}/other", b"no", qos=1, retain=True)
    client = clients(kind, (f"{topic}/room/+", 1))
    messages = client.receive(len(names))
    assert sorted(message.topic for message in messages) == sorted(names)
    assert all(m.retain and m.payload == m.topic.encode() and m.qos == 1 for m in messages)
    publisher.publish(f"{topic}/room/end", b"end", qos=1)
    assert client.receive_until(b"end") == []
    for name in (*names, f"{topic}/other"):
        publisher.publish(name, b"", qos=1, retain=True)
