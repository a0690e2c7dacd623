"""MQTT.js as a device of a cluster: durable sessions, which connect again when a test says so."""

from itertools import count
from time import monotonic

from tests.clients.client import BY_NAME, TIMEOUT
from tests.clients.program import Program, ProgramClient
from tests.cluster_processes.cluster import Node
from tests.support.node import installed_modules


class MqttJs:
    def __init__(self) -> None:
        installed_modules()
        self._program = Program("mqttjs")
        self._names = count()

    def open(self, client_id: str, node: Node, *filters: str) -> ProgramClient:
        """A client, connected and subscribed at QoS 2."""
        name = f"{client_id}-{next(self._names)}"
        client = ProgramClient(BY_NAME["mqttjs"], client_id, self._program, name)
        url = f"tcp://{node.host}:{node.port}"
        client.open(url, clean=False, keepalive=60, will=None)
        if filters:
            assert client.subscribe(*((each, 2) for each in filters)) == [2] * len(filters)
        return client

    def wait_routed(
        self, publisher: ProgramClient, topic: str, *subscribers: ProgramClient
    ) -> None:
        """Waits until what one publishes reaches the others; they have got nothing else afterwards."""
        deadline = monotonic() + TIMEOUT
        for subscriber in subscribers:
            while True:
                publisher.publish(topic, b"probe")
                try:
                    subscriber.receive(1, 0.1)
                    break
                except AssertionError:
                    assert monotonic() < deadline, f"nothing reaches {subscriber.client_id}"
        publisher.publish(topic, b"last")
        for subscriber in subscribers:
            subscriber.receive_until(b"last")

    def close(self) -> None:
        self._program.close()
