"""Batches that the broker publishes: each message once, whatever happens on the way."""

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import PUBLISH, puback_packet, subscribe_packet
from tests.vmq.sockets import Peer, session_of, take
from tests.vmq.streamed import config_in, fill_disk, payloads_of, rows_of, streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.config.options import QueueOptions
from vmq.streams.appender import REFUSED, Appender
from vmq.streams.serving.sinks import STEP, Sinks
from vmq.streams.staging.parts import MESSAGE
from vmq.streams.staging.state import BusyError, StagingError

TIMEOUT = 30.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        yield broker


def sinks_of(broker: Broker) -> Sinks:
    return streams_of(broker).sinks


async def recovered(broker: Broker) -> None:
    recovery = present(streams_of(broker).recovery)
    await recovery


def stage(
    broker: Broker, batch: int, payloads: Sequence[bytes], topic: str = "out", qos: int = 1
) -> None:
    """Stages one part of a batch of query q."""
    part = sinks_of(broker).staging.part("q", batch, 0, 0)
    plain = [{"topic": topic, "payload": each, "qos": qos, "retain": False} for each in payloads]
    part.write(pa.RecordBatch.from_pylist(plain, schema=MESSAGE))
    part.close()


async def publish(broker: Broker, batch: int, parts: Sequence[tuple[int, int]] = ((0, 0),)) -> int:
    async with asyncio.timeout(TIMEOUT):
        return await sinks_of(broker).publish_once("q", batch, parts)


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def read(peer: Peer, count: int) -> list[bytes]:
    """So many messages, each acknowledged."""
    got = []
    for _ in range(count):
        packet = await peer.packet()
        assert packet.type == PUBLISH
        got.append(packet.payload)
        if packet.qos:
            peer.send(puback_packet(packet.packet_id))
    return got


async def durable_subscriber(broker: Broker) -> None:
    """A session that stays away from now on; all of it is in the store."""
    async with session_of(broker, "reader", clean=False) as peer:
        await peer.ask(subscribe_packet(1, ("out", 1)))
    await until(lambda: broker.registry().subscribers["reader"].output is None)
    await broker.parts.committer.finish_all()


async def stored(broker: Broker, count: int) -> list[bytes]:
    """What the durable session gets when it is back: so many messages and no more."""
    async with session_of(broker, "reader", clean=False) as peer:
        got = await read(peer, count)
        await broker.publish("out", b"last", qos=1)
        assert await read(peer, 1) == [b"last"]
    return got


async def test_a_batch_is_published_once(broker: Broker) -> None:
    wanted = numbers(0, 2 * STEP + 10)
    async with broker.subscribe("out", qos=1) as messages:
        stage(broker, 0, wanted)
        assert await publish(broker, 0) == len(wanted)
        stage(broker, 0, wanted)
        assert await publish(broker, 0) == 0
        stage(broker, 1, [b"next"])
        assert await publish(broker, 1) == 1
        assert await take(messages, len(wanted) + 1) == [*wanted, b"next"]
    assert list(sinks_of(broker).staging.folder.glob("q/*.arrow")) == []


async def test_the_same_batch_asked_for_by_many_is_published_once(broker: Broker) -> None:
    async with broker.subscribe("out", qos=1) as messages:
        stage(broker, 0, numbers(0, 600))
        counts = await asyncio.gather(*(publish(broker, 0) for _ in range(5)))
        assert sorted(counts) == [0, 0, 0, 0, 600]
        stage(broker, 1, [b"end"])
        await publish(broker, 1)
        assert await take(messages, 601) == [*numbers(0, 600), b"end"]


async def test_messages_go_into_streams_too(broker: Broker) -> None:
    stage(broker, 0, numbers(0, 5), topic="s/a")
    await publish(broker, 0)
    rows = await rows_of(broker, "s")
    assert [row["payload"] for row in rows] == numbers(0, 5)
    assert {row["client_id"] for row in rows} == {"vmq-sink:q"}


async def test_a_topic_that_cannot_be_routed_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_in(tmp_path, s="s/#")
    async with Broker(config) as broker:
        depth = "/".join("x" * 1 for _ in range(10_000))
        stage(broker, 0, [b"a"], topic=depth)
        await publish(broker, 0)
        stage(broker, 1, [b"b"], topic="s/ok")
        await publish(broker, 1)
        assert await payloads_of(broker, "s") == [b"b"]
    assert "a staged message cannot be published" in caplog.text


