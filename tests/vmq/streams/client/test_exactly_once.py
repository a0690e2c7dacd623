"""What a program reads of a group and what it publishes for it are one step, whenever the broker is killed."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import vmq.streams
from tests.support.present import present
from tests.support.until import reach, until
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.jobs.mqtt.test_publishing import bodies
from tests.vmq.jobs.serving import machine
from tests.vmq.streamed import config_in, payloads_of, streams_of
from tests.vmq.streams.client.test_group import filled, payloads, served
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.streams.client.aio import AsyncStreamGroup
from vmq.streams.client.connection import FlightConnection
from vmq.streams.client.group import StreamGroup
from vmq.streams.client.messages import table_of
from vmq.streams.replay import group as module
from vmq.streams.serving.sinks import SinkCursor
from vmq.streams.staging.state import BusyError
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess


@asynccontextmanager
async def broker_of(folder: Path) -> AsyncIterator[tuple[Broker, str]]:
    """Streams `s`, which is read, and `out`, which has what came of it."""
    streams = {
        "s": options(filters=["s/#"], partitions=2, key="topic"),
        "out": options(filters=["out/#"]),
    }
    async with Broker(config_in(folder, **streams)) as broker:
        with served(broker) as server:
            yield broker, server


def doubled(rows: pa.RecordBatch) -> list[tuple[str, bytes]]:
    return [("out/1", b"%d" % (2 * each)) for each in payloads(rows)]


async def work(member: AsyncStreamGroup, count: int) -> None:
    """Reads so many rows, and publishes what comes of them."""
    done = 0
    while done < count:
        rows = present(await member.read())
        await member.commit(doubled(rows))
        done += rows.num_rows


async def out_of(broker: Broker) -> list[int]:
    return [int(each) for each in await payloads_of(broker, "out")]


async def test_what_is_published_goes_with_the_commit(tmp_path: Path) -> None:
    async with filled(broker_of(tmp_path), 20, rows=3) as (broker, group):
        async with group as member:
            await work(member, 20)
            assert sorted(await out_of(broker)) == [2 * each for each in range(20)]
            assert await member.read(0.0) is None
            with pytest.raises(ValueError, match="nothing was read"):
                await member.commit([("out/1", b"x")])
            await member.commit()
        await until(lambda: not list(tmp_path.glob("data/sinks/members.*")))
        async with group as member:
            assert await member.read(0.0) is None


async def test_jobs_and_delayed_messages_go_with_the_commit(tmp_path: Path) -> None:
    async with filled(broker_of(tmp_path), 3, topics=1) as (broker, group):
        async with group as member:
            rows = present(await member.read())
            found = [("$jobs/work;priority=3", payload) for _, payload in doubled(rows)]
            for wrong in ("$jobs/work/ack", "$jobs/work!dead", "$replay/earliest/s/#", "$jobs/a+"):
                with pytest.raises(vmq.streams.GroupError, match="no topic"):
                    await member.commit([*found, (wrong, b"")])
            await member.commit([*found, ("$delayed/1h/out/later", b"9"), ("out/now", b"7")])
            assert await member.read(0.0) is None
        assert await out_of(broker) == [7]
        jobs = machine(broker).jobs.values()
        assert sorted(each.queue.name for each in jobs) == [b"$delayed", *3 * [b"work"]]
        assert sorted(bodies(broker, b"work")) == [b"0", b"2", b"4"]


async def test_who_is_fenced_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLING", 0.0)
    async with filled(broker_of(tmp_path), 20, topics=8) as (broker, group), group as first:
        found: list[tuple[str, bytes]] = []
        while len(found) < 20:
            rows = present(await first.read())
            found += doubled(rows)
        async with group as second:
            await until(lambda: second.partitions and len(first.partitions) == 1)
            with pytest.raises(vmq.streams.FencedError):
                await first.commit(found)
            assert await out_of(broker) == []
            async with asyncio.TaskGroup() as tasks:
                for member in (first, second):
                    tasks.create_task(work(member, 1))
        assert sorted(await out_of(broker)) == [2 * each for each in range(20)]


async def test_what_was_committed_unheard_is_not_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program does not know, and commits once more; what it read before comes no more."""
    ask, lost = FlightConnection.ask, [True]

    def ask_and_lose(self: FlightConnection, action: str, *args: Any) -> dict[str, Any]:
        answer = ask(self, action, *args)
        if action == "group-publish" and lost[0]:
            lost[0] = False
            raise vmq.streams.BrokerAwayError("the answer is lost")
        return answer

    monkeypatch.setattr(FlightConnection, "ask", ask_and_lose)
    async with filled(broker_of(tmp_path), 6, topics=1, rows=4, patience=0.0) as (broker, group):
        async with group as member:
            rows = present(await member.read())
            with pytest.raises(vmq.streams.BrokerAwayError):
                await member.commit(doubled(rows))
            with pytest.raises(vmq.streams.FencedError):
                await member.commit(doubled(rows))
            await work(member, 2)
            assert await member.read(0.0) is None
        assert await out_of(broker) == [2 * each for each in range(6)]


