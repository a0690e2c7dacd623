"""QoS 2 into streams once, whichever commit a broker dies behind: what is on disk then is what a broker starts from."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import plyvel
import pyarrow.parquet as pq
import pytest

from tests.support import wire as mqtt
from tests.support.present import present
from tests.support.until import until
from tests.vmq.sockets import Peer, session_of
from tests.vmq.streamed import config_in, payloads_of, streams_of
from vmq.broker import Broker
from vmq.config.options import Config
from vmq.persistence.group_commit import Committer
from vmq.store.lines import scan
from vmq.streams.log.partition import Partition
from vmq.streams.serving.receipts import RECEIPTS
from vmq.streams.stored import StoredStream, export_parquet, find_folder
from vmq.testing.process import BrokerProcess

PATIENCE = 30.0


def config_of(folder: Path, durability: str = "os", **streams: Any) -> Config:
    config = config_in(folder, **(streams or {"s": "s/#"}))
    return msgspec.structs.replace(
        config, store=msgspec.structs.replace(config.store, durability=durability)
    )


@asynccontextmanager
async def publisher_of(broker: Broker) -> AsyncIterator[Peer]:
    async with session_of(broker, "publisher", clean=False) as peer:
        yield peer


def killed(folder: Path, to: Path) -> Path:
    """The data directory as the system has it when the broker is killed now."""
    shutil.copytree(folder / "data", to / "data")
    return to


async def sent_again(broker: Broker, *messages: tuple[int, bytes]) -> None:
    """The publisher comes back, repeats what nobody acknowledged, even twice, and completes it."""
    async with publisher_of(broker) as peer:
        for packet_id, payload in messages * 2:
            peer.send(mqtt.publish_packet("s/a", payload, qos=2, packet_id=packet_id, dup=True))
        for packet_id, _ in messages * 2:
            answer = await peer.packet()
            assert (answer.type, answer.packet_id) == (mqtt.PUBREC, packet_id)
        for packet_id, _ in messages:
            peer.send(mqtt.pubrel_packet(packet_id))
        for packet_id, _ in messages:
            answer = await peer.packet()
            assert (answer.type, answer.packet_id) == (mqtt.PUBCOMP, packet_id)


async def received(broker: Broker) -> list[bytes]:
    """What a durable subscriber has got in all, up to a last message."""
    await broker.publish("s/a", b"last", qos=2)
    found: list[bytes] = []
    async with session_of(broker, "reader", clean=False) as peer:
        while b"last" not in found:
            packet = await peer.packet()
            if packet.type == mqtt.PUBLISH:
                found.append(packet.payload)
                peer.send(mqtt.pubrec_packet(packet.packet_id))
    return found[:-1]


async def subscribe(broker: Broker) -> None:
    async with session_of(broker, "reader", clean=False) as peer:
        peer.send(mqtt.subscribe_packet(1, ("s/#", 2)))
        await peer.packet()


@contextmanager
def held_up(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A write in a thread of its own waits while this lasts; the event says that one has come."""
    come, may_go = threading.Event(), threading.Event()
    real: Callable[..., Any] = getattr(owner, name)

    def write(*arguments: Any) -> Any:
        come.set()
        assert may_go.wait(PATIENCE)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, write)
        try:
            yield come
        finally:
            may_go.set()


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


async def test_a_message_whose_pubrec_was_lost_with_the_broker_is_there_once(
    tmp_path: Path,
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        await subscribe(broker)
        async with publisher_of(broker) as peer:
            peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
            assert (await peer.packet()).type == mqtt.PUBREC
            copy = killed(tmp_path, tmp_path / "killed")
    async with Broker(config_of(copy)) as broker:
        await sent_again(broker, (7, b"x"))
        assert await payloads_of(broker, "s") == [b"x"]
        assert await received(broker) == [b"x"]


@pytest.mark.parametrize(
    ("has_receipts", "rows"), [(True, [b"x"]), (False, [b"x", b"x"])], ids=["as now", "before"]
)
async def test_a_message_that_comes_again_after_a_stop_is_there_once(
    tmp_path: Path, has_receipts: bool, rows: list[bytes]
) -> None:
    """Where a broker without receipts left it in doubt, better twice than never: as that broker had it."""
    async with Broker(config_of(tmp_path)) as broker, publisher_of(broker) as peer:
        peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
        assert (await peer.packet()).type == mqtt.PUBREC
    if not has_receipts:
        with closing(plyvel.DB(str(tmp_path / "data" / "store"))) as db:
            db.delete(RECEIPTS)
    for _ in (1, 2):
        async with Broker(config_of(tmp_path)) as broker:
            async with publisher_of(broker) as peer:
                peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7, dup=True))
                assert (await peer.packet()).type == mqtt.PUBREC
            assert await payloads_of(broker, "s") == rows