async def test_a_batch_that_was_decided_before_another_is_published_before_it(
    broker: Broker,
) -> None:
    staging = sinks_of(broker).staging
    stage(broker, 0, numbers(0, 3), topic="s/a")
    staging.decide("q", 0, [(0, 0)])
    stage(broker, 1, numbers(3, 3), topic="s/a")
    assert await publish(broker, 1) == 3
    assert await payloads_of(broker, "s") == numbers(0, 6)
    assert await publish(broker, 0) == 0


@pytest.mark.parametrize("done", (0, 1, 2, 3))
async def test_a_broker_that_ends_in_the_middle_goes_on_behind_the_last_safe_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    wanted = numbers(0, 3 * STEP)
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        await durable_subscriber(broker)
        stage(broker, 0, wanted)
        sinks = sinks_of(broker)
        original, steps = sinks.publish_rows, 0

        async def few(*arguments: Any) -> None:
            nonlocal steps
            if steps == done:
                raise StagingError("the broker ends here")
            steps += 1
            await original(*arguments)

        def lost(_query: str, _batch: int) -> None:
            raise StagingError("the broker ends here")

        monkeypatch.setattr(sinks, "publish_rows", few)
        monkeypatch.setattr(sinks.staging, "finish", lost)
        with pytest.raises(StagingError, match="ends here"):
            await publish(broker, 0)
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        await recovered(broker)
        assert await stored(broker, len(wanted)) == wanted
        stage(broker, 0, wanted)
        assert await publish(broker, 0) == 0


@pytest.mark.parametrize("steps_done", (0, 2))
@pytest.mark.parametrize("kept", (0, 1, 100, STEP))
async def test_streams_get_nothing_twice_of_what_the_store_did_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_done: int, kept: int
) -> None:
    """The broker ends when a step is in the streams, or a part of it, and its progress is nowhere."""
    wanted = [b"%d" % (number % 7) for number in range(3 * STEP)]
    streams = {"s": options(filters=["s/#"], partitions=3, key="topic"), "t": "s/+"}
    async with Broker(config_in(tmp_path, **streams)) as broker:
        await broker.publish("s/1", b"1")  # not of the batch, however much it is like it
        sinks = sinks_of(broker)
        part = sinks.staging.part("q", 0, 0, 0)
        plain = [
            {"topic": f"s/{number % 5}", "payload": payload, "qos": 1, "retain": False}
            for number, payload in enumerate(wanted)
        ]
        part.write(pa.RecordBatch.from_pylist(plain, schema=MESSAGE))
        part.close()
        original, steps = sinks.keep, 0

        async def cut_off(query: str, routed: Sequence[Any]) -> None:
            nonlocal steps
            await original(query, routed[:kept] if steps == steps_done else routed)
            steps += 1
            if steps > steps_done:
                raise StagingError("the broker ends here")

        monkeypatch.setattr(sinks, "keep", cut_off)
        with pytest.raises(StagingError, match="ends here"):
            await publish(broker, 0)
        await broker.publish("s/1", b"1")
    async with Broker(config_in(tmp_path, **streams)) as broker:
        await recovered(broker)
        for name in ("s", "t"):
            rows = await rows_of(broker, name)
            assert sum(row["client_id"] != "vmq-sink:q" for row in rows) == 2
            for topic in range(5):
                got = [
                    row["payload"]
                    for row in rows
                    if row["topic"] == f"s/{topic}" and row["client_id"] == "vmq-sink:q"
                ]
                assert got == wanted[topic::5]
        assert sinks_of(broker).earlier == {}


async def test_a_stop_in_the_middle_of_a_batch_leaves_the_rest_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = numbers(0, 3 * STEP)
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        await durable_subscriber(broker)
        stage(broker, 0, wanted)
        sinks = sinks_of(broker)
        original = sinks.publish_rows
        reached, never = asyncio.Event(), asyncio.Event()

        async def slow(*arguments: Any) -> None:
            await original(*arguments)
            reached.set()
            await never.wait()

        monkeypatch.setattr(sinks, "publish_rows", slow)
        work = asyncio.ensure_future(publish(broker, 0))
        await reached.wait()
    with pytest.raises(BusyError, match="the broker ends"):
        await work
    with pytest.raises(BusyError, match="the broker ends"):
        await sinks.publish_once("q", 1, [])
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        await recovered(broker)
        assert await stored(broker, len(wanted)) == wanted


