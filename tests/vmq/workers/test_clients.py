"""Real clients of a broker of two processes: they notice nothing of there being two."""

import os
import queue
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from tests.support.until import reach
from tests.support.wire import connect_packet
from tests.vmq.workers.several import TIMEOUT, Several
from vmq.testing.authority import Authority
from vmq.testing.process import BrokerProcess

CONFIG = """
[broker]
workers = 2
[cluster]
node_name = "n"
[listeners.tcp]
url = "tcp://127.0.0.1:0"
[listeners.http]
url = "http://127.0.0.1:0"
[listeners.tls]
url = "tls://127.0.0.1:0"
certfile = "{certfile}"
keyfile = "{keyfile}"
[listeners.proxied]
url = "ws://127.0.0.1:0/mqtt"
proxy_protocol = true
[streams.readings]
filters = ["readings/#"]
partitions = 4
[mappings.once]
from = "$stream/readings;from=earliest"
where = "payload.startsWith('once-')"
to = ["seen/${{level(2)}}"]

[plugins.mine]
path = "{plugin}"
"""

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "authority")


@pytest.fixture(scope="module")
def several(folder: Path, authority: Authority) -> Iterator[Several]:
    server = authority.issue("server", ["localhost"])
    plugin, file = folder / "mine.py", folder / "vmq.toml"
    plugin.write_text(PLUGIN)
    file.write_text(CONFIG.format(certfile=server.certfile, keyfile=server.keyfile, plugin=plugin))
    with BrokerProcess.start((), args=("--config", str(file), "--allow-anonymous")) as broker:
        yield Several(broker)


class Paho:
    """paho-mqtt's client on one of the workers."""

    def __init__(self, several: Several, number: int, name: str, *, clean: bool) -> None:
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self._granted: queue.Queue[list[ReasonCode]] = queue.Queue()
        where = f'client_id = "{name}" and is_online'
        for _ in range(100):
            self._connect(several, name, clean)
            if several.worker_api(number, "GET", "/sessions", where=where, local="true")["rows"]:
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


def probe(publisher: Paho, subscriber: Paho, topic: str, qos: int) -> None:
    """Until it is heard: that the others know of a subscription may come a moment after its SUBACK."""
    while True:
        publisher.publish(topic, "probe", qos)
        try:
            subscriber.messages.get(timeout=0.2)
        except queue.Empty:
            continue
        return


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_reaches_subscribers_of_all_workers(connect: Connect, qos: int) -> None:
    subscribers = [connect(number, f"sub-{qos}-{number}") for number in (1, 2)]
    for each in subscribers:
        each.subscribe(f"all/{qos}/#", qos)
    for number in (1, 2):
        publisher = connect(number, f"pub-{qos}-{number}")
        probe(publisher, subscribers[2 - number], f"all/{qos}/probe", qos)
        for message in range(20):
            publisher.publish(f"all/{qos}/x", f"{number}-{message}", qos)
        for each in subscribers:
            wanted = [f"{number}-{message}" for message in range(20)]
            while (first := each.received(1)) == ["probe"]:
                pass
            assert first + each.received(len(wanted) - 1) == wanted


def test_a_retained_message_is_that_of_all_workers(several: Several, connect: Connect) -> None:
    connect(1, "keeps").publish("kept/last", "value", 1, retain=True)

    def rows(number: int) -> list[str]:
        answer = several.worker_api(number, "GET", "/retained", filter="kept/#")
        return [row["topic"] for row in answer["rows"]]

    reach(lambda: rows(1) == rows(2) == ["kept/last"])
    late = connect(2, "late")
    late.subscribe("kept/#", 1)
    assert late.received(1) == ["value"]
    _, listed = several.api("GET", "/retained", filter="kept/#")
    assert [row["topic"] for row in listed["rows"]] == ["kept/last"]
    assert several.api("DELETE", "/retained", filter="kept/#")[1]["deleted"] == 1
    reach(lambda: rows(1) == rows(2) == [])


