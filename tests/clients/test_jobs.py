"""Jobs with every client: each adds to one queue and works on it at the same time, and each job is done once."""

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from pydisque.client import Client as Pydisque

from tests.clients.client import Client
from tests.clients.factory import ClientFactory
from tests.support.tools import require_tool
from tests.support.until import reach
from vmq.testing.process import BrokerProcess

JOBS = 20
#: Clients that acknowledge what they are given by themselves.
MQTT = ("paho", "aiomqtt", "mqttjs")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A broker that serves jobs to all of them."""
    listen = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "resp://127.0.0.1:0")
    with BrokerProcess.start(listen, args=("--allow-anonymous",)) as found:
        yield found


@pytest.fixture(scope="module")
def port(broker: BrokerProcess) -> int:
    url = next(each for each in broker.urls if each.startswith("resp://"))
    return urlsplit(url).port or 0


class ByMqtt(threading.Thread):
    """A worker whose PUBACK says that a job is done."""

    def __init__(self, client: Client, done: "Counter[bytes]", ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.done = done
        self.ended = ended

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                (message,) = self.client.receive(1, 0.2)
            except AssertionError:
                continue
            self.done[message.payload] += 1


class ByCommands(threading.Thread):
    """A worker that takes a job, and says when it is done."""

    def __init__(
        self,
        take: Callable[[], tuple[Any, bytes] | None],
        acknowledge: Callable[[Any], object],
        done: "Counter[bytes]",
        ended: threading.Event,
    ) -> None:
        super().__init__(daemon=True)
        self.take = take
        self.acknowledge = acknowledge
        self.done = done
        self.ended = ended

    def run(self) -> None:
        while not self.ended.is_set():
            found = self.take()
            if found is not None:
                self.done[found[1]] += 1
                self.acknowledge(found[0])


def taken_by_cli(port: int) -> tuple[str, bytes] | None:
    lines = cli(port, "GETJOB", "NOHANG", "FROM", "mail")
    return (lines[1], lines[2].encode()) if len(lines) > 2 else None


def cli(port: int, *words: str) -> list[str]:
    command = [require_tool("redis-cli"), "-p", str(port), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.timeout(240)
def test_clients_of_every_kind_add_and_work_at_once(
    broker: BrokerProcess, clients: ClientFactory, port: int
) -> None:
    done: Counter[bytes] = Counter()
    ended = threading.Event()
    resp: Any = redis.Redis(port=port, socket_timeout=60)  # it has no types for commands
    disque = Pydisque([f"127.0.0.1:{port}"])
    disque.connect()

    def by_redis() -> tuple[bytes, bytes] | None:
        found = resp.execute_command("GETJOB", "TIMEOUT", 200, "FROM", "mail")
        return (found[0][1], found[0][2]) if found else None

    def by_disque() -> tuple[bytes, bytes] | None:
        found = disque.get_job(["mail"], timeout=200)
        return (found[0][1], found[0][2]) if found else None

    makers = {name: clients(name) for name in MQTT}
    workers: list[threading.Thread] = [
        ByMqtt(clients(name, ("$jobs/mail", 1)), done, ended) for name in MQTT
    ]
    workers += [
        ByCommands(by_redis, lambda job: resp.execute_command("ACKJOB", job), done, ended),
        ByCommands(by_disque, disque.ack_job, done, ended),
        ByCommands(lambda: taken_by_cli(port), lambda job: cli(port, "ACKJOB", job), done, ended),
    ]
    for worker in workers:
        worker.start()
    for number in range(JOBS):
        for name, maker in makers.items():
            maker.publish("$jobs/mail", f"{name} {number}".encode(), qos=1)
        resp.execute_command("ADDJOB", "mail", f"redis {number}", 0)
        disque.add_job("mail", f"pydisque {number}", timeout=0)
    for number in range(3):
        cli(port, "ADDJOB", "mail", f"cli {number}", "0")
    expected = 5 * JOBS + 3
    reach(lambda: len(done) >= expected)
    ended.set()
    for worker in workers:
        worker.join(60)
    assert set(done.values()) == {1}
    assert disque.qlen("mail") == 0


#: Begins its work, and is done with it, or fails, later.
ASYNCHRONOUS = """
const worker = require(process.argv[1]).connect(process.argv[2], { reconnectPeriod: 0 });
worker.on("connect", () => worker.subscribe("$jobs/later", { qos: 1 }));
worker.handleMessage = (packet, done) => {
  console.log(String(packet.payload));
  process.stdin.on("data", () => done()).on("end", () => worker.stream.destroy());
};
"""


@pytest.mark.parametrize("succeeds", [True, False])
def test_mqttjs_acknowledges_what_its_handler_is_done_with(
    broker: BrokerProcess, clients: ClientFactory, port: int, node_modules: Path, succeeds: bool
) -> None:
    resp: Any = redis.Redis(port=port)
    url = broker.urls[0].replace("tcp:", "mqtt:")
    given = [require_tool("node"), "-e", ASYNCHRONOUS, str(node_modules / "mqtt"), url]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        job = resp.execute_command("ADDJOB", "later", "work", 0)
        assert worker.stdout.readline() == b"work\n"
        assert b"active" in resp.execute_command("SHOW", job)
        if succeeds:
            worker.stdin.write(b"go on")
            worker.stdin.flush()
        else:
            worker.stdin.close()
            (again,) = clients("paho", ("$jobs/later", 1)).receive(1)
            assert again.payload == b"work"
        reach(lambda: resp.execute_command("SHOW", job) is None)
        worker.kill()


def test_pydisque_is_served_as_by_disque(port: int) -> None:
    client = Pydisque([f"127.0.0.1:{port}"])
    client.connect()
    assert client.hello()[1] == client.connected_node.node_id
    job_id = client.add_job("d", "body", timeout=0, retry=60, ttl=600)
    assert client.qlen("d") == 1
    assert [each[1] for each in client.qpeek("d", 1)] == [job_id]
    assert client.show(job_id, return_dict=True)[b"state"] == b"queued"
    assert client.qstat("d", return_dict=True)[b"len"] == 1
    assert client.dequeue(job_id) == 1
    assert client.enqueue(job_id) == 1
    [(queue, found, body, nacks, more)] = client.get_job(["d"], withcounters=True)
    assert (queue, found, body, nacks, more) == (b"d", job_id, b"body", 0, 1)
    assert client.working(job_id) == 60
    client.nack_job(job_id)
    [(_, found, _, nacks, _)] = client.get_job(["d"], withcounters=True)
    assert (found, nacks) == (job_id, 1)
    client.pause("d", kw_out=True)
    client.pause("d", kw_none=True)
    client.fast_ack(job_id)
    assert client.qlen("d") == 0
    assert b"d" in client.qscan()[1]
    assert client.del_job(client.add_job("d", "x", timeout=0)) == 1
