"""Streams in the broker: what reaches them, and which acknowledgements wait for them."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from vmq_hooks import PublishModifiers

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.sockets import session_of
from tests.vmq.streamed import config_in, payloads_of, rows_of, streams_of
from tests.vmq.streams.support import options, read_all
from tests.vmq.support import Client, House, stored_house
from vmq.broker import Broker, StartError
from vmq.config.options import ListenerOptions
from vmq.core.output import Output
from vmq.core.ports import StreamFinder
from vmq.disk.durable import Durable
from vmq.mqtt.packets import PINGRESP, PUBLISH
from vmq.runtime import process
from vmq.streams.definition import lock_folder
from vmq.streams.serving import service
from vmq.streams.stored import StoredStream, export_parquet, find_folder
from vmq.testing.process import BrokerProcess

ANSWER = {1: mqtt.PUBACK, 2: mqtt.PUBREC}


class Tap:
    """The write side of a stream that a test commits by hand."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes, int, bool, str]] = []
        self.number = 1
        self.safe = Durable()
        self.is_full = False
        self.refused = 0

    def safe_of(self, _topic: bytes, _client_id: str) -> Durable:
        return self.safe

    def commit(self, house: House, number: int) -> None:
        """This stream alone has committed."""
        self.safe.advance(number)
        house.core.outbox.flush()

    def has_room(self, _topic: bytes, _payload: bytes, _client_id: str) -> bool:
        return not self.is_full

    def refuse(self, _qos: int, count: int) -> int:
        self.refused += count
        return -1

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client_id: str,
        _time: int,
        _publisher: Output | None,
    ) -> int:
        if self.is_full:
            return self.refuse(qos, 1)
        self.rows.append((topic, payload, qos, retain, client_id))
        return self.number

    def append_run(
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        _time: int,
        _publisher: Output | None,
    ) -> int:
        self.rows += [(topic, payload, qos, retain, client_id) for payload in payloads]
        return self.number

    def payloads(self) -> list[bytes]:
        return [row[1] for row in self.rows]


class Finder(StreamFinder):
    """These taps keep a topic."""

    def __init__(self, find: Callable[[str], list[Tap]]) -> None:
        super().__init__()
        self.find = find

    def appenders(self, topic: str) -> list[Tap]:
        return self.find(topic)


def tapped(house: House, *taps: Tap) -> None:
    """Has these streams keep everything below `s/`."""
    house.core.stream_finder = Finder(lambda topic: list(taps) if topic.startswith("s/") else [])
    house.patient = True


def durable(house: House, client_id: str) -> Client:
    """A client with a durable session, connected; what waits for the streams goes on waiting."""
    client = Client(house)
    client.send(mqtt.connect_packet(client_id, clean=False))
    house.commit()
    client.take_one(mqtt.CONNACK)
    return client


@pytest.fixture
def tap() -> Tap:
    return Tap()


@pytest.fixture
def house(tap: Tap) -> House:
    house = House()
    tapped(house, tap)
    return house


@pytest.fixture
def stored(tap: Tap, tmp_path: Path) -> Iterator[House]:
    with stored_house(tmp_path) as house:
        tapped(house, tap)
        yield house


# --- acknowledgements


@pytest.mark.parametrize("qos", (1, 2))
def test_an_acknowledgement_leaves_after_the_commit(
    house: House, tap: Tap, qos: int, client: Client
) -> None:
    client.send(mqtt.publish_packet("s/a", b"x", qos=qos, packet_id=7))
    assert tap.rows == [(b"s/a", b"x", qos, False, "c")]
    assert client.take() == []
    tap.commit(house, 0)
    assert client.take() == []
    tap.commit(house, 1)
    assert client.take_one(ANSWER[qos]).packet_id == 7
    if qos == 2:
        client.send(mqtt.pubrel_packet(7))
        client.take_one(mqtt.PUBCOMP)


@pytest.mark.parametrize("qos", (1, 2))
def test_nothing_waits_for_a_stream_that_acknowledges_early(
    house: House, tap: Tap, qos: int
) -> None:
    tap.number = 0
    client = house.client("c")
    client.send(mqtt.publish_packet("s/a", b"x", qos=qos, packet_id=7))
    assert client.take_one(ANSWER[qos]).packet_id == 7


