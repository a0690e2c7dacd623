"""Real clients of a broker of two processes: they notice nothing of there being two."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from tests.support.broker_process import BrokerProcess
from tests.vmq.workers.several import TIMEOUT, Several

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")


#: Answers what is asked, in one worker only.
PLUGIN = """
from vmq_hooks import Plugin

class Mine(Plugin):
    def start(self, broker, config):
        if broker.worker == 1:
            broker.spawn(self.answer(broker), "answer")

    async def answer(self, broker):
        async with broker.subscribe("ask/#", qos=1) as messages:
            async for message in messages:
                await broker.publish("answer", message.payload, qos=1)
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    plugin = tmp_path_factory.mktemp("plugins") / "mine.py"
    plugin.write_text(PLUGIN)
    env = {"VMQ_PLUGINS__MINE__PATH": str(plugin)}
    args = ("--workers", "2", "--node-name", "n", "--allow-anonymous")
    with BrokerProcess.start(LISTEN, args=args, env=env) as broker:
        yield Several(broker)


class Paho:
    """paho-mqtt's client on one of the workers."""

    def __init__(self, several: Several, number: int, name: str, *, clean: bool) -> None:
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self._granted: queue.Queue[list[ReasonCode]] = queue.Queue()
        where = f'client_id = "{name}" and is_online'
        for _ in range(100):
            self._connect(several, name, clean)
            if several.worker_api(number, "GET", "/sessions", where=where)["rows"]:
                return
            self.close()
        raise AssertionError(f"no connection came to worker {number}")

    def _connect(self, several: Several, name: str, clean: bool) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, name, clean_session=clean)
        connected: queue.Queue[object] = queue.Queue()
        self._client.on_connect = lambda *_: connected.put(None)
        self._client.on_message = lambda _client, _data, message: self.messages.put(message)
        self._client.on_subscribe = lambda _client, _data, _mid, codes, _properties: (
            self._granted.put(codes)
        )
        self._client.connect(*several.broker.tcp)
        self._client.loop_start()
        connected.get(timeout=TIMEOUT)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self._client.subscribe(topic_filter, qos)
        assert [code.value for code in self._granted.get(timeout=TIMEOUT)] == [qos]

    def publish(self, topic: str, payload: str, qos: int = 0, *, retain: bool = False) -> None:
        self._client.publish(topic, payload, qos, retain).wait_for_publish(TIMEOUT)

    def received(self, count: int) -> list[str]:
        """The payloads of the next messages."""
        return [self.messages.get(timeout=TIMEOUT).payload.decode() for _ in range(count)]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


Connect = Callable[..., Paho]


@pytest.fixture
def connect(several: Several) -> Iterator[Connect]:
    with ExitStack() as stack:

        def connected(number: int, name: str, *, clean: bool = True) -> Paho:
            client = Paho(several, number, name, clean=clean)
            stack.callback(client.close)
            return client

        yield connected


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_reaches_subscribers_of_all_workers(connect: Connect, qos: int) -> None:
    subscribers = [connect(number, f"sub-{qos}-{number}") for number in (1, 2)]
    for each in subscribers:
        each.subscribe(f"all/{qos}/#", qos)
    for number in (1, 2):
        publisher = connect(number, f"pub-{qos}-{number}")
        # That the others know of a subscription may come a moment after its SUBACK.
        while True:
            publisher.publish(f"all/{qos}/probe", "probe", qos)
            try:
                subscribers[2 - number].messages.get(timeout=0.2)
            except queue.Empty:
                continue
            break
        for message in range(20):
            publisher.publish(f"all/{qos}/x", f"{number}-{message}", qos)
        for each in subscribers:
            wanted = [f"{number}-{message}" for message in range(20)]
            while (first := each.received(1)) == ["probe"]:
                pass
            assert first + each.received(len(wanted) - 1) == wanted


def test_a_plugin_that_works_in_one_of_them_serves_all(connect: Connect) -> None:
    client = connect(2, "asks")
    client.subscribe("answer", 1)
    client.publish("ask/1", "one", 1)
    client.publish("ask/1", "two", 1)
    assert client.received(2) == ["one", "two"]
    client.publish("answer", "last", 1)
    assert client.received(1) == ["last"]


def test_a_restarted_worker_knows_of_absent_sessions_when_it_accepts(
    several: Several, connect: Connect
) -> None:
    absent = connect(1, "absent", clean=False)
    absent.subscribe("kept/#", 1)
    absent.close()
    several.kill(2)
    connect(2, "publisher").publish("kept/1", "while away", 1)
    assert connect(1, "absent", clean=False).received(1) == ["while away"]