async def test_a_partition_stays_until_what_is_decided_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the store cannot write at first; whoever comes meanwhile waits for it, and so does the one who leaves."""
    monkeypatch.setattr(module, "SETTLING", 0.0)
    async with filled(broker_of(tmp_path), 6, topics=1, patience=0.0) as (broker, group):
        sinks = streams_of(broker).sinks
        publish_rows, fails = sinks.publish_rows, [True]

        async def once_it_can(*args: Any) -> None:
            if fails[0]:
                raise BusyError("the store cannot write")
            await publish_rows(*args)

        monkeypatch.setattr(sinks, "publish_rows", once_it_can)
        monkeypatch.setattr("vmq.streams.serving.programs.RETRY_AFTER", 0.01)
        async with group as first:
            rows = present(await first.read())
            publishing = asyncio.create_task(first.commit(doubled(rows)))
            programs = streams_of(broker).programs
            await until(lambda: any(each.busy for each in programs.members.values()))
            (known,) = programs.members.values()
            known.quiet_since = known.heard = -1e9  # as if it were silent, and stalled
            programs.look_at_all()
            known.group.look()
            programs.end(known)
            assert known.name in programs.members
            fails[0] = False
            await publishing
            assert known.name not in programs.members
        assert await out_of(broker) == [2 * each for each in payloads(rows)]
        async with group as member:
            assert await member.read(0.2) is None


@pytest.mark.parametrize("step", ["decided", "moved", "published"])
async def test_killed_at_any_step_it_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What lies on the disk at a step is all that the next broker has."""
    copy = tmp_path / "copy"

    def keep() -> None:
        if not copy.exists():
            shutil.copytree(tmp_path / "data", copy / "data")

    async with filled(broker_of(tmp_path), 10, topics=1, rows=4) as (broker, group):
        sinks = streams_of(broker).sinks
        publish_alone, publish_rows = sinks.publish_alone, sinks.publish_rows

        async def alone(query: str, batch: int, parts: Any, cursor: SinkCursor | None) -> int:
            assert cursor is not None

            async def move() -> None:
                if step == "decided":
                    keep()
                await cursor.move()
                if step == "moved":
                    keep()

            return await publish_alone(query, batch, parts, SinkCursor(cursor.staged, move))

        async def rows(*args: Any) -> None:
            await publish_rows(*args)
            await streams_of(broker).commits.wait()
            if step == "published":
                keep()

        monkeypatch.setattr(sinks, "publish_alone", alone)
        monkeypatch.setattr(sinks, "publish_rows", rows)
        async with group as member:
            await work(member, 4)
    async with broker_of(copy) as (broker, server):
        group = vmq.streams.group("s", "g", server=server, rows=4)
        async with group as member:
            await work(member, 6)
            assert await member.read(0.0) is None
        await until(lambda: not list(copy.glob("data/sinks/members.*")))
        assert await out_of(broker) == [2 * each for each in range(10)]


ROWS = 1200


CONFIG = """
[streams.s]
filters = ["s/#"]
partitions = 2
key = "topic"
[streams.out]
filters = ["out/#"]
[streams.mapped]
filters = ["mapped/#"]
[mappings.all]
from = "$stream/s;from=earliest"
to = ["mapped/${level(2)}"]
"""


def found(server: str, stream: str = "out") -> list[int]:
    """What is in the stream of answers, or another, which has one partition; wherever that is."""
    try:
        with flight.connect(server) as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_path(stream))
        (place,) = info.endpoints
        with flight.connect(place.locations[0] if place.locations else server) as client:
            table = client.do_get(place.ticket).read_all()
    except flight.FlightError:
        return []
    return [int(each) for each in table.column("payload").to_pylist()]