@pytest.mark.parametrize("qos", (1, 2))
@pytest.mark.parametrize("store_first", (True, False))
def test_where_both_keep_a_message_both_commit(
    stored: House, tap: Tap, qos: int, store_first: bool
) -> None:
    durable(stored, "sleeper").send(mqtt.subscribe_packet(1, ("s/#", 2)))
    client = durable(stored, "c")
    client.send(mqtt.publish_packet("s/a", b"x", qos=qos, packet_id=7))
    steps: list[Callable[[], object]] = [stored.commit, lambda: tap.commit(stored, 1)]
    if not store_first:
        steps.reverse()
    steps[0]()
    assert client.take() == []
    steps[1]()
    assert client.take_one(ANSWER[qos]).packet_id == 7


def test_answers_of_one_client_keep_their_order(house: House, tap: Tap, client: Client) -> None:
    for number in (1, 2, 3):
        tap.number = number
        client.send(mqtt.publish_packet("s/a", b"%d" % number, qos=1, packet_id=number))
    client.send(mqtt.publish_packet("t", b"", qos=1, packet_id=4))
    tap.commit(house, 2)
    assert [each.packet_id for each in client.take()] == [1, 2]
    tap.commit(house, 3)
    assert [each.packet_id for each in client.take()] == [3, 4]


def test_a_partition_that_never_commits_holds_up_the_answers_of_its_publishers_alone(
    house: House, tap: Tap
) -> None:
    other = Tap()
    house.core.stream_finder = Finder(lambda topic: [tap if topic == "s/stuck" else other])
    stuck, free = house.client("stuck"), house.client("free")
    stuck.subscribe(("s/#", 0))
    stuck.send(mqtt.publish_packet("s/stuck", b"", qos=1, packet_id=1))
    assert [each.type for each in stuck.take()] == [PUBLISH]
    for number in range(1, 10):
        other.number = number
        stuck.send(mqtt.publish_packet("s/a", b"", qos=1, packet_id=number + 1), mqtt.PINGREQ_BYTES)
        assert {each.type for each in stuck.take()} == {PUBLISH, PINGRESP}
        free.send(mqtt.publish_packet("s/a", b"", qos=1, packet_id=number))
        assert free.take() == []
        other.commit(house, number)
        assert free.take_one(mqtt.PUBACK).packet_id == number
    stuck.take()
    tap.commit(house, 1)
    assert [each.packet_id for each in stuck.take()] == [*range(1, 11)]


def test_a_message_that_comes_again_waits_for_the_first_ones_commit(
    tap: Tap, tmp_path: Path
) -> None:
    with stored_house(tmp_path) as stored:
        tapped(stored, tap)
        first = durable(stored, "c")
        first.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
        first.lose()
        stored.commit()
        again = durable(stored, "c")
        again.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7, dup=True))
        stored.commit()
        assert again.take() == []
        tap.commit(stored, 1)
        assert again.take_one(mqtt.PUBREC).packet_id == 7
        assert tap.payloads() == [b"x"]


# --- messages that a stream cannot take


@pytest.mark.parametrize("qos", (1, 2))
def test_a_refused_message_ends_the_connection_and_is_there_once_after_the_resend(
    tap: Tap, tmp_path: Path, qos: int
) -> None:
    with stored_house(tmp_path) as stored:
        other = Tap()
        other.is_full = True
        client = stored.client("c", clean=False)
        reader = stored.client("reader")
        reader.subscribe(("s/#", 0))
        tapped(stored, tap, other)
        client.send(mqtt.publish_packet("s/a", b"x", qos=qos, packet_id=7))
        assert client.is_closed()
        assert client.take() == []
        assert (tap.rows, other.rows, other.refused) == ([], [], 1)
        assert reader.take() == [], "who is not told cannot be told twice"
        client.lose()
        other.is_full = False
        again = durable(stored, "c")
        again.send(mqtt.publish_packet("s/a", b"x", qos=qos, packet_id=7, dup=True))
        stored.commit()
        tap.commit(stored, 1)
        assert again.take() == []
        other.commit(stored, 1)
        again.take_one(ANSWER[qos])
        assert (tap.payloads(), other.payloads()) == ([b"x"], [b"x"])
        assert reader.payloads() == [b"x"]


def test_a_will_that_a_stream_refuses_reaches_its_subscribers(house: House, tap: Tap) -> None:
    reader = house.subscriber("reader", ("s/#", 0))
    client = house.client("c", will=mqtt.Will("s/gone", b"x", qos=1))
    tap.is_full = True
    client.lose()
    assert reader.payloads() == [b"x"]


# --- what lands


