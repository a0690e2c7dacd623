"""Large payloads, many messages and long backlogs, with every client."""

from random import Random

import pytest

from tests.clients.client import AT_ONE_QOS, KINDS, Kind
from tests.clients.factory import ClientFactory, new_client_id

MIB = 1 << 20
WEBSOCKET_KINDS = [kind for kind in KINDS if kind.websocket]


@pytest.mark.parametrize(("kind", "qos"), AT_ONE_QOS, ids=str)
def test_large_payload(clients: ClientFactory, topic: str, kind: Kind, qos: int) -> None:
    """A payload of 1 MiB arrives unharmed, with small messages before and after it."""
    # The WebSocket library under amqtt refuses messages above 1 MiB, headers included.
    size = MIB - 1024 if kind.name == "amqtt-ws" else MIB
    large = Random(f"{kind}{qos}").randbytes(size)
    client = clients(kind, (topic, qos))
    for payload in (b"before", large, b"after"):
        client.publish(topic, payload, qos=qos)
        # One by one: each of the mosquitto programs has a connection of its own, which may overtake another.
        assert [message.payload for message in client.receive(1)] == [payload]


@pytest.mark.parametrize("kind", WEBSOCKET_KINDS, ids=str)
def test_large_backlog_over_websocket(roomy_clients: ClientFactory, topic: str, kind: Kind) -> None:
    """A backlog of 3 MB drains to a client that refuses WebSocket messages above 1 MiB.

    The window lets 2 MB through at once: a broker that packed that into one WebSocket message
    would lose amqtt's client each time it connects.
    """
    client_id = new_client_id(kind)
    publisher = roomy_clients("paho")
    roomy_clients(kind, (topic, 1), client_id=client_id, clean=False).close()
    payloads = [Random(number).randbytes(100_000) for number in range(30)]
    publisher.publish(topic, *payloads, qos=1)
    client = roomy_clients(kind, client_id=client_id, clean=False)
    assert [message.payload for message in client.receive(len(payloads))] == payloads
