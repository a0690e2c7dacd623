"""Client libraries that read history and go on with what is appended; also when the broker is killed under them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from time import monotonic

import pytest

from tests.clients.client import TIMEOUT, Client
from tests.clients.factory import ClientFactory, unique
from tests.clients.program import Program
from vmq.testing.process import BrokerProcess

KINDS = (
    "paho",
    "paho-31",
    "paho-ws",
    "aiomqtt",
    "amqtt",
    "mosquitto",
    "mosquitto-31",
    "mqttjs",
    "mqttjs-ws",
)
LISTEN = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt")
STREAMS = """
[streams.history]
filters = ["history/#"]
partitions = 2
key = "level:2"
"""


def start(folder: Path) -> BrokerProcess:
    """A broker with a stream."""
    config = folder / "vmq.toml"
    config.write_text(STREAMS)
    args = ("--allow-anonymous", "--config", str(config))
    return BrokerProcess.start(LISTEN, folder / "data", args=args)


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start(tmp_path_factory.mktemp("history")) as broker:
        yield broker


@pytest.fixture
def readers(keeping: BrokerProcess, programs: Callable[[str], Program]) -> Iterator[ClientFactory]:
    factory = ClientFactory(keeping, programs)
    yield factory
    factory.close()


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(first, first + count)]


def received(client: Client, count: int) -> list[bytes]:
    return [message.payload for message in client.receive(count)]


@pytest.mark.parametrize(("kind", "qos"), [(kind, at % 2) for at, kind in enumerate(KINDS)])
def test_history_then_what_is_appended(readers: ClientFactory, kind: str, qos: int) -> None:
    topic = f"history/{unique()}"
    publisher = readers("paho")
    publisher.publish(topic, *numbers(0, 300), qos=1)
    client = readers(kind, (f"$replay/-1h/{topic}/#", qos))
    assert received(client, 300) == numbers(0, 300)
    publisher.publish(topic, *numbers(300, 50), qos=1)
    found = client.receive(50)
    assert [message.payload for message in found] == numbers(300, 50)
    assert {(message.topic, message.qos, message.retain) for message in found} == {
        (topic, qos, False)
    }


def test_a_group_of_several_kinds_skips_nothing_when_the_broker_is_killed(
    tmp_path: Path, programs: Callable[[str], Program]
) -> None:
    """Members of three libraries share the partitions; each topic comes in order, in both lives of the broker."""
    topics, many = [f"history/{number}" for number in range(8)], 200
    group = "$share/g/$stream/history;from=earliest;prefetch=50/history/#", 1
    found: dict[str, set[bytes]] = {topic: set() for topic in topics}
    for life in range(2):
        with start(tmp_path) as broker:
            clients = ClientFactory(broker, programs)
            publisher = clients("paho")
            for topic in topics:
                publisher.publish(topic, *numbers(life * many, many), qos=1)
            members = [clients(kind, group) for kind in ("paho", "aiomqtt", "mqttjs")]
            last: dict[tuple[Client, str], bytes] = {}
            wanted = len(topics) * many * (1 if not life else 2) - (600 if not life else 0)
            deadline = monotonic() + TIMEOUT
            while sum(map(len, found.values())) < wanted and monotonic() < deadline:
                for client in members:
                    take(client, found, last)
            if life:
                clients.close()
            else:
                broker.kill()
                close(clients)
                for client in members:
                    take(client, found, last)
    assert found == {topic: set(numbers(0, 2 * many)) for topic in topics}


def take(
    client: Client, found: dict[str, set[bytes]], last: dict[tuple[Client, str], bytes]
) -> None:
    """What a member has got; a topic of its comes in order."""
    while True:
        try:
            message = client.inbox.next(0.01)
        except Empty:
            return
        if message is None:
            return
        assert message.payload > last.get((client, message.topic), b"")
        last[client, message.topic] = message.payload
        found[message.topic].add(message.payload)


def close(clients: ClientFactory) -> None:
    """Parts clients whose broker is gone."""
    try:
        clients.close()
    except ExceptionGroup:
        pass
