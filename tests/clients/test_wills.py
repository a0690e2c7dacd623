"""Last wills of clients whose process is killed."""

import pytest

from tests.clients.client import KINDS, Kind, Will
from tests.clients.factory import ClientFactory


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_will_of_a_killed_client(clients: ClientFactory, topic: str, kind: Kind) -> None:
    """SIGKILL makes the broker publish the will; a clean end does not."""
    watcher = clients("paho", (f"{topic}/+", 2))
    will = Will(f"{topic}/gone", "gone", qos=1)

    polite = clients(kind, (f"{topic}/in", 0), will=will)
    polite.close()
    watcher.publish(f"{topic}/mark", b"mark", qos=1)
    assert watcher.receive_until(b"mark") == []

    victim = clients(kind, (f"{topic}/in", 0), will=will, own_program=True)
    victim.kill()
    [message] = watcher.receive(1)
    assert (message.topic, message.payload, message.qos) == (will.topic, b"gone", 1)
    assert message.retain is False
    late = clients("paho", (will.topic, 1))
    late.publish(will.topic, b"mark", qos=1)
    assert late.receive_until(b"mark") == []


@pytest.mark.parametrize("program", ("paho", "aiomqtt", "mosquitto", "mqttjs"))
def test_retained_will(clients: ClientFactory, topic: str, program: str) -> None:
    """A will with the retain flag is kept for later subscribers."""
    watcher = clients("paho", (topic, 2))
    victim = clients(
        program, (f"{topic}/in", 0), will=Will(topic, "gone", 2, retain=True), own_program=True
    )
    victim.kill()
    [message] = watcher.receive(1)
    assert (message.payload, message.qos, message.retain) == (b"gone", 2, False)
    late = clients("paho", (topic, 2))
    [message] = late.receive(1)
    assert (message.payload, message.qos, message.retain) == (b"gone", 2, True)
    watcher.publish(topic, b"", retain=True)
