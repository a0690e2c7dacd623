"""Every client publishes and receives at every QoS."""

from itertools import product

import pytest

from tests.clients.client import KINDS, Kind
from tests.clients.factory import ClientFactory
from tests.clients.program import ProgramClient

PAYLOADS = (b"21.5", "größer als 20 °C".encode(), bytes(range(256)), b"\0", b"")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_payloads_arrive_at_the_lower_qos(clients: ClientFactory, topic: str, kind: Kind) -> None:
    """A client gets what it published, byte for byte, at the lower of the two QoS."""
    for published, subscribed in product((0, 1, 2), repeat=2):
        name = f"{topic}/{published}/{subscribed}"
        client = clients(kind, (name, subscribed))
        for payload in PAYLOADS:
            client.publish(name, payload, qos=published)
        messages = client.receive(len(PAYLOADS))
        assert tuple(message.payload for message in messages) == PAYLOADS
        assert {message.qos for message in messages} == {min(published, subscribed)}
        assert {message.topic for message in messages} == {name}
        assert not any(message.retain or message.dup for message in messages)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.program != "mosquitto"], ids=str)
def test_unsubscribe(clients: ClientFactory, topic: str, kind: Kind) -> None:
    """After UNSUBACK nothing more comes for the filter, and other filters are untouched."""
    client = clients(kind, (f"{topic}/a", 1), (f"{topic}/b", 2))
    assert isinstance(client, ProgramClient)
    client.publish(f"{topic}/a", b"1", qos=1)
    assert [message.payload for message in client.receive(1)] == [b"1"]
    client.unsubscribe(f"{topic}/a")
    client.publish(f"{topic}/a", b"2", qos=1)
    client.publish(f"{topic}/b", b"3", qos=2)
    assert [message.payload for message in client.receive(1)] == [b"3"]


def test_websocket_subprotocol_of_mqtt_31(clients: ClientFactory, topic: str) -> None:
    """MQTT.js asks for the sub-protocol `mqttv3.1` when it speaks MQTT 3.1."""
    kind = Kind("mqttjs-ws-31", "mqttjs", websocket=True, version=3)
    client = clients(kind, (topic, 1))
    client.publish(topic, b"21.5", qos=1)
    assert [message.payload for message in client.receive(1)] == [b"21.5"]
