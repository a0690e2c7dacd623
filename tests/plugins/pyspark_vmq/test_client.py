"""The client against a broker that is killed while it publishes what was staged. No JVM is needed to see it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark_vmq.client import Client
from pyspark_vmq.options import connection_of

from tests.spark.devices import Subscriber
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

MESSAGE = pa.schema(
    [("topic", pa.string()), ("payload", pa.binary()), ("qos", pa.int32()), ("retain", pa.bool_())]
)

#: Messages of one part, and how many the subscriber has when the broker is killed.
PART = 2000
KILLS = (300, 2000)

PATIENCE = 60.0


class Stage:
    """A broker that comes back at its address, and a durable subscriber of done/#."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listen = ("tcp://127.0.0.1:0", f"grpc://127.0.0.1:{lasting_port()}")
        self.broker = self.start()
        self.changed = threading.Condition()
        self.subscriber = Subscriber(lambda: self.broker.tcp, self.changed)
        self.subscriber.start()
        assert self.subscriber.subscribed.wait(PATIENCE)

    def start(self) -> BrokerProcess:
        env = {
            "VMQ_STREAMS__DONE__FILTERS": '["done/#"]',
            "VMQ_STREAMS__DONE__PARTITIONS": "2",
            "VMQ_STREAMS__DONE__KEY": "topic",
            "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
            "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
        }
        return BrokerProcess.start(self.listen, self.folder, env, ("--allow-anonymous",))

    def client(self) -> Client:
        return Client(connection_of({"server": self.listen[1], "retryTimeout": "60"}))

    def wait(self, count: int) -> None:
        with self.changed:
            reached = self.changed.wait_for(lambda: self.subscriber.count >= count, PATIENCE)
        assert reached, f"{self.subscriber.count} of {count}"

    def restart(self) -> None:
        self.broker.kill()
        self.broker.close()
        self.broker = self.start()

    def close(self) -> None:
        self.subscriber.ended.set()
        self.broker.close()
        self.subscriber.join(PATIENCE)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "broker")
    yield stage
    stage.close()


def rows(first: int, count: int) -> pa.RecordBatch:
    """Numbers as messages at QoS 2 of four devices, each in order."""
    numbers = range(first, first + count)
    columns = [
        [f"done/{number % 4}" for number in numbers],
        [b'{"number": %d}' % number for number in numbers],
        [2] * count,
        [False] * count,
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(each, field.type) for each, field in zip(columns, MESSAGE, strict=True)],
        schema=MESSAGE,
    )


def test_a_batch_is_published_once_however_often_its_broker_is_killed(stage: Stage) -> None:
    client = stage.client()
    for part in (0, 1):
        staged = {"query": "q", "batch": 0, "part": part, "attempt": 0}
        client.stage(staged, [rows(part * PART, PART)])
    # What nobody commits, an attempt that failed, is never published.
    client.stage({"query": "q", "batch": 0, "part": 1, "attempt": 1}, [rows(0, 10)])
    answers = []
    body = {"query": "q", "batch": 0, "parts": [[0, 0], [1, 0]]}
    publishing = threading.Thread(
        target=lambda: answers.append(stage.client().ask("publish", body))
    )
    publishing.start()
    for count in KILLS:
        stage.wait(count)
        stage.restart()
    publishing.join(PATIENCE)
    assert len(answers) == 1, "the commit was not answered"
    stage.wait(2 * PART)
    # Asked for again, as by a driver that died before it noted the answer: nothing more comes.
    assert stage.client().ask("publish", body) == {"published": 0}
    last = {"query": "q", "batch": 1, "part": 0, "attempt": 0}
    client.stage(last, [rows(2 * PART, 4)])
    body = {"query": "q", "batch": 1, "parts": [[0, 0]]}
    assert stage.client().ask("publish", body) == {"published": 4}
    stage.wait(2 * PART + 4)
    wanted = {str(device): list(range(device, 2 * PART + 4, 4)) for device in range(4)}
    assert stage.subscriber.received == wanted
    assert streamed(client) == wanted


def streamed(client: Client) -> dict[str, list[int]]:
    """The numbers of each device in stream done, in its order."""
    found: dict[str, list[int]] = {}
    for partition, end in client.latest("done").items():
        ticket = {"stream": "done", "partition": partition, "end": end}
        for batch, _ in client.read({**ticket, "columns": ["topic", "payload"]}):
            for row in batch.to_pylist():
                device = row["topic"].removeprefix("done/")
                found.setdefault(device, []).append(json.loads(row["payload"])["number"])
    return found