def test_members_at_all_workers_share_the_partitions_of_a_stream(connect: Connect) -> None:
    members = [connect(number, f"member-{number}") for number in (1, 2)]
    for each in members:
        each.subscribe("$share/billing/$stream/readings;from=earliest", 1)
    publisher = connect(1, "device")
    wanted = [str(number) for number in range(40)]
    for number in wanted:
        publisher.publish(f"readings/{number}", number, 1)
    reach(lambda: sum(each.messages.qsize() for each in members) >= len(wanted))
    found = [number for each in members for number in each.received(each.messages.qsize())]
    assert sorted(found, key=int) == wanted


def test_a_mapping_maps_each_row_of_a_stream_once_whoever_of_the_workers_reads_it(
    connect: Connect,
) -> None:
    watchers = [connect(number, f"watcher-{number}") for number in (1, 2)]
    for each in watchers:
        each.subscribe("seen/#", 1)
    wanted = [f"once-{number}" for number in range(40)]
    for number, payload in enumerate(wanted):
        watchers[number % 2].publish(f"readings/{number}", payload, 1)
    for each in watchers:
        assert sorted(each.received(len(wanted))) == sorted(wanted)
    watchers[0].publish("seen/last", "last", 1)
    assert [each.received(1) for each in watchers] == [["last"], ["last"]]


def address_of(several: Several, scheme: str) -> tuple[str, int]:
    (url,) = (each for each in several.broker.urls if each.startswith(f"{scheme}://"))
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def test_tls_is_that_of_one_process(several: Several, authority: Authority) -> None:
    context = authority.client_context()
    with (
        socket.create_connection(address_of(several, "tls"), TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        sock.sendall(connect_packet("secured"))
        assert sock.recv(4) == b"\x20\x02\x00\x00"
        assert several.api("GET", "/session", client_id="secured")[0] == 200


def test_the_address_in_a_proxy_header_is_the_clients(several: Several) -> None:
    with socket.create_connection(address_of(several, "ws"), TIMEOUT) as sock:
        sock.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 1883\r\n")
        sock.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        )
        sock.sendall(
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        )
        sock.sendall(b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 101")
        packet = connect_packet("proxied")
        sock.sendall(bytes([0x82, 0x80 | len(packet), 0, 0, 0, 0]) + packet)
        assert sock.recv(6) == b"\x82\x04\x20\x02\x00\x00"
        _, session = several.api("GET", "/session", client_id="proxied")
        assert session["peer_host"] == "192.0.2.7"


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


def test_what_was_acknowledged_reaches_another_worker_though_its_own_is_killed(
    several: Several, connect: Connect
) -> None:
    """And though that other one, with a clean session, could not read it until then."""
    subscriber, publisher = connect(2, "survivor"), connect(1, "killed")
    subscriber.subscribe("survives", 1)
    probe(publisher, subscriber, "survives", 1)
    killed, stopped = reach(lambda: several.pid(1)), reach(lambda: several.pid(2))
    os.kill(stopped, signal.SIGSTOP)
    try:
        for message in range(100):
            publisher.publish("survives", str(message), 1)
        os.kill(killed, signal.SIGKILL)
    finally:
        os.kill(stopped, signal.SIGCONT)
    while (first := subscriber.received(1)) == ["probe"]:
        pass
    assert first + subscriber.received(99) == [str(message) for message in range(100)]
    reach(lambda: several.pid(1) not in (0, killed))


def test_a_ban_counts_the_clients_of_all_workers(several: Several) -> None:
    wires = [several.client_on(number, f"banned-{number}") for number in (1, 2)]
    for number in (1, 2):
        status, row = several.api("POST", "/ban", client_id=f"banned-{number}")
        assert (status, row["disconnected"]) == (200, 1), row
    for number, wire in zip((1, 2), wires, strict=True):
        with wire:
            wire.expect_closed()
        several.api("DELETE", "/ban", client_id=f"banned-{number}")