async def test_killed_between_the_store_and_the_streams_what_these_lack_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two messages that say the same the stream has the first: the second is none of its repetitions."""
    async with Broker(config_of(tmp_path)) as broker:
        await subscribe(broker)
        async with publisher_of(broker) as peer:
            peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=1))
            assert (await peer.packet()).type == mqtt.PUBREC
            with held_up(Partition, "append", monkeypatch) as writing:
                peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=2))
                await reached(writing)
                copy = killed(tmp_path, tmp_path / "killed")
    for start in range(2):
        async with Broker(config_of(copy)) as broker:
            assert await payloads_of(broker, "s") == [b"x"] + [b"other"] * start
            # Others go on before this one comes back, and the broker may die again meanwhile.
            await one_more(broker)
            copy = killed(copy, tmp_path / f"killed again {start}")
    async with Broker(config_of(copy)) as broker:
        await sent_again(broker, (1, b"x"), (2, b"x"))
        assert await payloads_of(broker, "s") == [b"x", b"other", b"other", b"x"]
        assert await received(broker) == [b"x", b"x", b"other", b"other"]


async def one_more(broker: Broker) -> None:
    """Another client's message at QoS 2, whole."""
    async with session_of(broker, "other", clean=False) as peer:
        peer.send(mqtt.publish_packet("s/a", b"other", qos=2, packet_id=2))
        assert (await peer.packet()).type == mqtt.PUBREC
        assert (await peer.ask(mqtt.pubrel_packet(2))).type == mqtt.PUBCOMP


async def test_streams_do_not_write_what_the_store_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would have it once more: nobody could know again what comes again."""
    async with Broker(config_of(tmp_path, "fsync")) as broker:
        await subscribe(broker)
        commits = streams_of(broker).commits
        async with publisher_of(broker) as peer:
            with held_up(Committer, "write", monkeypatch) as writing:
                peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
                await reached(writing)
                commits.flush()
                await asyncio.wrap_future(commits.writer.call(lambda: None))
                copy = killed(tmp_path, tmp_path / "killed")
            assert (await peer.packet()).type == mqtt.PUBREC
        assert await payloads_of(broker, "s") == [b"x"]
    async with Broker(config_of(copy)) as broker:
        assert await payloads_of(broker, "s") == []
        await sent_again(broker, (7, b"x"))
        assert await payloads_of(broker, "s") == [b"x"]
        assert await received(broker) == [b"x"]


async def test_only_the_stream_that_lacks_a_message_gets_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one commit are written partition by partition."""
    config = config_of(tmp_path, first="s/#", second="s/#")
    append = Partition.append
    come, may_go = threading.Event(), threading.Event()

    def held_up_at_the_second(partition: Partition, *arguments: Any) -> None:
        if partition.stream == second:
            come.set()
            assert may_go.wait(PATIENCE)
        append(partition, *arguments)

    async with Broker(config) as broker:
        second = streams_of(broker).registry.route(b"s/a").taps[1].name
        async with publisher_of(broker) as peer:
            with monkeypatch.context() as patch:
                patch.setattr(Partition, "append", held_up_at_the_second)
                peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
                await reached(come)
                copy = killed(tmp_path, tmp_path / "killed")
                may_go.set()
                assert (await peer.packet()).type == mqtt.PUBREC
    async with Broker(config_of(copy, first="s/#", second="s/#")) as broker:
        there = {name: await payloads_of(broker, name) for name in ("first", "second")}
        assert there == {"first": [b"x"], "second": [b"x"], second: []}
        await sent_again(broker, (7, b"x"))
        for name in ("first", "second"):
            assert await payloads_of(broker, name) == [b"x"]


