"""A batch of a program for a stream of two nodes, of which the asked one is killed in the middle of it."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.cluster_processes.cluster import ENV, TIMEOUT
from tests.cluster_processes.test_streams import STREAM
from tests.support.until import reach
from vmq.cli.admin.client import AdminClient
from vmq.streams.serving.sinks import STEP
from vmq.streams.staging.parts import MESSAGE
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess, BrokerStartError

DYING = Path(__file__).with_name("dying.py")
ROWS = 4 * STEP


class Node:
    """One of the two, in one life after the other."""

    def __init__(self, folder: Path, name: str, join: str = "") -> None:
        self.data_dir = folder / name
        self.address = f"tcp://127.0.0.1:{lasting_port()}"
        self.arguments = ["--allow-anonymous", "--node-name", name]
        self.arguments += ["--cluster-listen", self.address]
        if join:
            self.arguments += ["--join", join]

    @contextmanager
    def life(self, *launcher: str) -> Iterator[BrokerProcess]:
        urls = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
        with BrokerProcess.start(
            urls, self.data_dir, {**ENV, **STREAM}, self.arguments, launcher=launcher
        ) as process:
            yield process

    def owners(self) -> set[str]:
        """Who has partitions of the stream."""
        rows = AdminClient(None, str(self.data_dir)).get("/stream", name="log")["partitions"]
        return {row["owner"] for row in rows}


def dying(when: str, count: int) -> Sequence[str]:
    return (sys.executable, str(DYING), when, str(count))


def flight_of(process: BrokerProcess) -> flight.FlightClient:
    return flight.connect(next(url for url in process.urls if url.startswith("grpc://")))


def stage(client: flight.FlightClient) -> None:
    """Stages a batch of one part; on each topic the payloads count up."""
    plain = [
        {"topic": f"log/{n % 12}", "payload": b"%04d" % n, "qos": n % 3, "retain": False}
        for n in range(ROWS)
    ]
    command = {"query": "q", "batch": 0, "part": 0, "attempt": 0}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    writer, _ = client.do_put(descriptor, MESSAGE)
    with writer:
        writer.write_batch(pa.RecordBatch.from_pylist(plain, schema=MESSAGE))


def publish(client: flight.FlightClient) -> Any:
    body = json.dumps({"query": "q", "batch": 0, "parts": [[0, 0]]}).encode()
    [answer] = client.do_action(flight.Action("publish", body))
    return json.loads(answer.body.to_pybytes())


def read(client: flight.FlightClient) -> list[tuple[str, bytes]]:
    """Topic and payload of all messages, partition by partition."""
    info = client.get_flight_info(flight.FlightDescriptor.for_path("log"))
    found: list[tuple[str, bytes]] = []
    for each in info.endpoints:
        owner = flight.connect(each.locations[0]) if each.locations else client
        table = owner.do_get(each.ticket).read_all()
        found += zip(
            table.column("topic").to_pylist(), table.column("payload").to_pylist(), strict=True
        )
    return found


def test_each_message_is_there_once_though_the_asked_node_is_killed(tmp_path: Path) -> None:
    b = Node(tmp_path, "b")
    a = Node(tmp_path, "a", b.address)
    with b.life() as other:
        # In its second step, as soon as its own log's part of that is safe.
        with a.life(*dying("after", 3)) as process:
            reach(lambda: a.owners() == b.owners() == {"a", "b"})
            with flight_of(process) as client:
                stage(client)
                with pytest.raises(flight.FlightError):
                    publish(client)
            assert process.wait(TIMEOUT) == -9
        # As soon as it goes on: with the rest of that step on its way, and noted nowhere.
        with suppress(BrokerStartError), a.life(*dying("before", 1)) as process:
            assert process.wait(TIMEOUT) == -9
        with a.life() as process, flight_of(process) as client, flight_of(other) as elsewhere:
            assert publish(client) in ({"published": 0}, {"published": ROWS - STEP})
            reach(lambda: len(read(client)) >= ROWS)
            found = read(elsewhere)
            assert sorted(payload for _, payload in found) == [b"%04d" % n for n in range(ROWS)]
            for topic in {topic for topic, _ in found}:
                mine = [payload for each, payload in found if each == topic]
                for qos in range(3):
                    alike = [payload for payload in mine if int(payload) % 3 == qos]
                    assert alike == sorted(alike)