async def test_a_step_is_not_safe_before_its_own_commits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of others come and go meanwhile."""
    fill_disk(broker, monkeypatch)
    await durable_subscriber(broker)
    stage(broker, 0, [b"a"], topic="s/a")
    work = asyncio.ensure_future(publish(broker, 0))
    await until(broker.health)
    for _ in range(3):
        await broker.publish("out", b"durable", qos=1)  # a commit of the store
    assert not work.done()
    assert sinks_of(broker).staging.decided("q") == 0
    store = present(sinks_of(broker).core.store)
    assert store.load_progress("q") is None, "noted as published, it would be missing after a crash"
    monkeypatch.undo()
    assert await work == 1


async def test_a_message_that_a_stream_refuses_does_not_repeat_those_before_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = numbers(0, 100)
    original = Appender.append

    def refusing(appender: Appender, topic: bytes, payload: bytes, *rest: Any) -> int:
        return REFUSED if payload == b"50" else original(appender, topic, payload, *rest)

    async with broker.subscribe("s/#", qos=1) as messages:
        stage(broker, 0, wanted, topic="s/a")
        with monkeypatch.context() as patched:
            patched.setattr(Appender, "append", refusing)
            with pytest.raises(BusyError, match="a stream cannot write; the batch stays staged"):
                await publish(broker, 0)
        assert await publish(broker, 0) == 100
        assert await take(messages, 100) == wanted
    assert await payloads_of(broker, "s") == wanted


async def test_a_store_that_fails_in_the_middle_loses_and_doubles_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = numbers(0, 2 * STEP)
    await durable_subscriber(broker)
    stage(broker, 0, wanted)
    committer = broker.parts.committer

    def full(_store: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(committer), "write", staticmethod(full))
        with pytest.raises(BusyError, match="the store cannot write"):
            await publish(broker, 0)
        with pytest.raises(BusyError, match="the store cannot write; the batch stays staged"):
            await publish(broker, 0)
    await until(lambda: not broker.health())
    assert await publish(broker, 0) == STEP
    assert await stored(broker, len(wanted)) == wanted


async def test_a_queue_that_asks_publishers_to_wait_holds_the_batch_up(tmp_path: Path) -> None:
    queue = QueueOptions(overflow="pause_publisher", max_online_messages=50)
    config = msgspec.structs.replace(config_in(tmp_path, s="s/#"), queue=queue)
    async with Broker(config) as broker, session_of(broker, "reader") as peer:
        await peer.ask(subscribe_packet(1, ("out", 1)))
        wanted = numbers(0, 4 * STEP)
        stage(broker, 0, wanted)
        work = asyncio.ensure_future(publish(broker, 0))
        assert await read(peer, len(wanted)) == wanted
        assert await work == len(wanted)


async def test_recovery_waits_for_a_disk_and_passes_over_what_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vmq.streams.serving.sinks.RETRY_AFTER", 0.01)
    caplog.set_level("INFO", "vmq.streams")
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        stage(broker, 0, [b"a"], topic="s/a")
        sinks = sinks_of(broker)
        sinks.staging.decide("q", 0, [(0, 0)])
        gone = sinks.staging.part("gone", 0, 0, 0)
        gone.close()
        sinks.staging.decide("gone", 0, [(0, 0)])
        (sinks.staging.folder / "gone" / "0-0-0.arrow").unlink()
        original, tries = sinks.publish_rows, 0

        async def busy(*arguments: Any) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise BusyError("not now")
            await original(*arguments)

        monkeypatch.setattr(sinks, "publish_rows", busy)
        async with asyncio.timeout(TIMEOUT):
            await sinks.recover()
        assert await payloads_of(broker, "s") == [b"a"]
    assert "batch 0 of query q has to wait: not now" in caplog.text
    assert "batch 0 of query gone cannot be published" in caplog.text
    assert "published the rest of batch 0 of query q: 1 messages" in caplog.text


async def test_nothing_is_kept_of_a_query_between_its_batches(broker: Broker) -> None:
    sinks = sinks_of(broker)
    stage(broker, 1, numbers(0, 3))
    assert await publish(broker, 1) == 3
    await until(lambda: not (sinks.locks or sinks.progress or sinks.given or sinks.works))