def fill(broker: BrokerProcess) -> None:
    """Publishes the rows that are to be answered."""
    with Wire.connected(broker.tcp, "devices") as wire:
        for number in range(ROWS):
            topic, payload = f"s/{number % 2}", b"%d" % number
            wire.send(publish_packet(topic, payload, qos=1, packet_id=1 + number))
        for _ in range(ROWS):
            wire.expect(PUBACK)


class Answering(threading.Thread):
    """A program that goes on by itself, whatever happens to the broker.

    Args:
        servers: where brokers serve at present; the port is another one after each start.
        topics: those of the rows, by their numbers.
        rows: at most so many are answered at a time.
    """

    def __init__(self, servers: Callable[[], list[str]], topics: int, rows: int) -> None:
        super().__init__()
        self.servers = servers
        self.topics = topics
        self.rows = rows
        self.done = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                servers, rows = self.servers(), self.rows
                group = vmq.streams.group(
                    "s", "g", server=servers, start="earliest", rows=rows, patience=0.0
                )
                with group as member:
                    while not self.stopping.is_set():
                        self.answer(member)
            except vmq.streams.GroupError:
                self.stopping.wait(0.1)

    def answer(self, member: StreamGroup) -> None:
        rows = member.read(0.5)
        if rows is None:
            return
        try:
            answers = [(f"out/{each % self.topics}", b"%d" % each) for each in payloads(rows)]
            member.commit(answers)
            self.done += rows.num_rows
        except vmq.streams.FencedError:
            pass  # it comes again, if it was not published

    def has_done(self, enough: int) -> bool:
        return self.done > enough

    def end(self) -> None:
        self.stopping.set()
        self.join()


def test_a_broker_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """A program and a mapping go on by themselves, and each row has its answer of both, once and in order."""
    config = tmp_path / "vmq.toml"
    config.write_text(CONFIG)
    args = ("--config", str(config), "--allow-anonymous")
    listen = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
    random = Random(1)
    with BrokerProcess.start(listen, tmp_path / "data", args=args) as broker:
        fill(broker)
        program = Answering(lambda: [broker._url("grpc")], 2, 60)
        program.start()
        try:
            for kill in range(3):
                reach(partial(program.has_done, kill * 300 + random.randrange(200)))
                broker.restart()
            server = broker._url("grpc")
            reach(lambda: min(len(found(server)), len(found(server, "mapped"))) >= ROWS)
        finally:
            program.end()
        for stream in ("out", "mapped"):
            rows = found(server, stream)
            assert sorted(rows) == list(range(ROWS))
            for at in range(2):
                assert [each for each in rows if each % 2 == at] == list(range(at, ROWS, 2))


def test_at_a_broker_of_several_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whichever of them the program comes to, and has the partitions."""
    short = tmp_path_factory.mktemp("w")  # the path of a socket has 100 bytes at most
    config = short / "vmq.toml"
    config.write_text(CONFIG)
    args = ("--config", str(config), "--allow-anonymous", "--workers", "2", "--node-name", "n")
    server = f"grpc://127.0.0.1:{lasting_port(2)}"
    with BrokerProcess.start(("tcp://127.0.0.1:0", server), short / "data", args=args) as broker:
        fill(broker)
        program = Answering(lambda: [server], 2, 300)
        program.start()
        try:
            reach(lambda: program.has_done(ROWS - 1))
        finally:
            program.end()
        assert sorted(found(server)) == list(range(ROWS))
        reach(lambda: len(found(server, "mapped")) >= ROWS)
        assert sorted(found(server, "mapped")) == list(range(ROWS))


def test_messages_are_taken_as_tuples_and_as_tables() -> None:
    table = table_of([("a", b"1"), ("b", "2", 0), ("c", b"3", 2, True)])
    assert table.to_pylist() == [
        {"topic": "a", "payload": b"1", "qos": 1, "retain": False},
        {"topic": "b", "payload": b"2", "qos": 0, "retain": False},
        {"topic": "c", "payload": b"3", "qos": 2, "retain": True},
    ]
    assert table_of(table.select(["payload", "topic"])).column("qos").to_pylist() == [1, 1, 1]
    for wrong in ([("a",)], [("a", 5)], [("a", b"", 1, False, 0)], pa.table({"topic": ["a"]})):
        with pytest.raises(ValueError, match="message"):
            table_of(wrong)
