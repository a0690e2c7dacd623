"""Where a message for a stream goes, and what becomes of it where it cannot go there."""

import asyncio
import errno
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import clustering, suspended
from tests.vmq.clustering.stream_nodes import kept, nodes, owned, owners, stream, total
from tests.vmq.streamed import streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.messages.publishes import MAX_HOPS
from vmq.clustering.messages.streams import Append
from vmq.clustering.streams.routed_appender import RoutedAppender
from vmq.streams.staging.parts import MESSAGE as MESSAGES
from vmq.streams.staging.state import BusyError

ONE = options(filters=["x/#"])
MESSAGE = Append("s", b"x/1", b"payload", 1, "device", 1_700_000_000_000_000)


def tap(broker: Broker) -> RoutedAppender:
    return clustering(broker).streams.tap(stream(broker, "s"))


async def test_a_sender_may_know_sooner_who_the_owner_is(tmp_path: Path) -> None:
    """To send it back would let a later message overtake it."""
    async with owned(tmp_path, s=ONE) as (_, other):
        since = clustering(other).streams.since("s", 0)
        assert since > 0
        assert tap(other).take(replace(MESSAGE, since=since)) == 0
        assert tap(other).take(replace(MESSAGE, since=since + 1)) > 0


async def test_a_message_that_finds_no_owner_stays_and_goes_there_later(tmp_path: Path) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other):
        streams = clustering(other).streams
        streams._inbox.append("a", replace(MESSAGE, hops=MAX_HOPS))
        await until(lambda: kept([other], "s") == 1 or kept([owner], "s") == 1)
        await until(lambda: kept([owner], "s") == 1 and kept([other], "s") == 0)
        assert await total([owner], "s") == [b"payload"]


async def test_what_another_node_has_acknowledged_is_taken_though_the_lane_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other):
        monkeypatch.setattr(tap(other), "_has_room", lambda *_: False)
        assert tap(other).take(MESSAGE) > 0
        assert tap(owner).take(MESSAGE) > 0


async def test_without_room_a_publisher_is_not_acknowledged(tmp_path: Path) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other), Device("p") as p:
        await p.connect(other)
        with patch.object(tap(other), "_takes", lambda *_: False):
            p.publish("x/1", "again", 1)
            await p.until(lambda: not p.is_connected)
        assert len(p.unfinished) == 1
        assert stream(other, "s").appender.refused == 1
        await p.connect(other)
        await p.until(lambda: not p.unfinished)
        await until(lambda: kept([owner], "s") == 1)


async def test_at_qos_0_what_is_for_a_node_that_is_down_is_dropped_and_counted(
    tmp_path: Path,
) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other):
        await owner.stop()
        await until(lambda: not clustering(other).node.up)
        await other.publish("x/1", b"gone", qos=0)
        await until(lambda: stream(other, "s").appender.dropped == 1)
        taps = tap(other)
        assert taps.append_run(b"x/1", [b"1", b"2"], 0, False, "p", 1) < 0
        assert stream(other, "s").appender.dropped == 3
        assert stream(other, "s").appender.refused == 0


async def test_a_message_is_acknowledged_when_the_store_has_it_for_the_owner(
    tmp_path: Path,
) -> None:
    async with (
        owned(tmp_path, durability="os", s=ONE) as (owner, other),
        Device("p") as p,
        Device("q", clean=True) as q,
    ):
        await p.connect(other)
        committer = present(other.parts.committer)
        store = present(committer.store)
        await committer.finish_all()
        with suspended(other):
            p.publish("x/1", "one", 1)
            await until(lambda: bool(store.dirty))
            await q.connect(other)
            q.publish("y", "", 0)
            assert len(p.unfinished) == 1
            assert kept([owner], "s") == 0
        committer.commit()
        await p.until(lambda: not p.unfinished)
        await until(lambda: kept([owner], "s") == 1)


# --- what a sink publishes (`vmq.streams.serving.sinks`)