def test_a_burst_at_qos_0_lands_in_order(house: House, tap: Tap, client: Client) -> None:
    reader = house.subscriber("reader", ("s/a", 0))
    wanted = [b"%d" % number for number in range(500)]
    client.send(
        *(mqtt.publish_packet("s/a", each) for each in wanted), mqtt.publish_packet("s/b", b"z")
    )
    assert tap.payloads() == [*wanted, b"z"]
    assert reader.payloads() == wanted
    assert tap.rows[0] == (b"s/a", b"0", 0, False, "c")


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_a_stream_has_what_plugins_make_of_a_message(house: House, tap: Tap, qos: int) -> None:
    changes = PublishModifiers(topic="s/new", payload=b"changed", retain=True)
    house.core.hooks.auth_on_publish = lambda *_arguments: changes
    house.core.hooks.resolve()
    client = house.client("c")
    client.send(mqtt.publish_packet("elsewhere", b"x", qos=qos, packet_id=7 if qos else 0))
    assert tap.rows == [(b"s/new", b"changed", qos, True, "c")]


def test_wills_and_retained_messages_land(house: House, tap: Tap) -> None:
    client = house.client("c", will=mqtt.Will("s/gone", b"will", qos=1))
    client.send(mqtt.publish_packet("s/a", b"kept", retain=True))
    client.lose()
    assert tap.rows == [(b"s/a", b"kept", 0, True, "c"), (b"s/gone", b"will", 1, False, "c")]


async def test_every_listener_and_the_process_itself_are_kept_but_no_mountpoint(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", s="s/#")
    config.listeners["l1"] = ListenerOptions(url="tcp://127.0.0.1:0", mountpoint="other")
    async with Broker(config) as broker:
        for listener in (0, 1):
            async with session_of(broker, f"c{listener}", listener=listener) as peer:
                peer.send(mqtt.publish_packet("s/a", b"from %d" % listener, qos=1, packet_id=1))
                assert (await peer.packet()).type == mqtt.PUBACK
        await broker.publish("s/b", b"inside", qos=2)
        assert await payloads_of(broker, "s") == [b"from 0", b"inside"]


# --- a real broker


@pytest.mark.parametrize("acks", ("memory", "os", "fsync"))
async def test_at_every_level_of_acknowledgement_messages_arrive(tmp_path: Path, acks: str) -> None:
    config = config_in(tmp_path, s=options(filters=["s/#"], acks=acks, partitions=3))
    async with Broker(config) as broker:
        for number in range(30):
            await broker.publish(f"s/{number % 5}", b"%d" % number, qos=number % 3)
        rows = await rows_of(broker, "s")
    assert sorted(int(row["payload"]) for row in rows) == list(range(30))
    for key in range(5):
        mine = [int(row["payload"]) for row in rows if row["topic"] == f"s/{key}"]
        assert mine == list(range(key, 30, 5))


async def test_publishers_pause_while_the_streams_lag(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, s="s/#")) as broker, session_of(broker, "c") as peer:
        streaming = streams_of(broker)
        streaming.on_pressure(True)
        assert (await peer.ask(mqtt.publish_packet("s/a", b"1", qos=1, packet_id=1))).packet_id == 1
        (paused,) = streaming.core.waiting_for_streams
        assert paused.pauses == 1  # type: ignore[attr-defined]
        async with session_of(broker, "of no stream") as other:
            for number in (1, 2):
                other.send(mqtt.publish_packet("t", b"x", qos=1, packet_id=number))
                assert (await other.packet()).packet_id == number
        assert streaming.core.waiting_for_streams == [paused]
        peer.send(mqtt.publish_packet("s/a", b"2", qos=1, packet_id=2))
        streaming.on_pressure(False)
        assert (await peer.packet()).packet_id == 2
        assert streaming.core.waiting_for_streams == []
        assert paused.pauses == 0  # type: ignore[attr-defined]


async def test_a_strange_topic_stops_neither_readers_nor_the_threads_of_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = options(
        filters=["s/#"],
        schema={"room": "int64 level:2"},
        retention_bytes=1,
        archive=f"file://{tmp_path}/archive",
    )
    async with Broker(config_in(tmp_path, s=strange, t="t/#")) as broker:
        await broker.publish("s/" + "[" * 3000, b"x", qos=1)
        catalog = streams_of(broker).catalog
        partition, other = (catalog.get(name).partitions[0] for name in "st")
        await asyncio.wrap_future(catalog.commits.writer.call(partition.roll))
        catalog.janitor.wanted.set()
        await until(lambda: partition.kept)  # the retention has taken it, so it is archived
        (row,) = await asyncio.to_thread(read_all, partition, 0)
        assert row["payload"] == b"x"

        def fail() -> None:
            raise RecursionError("too deep")

        monkeypatch.setattr(other, "retain", fail)
        catalog.janitor.wanted.set()
        await until(broker.health)
        assert broker.health() == ["partition 0 of stream 't' cannot be tidied: too deep"]
        monkeypatch.undo()
        catalog.janitor.wanted.set()
        await until(lambda: not broker.health())