async def test_a_packet_id_that_means_something_new_is_new_to_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that gave up what a stream lacks has released its packet id."""
    async with Broker(config_of(tmp_path)) as broker, publisher_of(broker) as peer:
        with held_up(Partition, "append", monkeypatch) as writing:
            peer.send(mqtt.publish_packet("s/a", b"given up", qos=2, packet_id=7))
            await reached(writing)
            copy = killed(tmp_path, tmp_path / "killed")
    for payload in (b"1", b"2"):
        config = config_of(copy)
        config.streams["later"] = msgspec.structs.replace(config.streams["s"], filters=["s/+"])
        async with Broker(config) as broker, publisher_of(broker) as peer:
            peer.send(
                mqtt.pubrel_packet(7), mqtt.publish_packet("s/a", payload, qos=2, packet_id=7)
            )
            assert [(await peer.packet()).type for _ in (1, 2)] == [mqtt.PUBCOMP, mqtt.PUBREC]
            for name in ("s", "later"):
                assert (await payloads_of(broker, name))[-1:] == [payload]
    async with Broker(config_of(copy)) as broker:
        assert await payloads_of(broker, "s") == [b"1", b"2"]


async def test_while_the_store_fails_streams_go_on_without_qos_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for the store is cut off, what it was to have waits for nothing, and comes again all the same."""

    def fail(*_: object) -> None:
        raise OSError("no store today")

    async with Broker(config_of(tmp_path)) as broker:
        async with publisher_of(broker) as peer, session_of(broker, "other", clean=False) as other:
            with monkeypatch.context() as patch:
                patch.setattr(Committer, "write", fail)
                peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
                assert await peer.rest() == b""
                other.send(mqtt.publish_packet("s/a", b"refused", qos=2, packet_id=7))
                assert await other.rest() == b""
                await broker.publish("s/a", b"at QoS 1", qos=1)
                assert await payloads_of(broker, "s") == [b"x", b"at QoS 1"]
        store = present(streams_of(broker).core.store)
        await until(lambda: not store.failing)
        await sent_again(broker, (7, b"x"))
        assert await payloads_of(broker, "s") == [b"x", b"at QoS 1"]


async def test_receipts_do_not_stay_in_the_store(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        await one_more(broker)
        await payloads_of(broker, "s")
        store = present(streams_of(broker).core.store)
        await until(lambda: [key for key, _ in scan(store.db, RECEIPTS)] == [RECEIPTS])
    async with Broker(config_of(tmp_path)) as broker, publisher_of(broker) as peer:
        peer.send(mqtt.publish_packet("s/a", b"x", qos=2, packet_id=7))
        assert (await peer.packet()).type == mqtt.PUBREC
    with closing(plyvel.DB(str(tmp_path / "data" / "store"))) as db:
        assert [key for key, _ in scan(db, RECEIPTS)] == [RECEIPTS]


def test_killed_by_the_system_again_and_again(tmp_path: Path) -> None:
    """A window of messages under way, as devices have it."""
    config = tmp_path / "vmq.toml"
    payload = 0
    under_way: dict[int, bytes] = {}
    released: dict[int, None] = {}
    for kill in range(5):
        config.write_text(
            f'[store]\ndurability = "{("os", "fsync")[kill % 2]}"\n'
            f'[streams.s]\nfilters = ["s/#"]\npartitions = 2\nkey = "topic"\n'
        )
        with (
            BrokerProcess.start(data_dir=tmp_path / "data", args=["--config", str(config)]) as run,
            mqtt.Wire.connect_tcp(run.tcp) as wire,
        ):
            wire.ask(mqtt.connect_packet("c", clean=False), mqtt.CONNACK)
            repeated = len(under_way)
            for number, each in under_way.items():
                wire.send(
                    mqtt.publish_packet(topic_of(each), each, qos=2, packet_id=number, dup=True)
                )
            for number in released:
                wire.send(mqtt.pubrel_packet(number))
            done = -repeated
            # The last time everything comes to its end.
            while (kill < 4 and done < 100 + 37 * kill) or (kill == 4 and (under_way or released)):
                while kill < 4 and len(under_way) + len(released) < 100:
                    payload += 1
                    free = next(each for each in range(1, 102) if each not in under_way | released)
                    under_way[free] = b"%d" % payload
                    wire.send(
                        mqtt.publish_packet(
                            topic_of(under_way[free]), under_way[free], qos=2, packet_id=free
                        )
                    )
                packet = wire.recv_packet()
                if packet.type == mqtt.PUBREC:
                    under_way.pop(packet.packet_id, None)
                    released[packet.packet_id] = None
                    wire.send(mqtt.pubrel_packet(packet.packet_id))
                    done += 1
                elif packet.type == mqtt.PUBCOMP:
                    released.pop(packet.packet_id, None)
            run.kill()
    stream = StoredStream(find_folder(tmp_path / "data"), "s")
    target = tmp_path / "s.parquet"
    export_parquet([stream], target)
    found = [int(each) for each in pq.read_table(target)["payload"].to_pylist()]
    assert sorted(found) == list(range(1, payload + 1))


def topic_of(payload: bytes) -> str:
    return f"s/{int(payload) % 3}"