def stage(broker: Broker, count: int) -> list[bytes]:
    """Stages a batch of query q, at all three QoS; returns its payloads."""
    part = streams_of(broker).sinks.staging.part("q", 0, 0, 0)
    plain = [
        {"topic": f"x/{n % 24}", "payload": b"%04d" % n, "qos": n % 3, "retain": False}
        for n in range(count)
    ]
    part.write(pa.RecordBatch.from_pylist(plain, schema=MESSAGES))
    part.close()
    return [b"%04d" % n for n in range(count)]


def publish(broker: Broker) -> asyncio.Future[int]:
    return asyncio.ensure_future(streams_of(broker).sinks.publish_once("q", 0, [(0, 0)]))


async def test_a_batch_stops_where_another_node_takes_no_more_and_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(filters=["x/#"], partitions=4, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        assert set(owners(a, "s")) == {"a", "b"}
        wanted = stage(a, 600)
        with monkeypatch.context() as patched:
            patched.setattr(clustering(a).outboxes, "_buffer_bytes", 5000)
            with pytest.raises(BusyError, match="another node takes no more"):
                await publish(a)
        store = present(streams_of(a).sinks.core.store)
        noted = present(store.load_progress("q"))
        assert 10 < noted[1] < 256
        assert await publish(a) == len(wanted) - noted[1]
        await until(lambda: kept([a, b], "s") == len(wanted))
        assert await total([a, b], "s") == wanted


async def test_a_batch_waits_for_a_partition_that_gets_another_owner(tmp_path: Path) -> None:
    """What waits in memory must not be noted as published."""
    given = options(filters=["x/#"], partitions=4, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        number = owners(a, "s").index("b")
        holding = clustering(a).streams._holding
        holding._begin(("s", number), "b", 1, 0.0)
        wanted = stage(a, 100)
        work = publish(a)
        await until(lambda: kept([a], "s") > 0)
        store = present(streams_of(a).sinks.core.store)
        assert not work.done()
        assert store.load_progress("q") is None
        holding._end(("s", number))
        assert await work == len(wanted)
        await until(lambda: kept([a, b], "s") == len(wanted))
        assert await total([a, b], "s") == wanted


async def test_a_full_disk_below_a_nodes_streams_holds_up_what_is_reliable_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """As docs/streams.md has it: confirmations wait, a window of 4 MiB is handled all the same, QoS 0 goes on."""
    async with owned(tmp_path, s=ONE) as (owner, other):
        name = clustering(owner).node.name
        outboxes = clustering(other).outboxes
        writer = streams_of(owner).commits.writer
        writer.retry_after = 0.01
        count, size = 120, 64 << 10
        async with owner.subscribe("out/#", qos=1) as messages:
            await until(lambda: is_routed(other, "out/1"))
            with patch.object(writer, "attempt", full):
                await other.publish("x/1", b"kept", qos=1)
                payloads = [b"%03d" % number + bytes(size) for number in range(count)]
                await asyncio.gather(*(other.publish("out/1", each, qos=1) for each in payloads))
                await until(lambda: bool(owner.health()))
                assert [(await anext(messages)).payload[:3] for _ in range(20)] == [
                    b"%03d" % number for number in range(20)
                ]
                await other.publish("out/0", b"quick", qos=0)
                # Nothing is confirmed, so the last ones are still to be sent.
                assert outboxes.waiting_for(name)[0] == count + 1
                assert kept([owner], "s") == 0
            rest = [(await anext(messages)).payload[:3] for _ in range(count - 20 + 1)]
            assert b"qui" in rest
            assert [each for each in rest if each != b"qui"] == [
                b"%03d" % number for number in range(20, count)
            ]
        await until(lambda: kept([owner], "s") == 1)
        await until(lambda: not outboxes.has_any(name))


def full(_commit: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def is_routed(broker: Broker, topic: str) -> bool:
    """Whether a node knows that another one has a subscriber."""
    return bool(broker.registry().route(topic.encode()).nodes)