async def test_a_stop_writes_what_is_gathered(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, s=options(filters=["s/#"], acks="memory"))) as broker:
        streams_of(broker).commits.interval = 3600.0
        await broker.publish("s/a", b"0")
        await broker.publish("s/a", b"1", qos=1)
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        assert await payloads_of(broker, "s") == [b"0", b"1"]


async def test_a_folder_in_use_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "streams"
    folder.mkdir(parents=True)
    with os.fdopen(lock_folder(folder)), pytest.raises(StartError, match=f"{folder} is in use"):
        await Broker(config_in(tmp_path, s="s/#")).start()
    async with Broker(config_in(tmp_path, s="s/#")):
        pass  # nothing was left open


async def test_a_damaged_stream_is_named(tmp_path: Path) -> None:
    async with Broker(config_in(tmp_path, s="s/#")):
        pass
    definition = tmp_path / "data" / "streams" / "s" / "stream.json"
    definition.write_text("{")
    with pytest.raises(StartError, match=str(definition)):
        await Broker(config_in(tmp_path, s="s/#")).start()


async def test_without_their_libraries_streams_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vmq.streams.serving.service", None)
    with pytest.raises(StartError, match=r"pip install 'vmq\[streams\]'"):
        await Broker(config_in(tmp_path, s="s/#")).start()
    async with Broker(config_in(tmp_path)) as broker:
        await broker.publish("s/a", b"x", qos=1)  # who has no streams needs none of them


async def test_streams_that_the_configuration_no_longer_names_are_there_and_get_nothing(
    tmp_path: Path,
) -> None:
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        await broker.publish("s/a", b"x", qos=1)
    async with Broker(config_in(tmp_path)) as broker:
        await broker.publish("s/a", b"y", qos=1)
        assert await payloads_of(broker, "s") == [b"x"]
        figures = {family.name for family in broker.metrics.families()}
        assert {"stream_messages", "stream_dropped", "stream_bytes"} <= figures


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text('[streams.s]\nfilters = ["s/#"]\npartitions = 2\n')
    acknowledged: list[int] = []
    number = 0
    for _ in range(3):
        with (
            BrokerProcess.start(data_dir=tmp_path / "data", args=["--config", str(config)]) as run,
            mqtt.Wire.connected(run.tcp, "c") as wire,
        ):
            first = number
            for _ in range(300):
                number += 1
                wire.send(
                    mqtt.publish_packet(f"s/{number % 3}", b"%d" % number, qos=1, packet_id=number)
                )
            for _ in range(100 + first // 10):
                acknowledged.append(wire.expect(mqtt.PUBACK).packet_id)
            run.kill()
    stream = StoredStream(find_folder(tmp_path / "data"), "s")
    target = tmp_path / "s.parquet"
    export_parquet([stream], target)
    rows = pq.read_table(target, columns=["topic", "payload"]).to_pylist()
    found = [int(row["payload"]) for row in rows]
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
    for key in range(3):
        mine = [int(row["payload"]) for row in rows if row["topic"] == f"s/{key}"]
        assert mine == sorted(mine)


async def test_retention_goes_by_what_has_passed_however_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = {"ahead": 0, "since_boot": 0}
    ahead, since_boot = process.ahead, process.since_boot
    monkeypatch.setattr(service, "ahead", lambda: ahead() + jumps["ahead"])
    monkeypatch.setattr(service, "since_boot", lambda: since_boot() + jumps["since_boot"])
    async with Broker(config_in(tmp_path, s=options(retention_age="1h"))) as broker:
        await broker.publish("s/1", b"x", qos=1)
        catalog = streams_of(broker).catalog
        partition = catalog.streams["s"].partitions[0]
        await asyncio.to_thread(partition.roll)
        for jump, left in (("ahead", 1), ("since_boot", 0)):
            jumps[jump] = 7200 * 10**9
            await asyncio.to_thread(catalog.janitor.tidy)
            assert len(partition.sealed) == left
