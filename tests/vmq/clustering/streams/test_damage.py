"""A damaged partition on one node of a cluster: all nodes refuse what concerns it, and serve everything else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.support.flipped import flip
from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, together
from tests.vmq.clustering.stream_nodes import (
    TOPICS,
    agree,
    fill,
    flight_of,
    kept,
    nodes,
    owners,
    stream,
    with_streams,
)
from tests.vmq.streamed import payloads_of, streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.mending import mend
from vmq.streams.places import PageQuery

GIVEN = options(filters=["x/#"], partitions=6, key="topic")


def number_of(broker: Broker, topic: str) -> int:
    return stream(broker, "s").appender.partition_of(topic.encode(), "")


@asynccontextmanager
async def hurt(
    folder: Path, while_down: list[str], *, flight: bool = False
) -> AsyncIterator[tuple[Broker, Broker, int, list[str]]]:
    """Nodes a and b, where a partition of b is damaged; its number and those of `TOPICS` that are in it.

    What is named of them is published at a while b is down.
    """
    async with nodes(folder, "a", "b", flight=flight, s=GIVEN) as (a, b):
        number = next(
            each
            for each, owner in enumerate(owners(a, "s"))
            if owner == "b" and any(number_of(a, topic) == each for topic in TOPICS)
        )
        topics = [topic for topic in TOPICS if number_of(a, topic) == number]
        await fill(a, TOPICS, 1, "before")
        await until(lambda: kept([a, b], "s") == len(TOPICS))
        place = address(b)
        await b.stop()
        await until(lambda: not clustering(a).node.up)
        await fill(a, [each for each in while_down if each in topics], 1, "meanwhile")
        flip(max((folder / "b" / "streams" / "s" / str(number)).glob("*.arrows")), -9)
        again = await started(folder, place, a, flight=flight)
        try:
            yield a, again, number, topics
        finally:
            await again.stop()


async def started(folder: Path, place: str, a: Broker, *, flight: bool = False) -> Broker:
    b = Broker(with_streams(folder, "b", listen=place, flight=flight, s=GIVEN))
    await b.start()
    await together(a, b)
    await until(lambda: agree(a, b, streams=["s"]))
    return b


def knows_damage(a: Broker, number: int) -> bool:
    return clustering(a).streams.refuses("s", number)


def told(broker: Broker, text: str) -> bool:
    found = broker.condition()
    return found.status == "degraded" and any(text in each for each in found.degraded)


async def acknowledged(broker: Broker, topic: str) -> bool:
    """Whether a message of QoS 1 is; if not, its publisher is cut off."""
    async with Device("p", clean=True) as p:
        await p.connect(broker)
        p.publish(topic, "after", 1)
        await p.until(lambda: not (p.unfinished and p.is_connected))
        return not p.unfinished


async def test_the_node_starts_and_its_partition_alone_is_refused_on_all(tmp_path: Path) -> None:
    async with hurt(tmp_path, []) as (a, b, number, topics):
        await until(lambda: knows_damage(a, number))
        assert told(b, f"partition {number} of stream 's' is damaged and refused: ")
        assert told(a, f"partition {number} of stream 's' is damaged on node 'b' and refused: ")
        others = [each for each in TOPICS if each not in topics]
        for each in (a, b):
            assert not await acknowledged(each, topics[0])
            for topic in others:
                assert await acknowledged(each, topic)
            assert stream(each, "s").appender.refused == 1
        await a.publish(topics[0], b"gone", qos=0)
        assert stream(a, "s").appender.dropped == 2
        whole = [each for each in stream(b, "s").partitions if each.number != number]
        there = (*whole, *stream(a, "s").partitions)
        await until(lambda: sum(each.end - each.earliest for each in there) == 3 * len(others))
        assert not list((tmp_path / "b" / "streams" / "s").glob("*/parked*"))


async def test_readers_at_any_node_are_told(tmp_path: Path) -> None:
    async with hurt(tmp_path, [], flight=True) as (a, b, number, topics):
        await until(lambda: knows_damage(a, number))
        for each in (a, b):
            logs = LogsAnywhere(stream(each, "s"), streams_of(each).catalog.places)
            with pytest.raises(StreamError, match=r"s/\d/0+\.arrows is damaged at byte"):
                await asyncio.to_thread(logs.page, number, PageQuery(0, 1, 1, 1))
            await asyncio.to_thread(put, flight_of(each))
            found = 0
            for whole in set(range(6)) - {number}:
                page = await asyncio.to_thread(logs.page, whole, PageQuery(0, 1 << 60, 99, 1 << 20))
                found += len(page.messages)
            assert found == len(TOPICS) - len(topics)


def put(location: str) -> None:
    """A program writes to all partitions, of which one is damaged: none of its rows is taken."""
    rows = pa.table({"topic": TOPICS, "payload": [b"put"] * len(TOPICS)})
    with flight.connect(location) as client:
        writer, _ = client.do_put(flight.FlightDescriptor.for_path("s"), rows.schema)
        writer.write_table(rows)
        with pytest.raises(flight.FlightServerError, match="is damaged") as refused:
            writer.close()
        assert b'"damaged"' in refused.value.extra_info


async def test_what_was_acknowledged_before_the_others_knew_is_kept_until_it_is_mended(
    tmp_path: Path,
) -> None:
    async with hurt(tmp_path, TOPICS) as (a, b, number, topics):
        await until(lambda: not clustering(a).outboxes.has_any("b"))
        # Of what b has not lost nothing waits for the rest.
        assert await acknowledged(a, next(each for each in TOPICS if each not in topics))
        assert not knows_damage(b, 0 if number else 1)
        place = address(b)
        await b.stop()
        assert len(mend(tmp_path / "b" / "streams", ["s"])) == 1
        mended = await started(tmp_path, place, a)
        try:
            await until(lambda: not knows_damage(a, number))
            assert mended.health() == []
            assert a.health() == []
            found = [each for each in await payloads_of(mended, "s") if b"meanwhile" in each]
            assert sorted(found) == sorted(f"meanwhile {each}".encode() for each in topics)
            end = stream(mended, "s").partitions[number].end
            assert await acknowledged(a, topics[0])
            await until(lambda: stream(mended, "s").partitions[number].end == end + 1)
        finally:
            await mended.stop()


async def test_a_node_that_leaves_keeps_what_is_damaged(tmp_path: Path) -> None:
    async with hurt(tmp_path, []) as (a, b, number, _):
        await until(lambda: knows_damage(a, number))
        assert not await clustering(b).streams.leave(30)
        expected = ["b" if each == number else "a" for each in range(6)]
        assert owners(b, "s") == expected
        await until(lambda: owners(a, "s") == expected)  # it hears of the last one
