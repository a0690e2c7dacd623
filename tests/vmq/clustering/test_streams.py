"""Streams across the nodes of a cluster: definitions, owners, and messages on their way to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark_vmq.client import Client
from pyspark_vmq.options import Connection

from tests.vmq.clustering.nodes import address, clustering, config, together, until
from tests.vmq.streamed import payloads_of, rows_of, streams_of
from tests.vmq.streams.flight_support import act, ticket
from tests.vmq.streams.support import options, read_all
from vmq.broker import Broker
from vmq.config import Config, ListenerOptions
from vmq.config_streams import StreamOptions
from vmq.streams.catalog import Stream


def with_streams(
    folder: Path, name: str, join: str = "", listen: str = "", **streams: StreamOptions
) -> Config:
    """A node that serves its streams."""
    made = config(folder, name, [join] if join else [], listen)
    listeners = {
        "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
        "flight": ListenerOptions(url="grpc://127.0.0.1:0"),
    }
    return msgspec.structs.replace(made, streams=streams, listeners=listeners)


@asynccontextmanager
async def nodes(folder: Path, *names: str, **streams: StreamOptions) -> AsyncIterator[list[Broker]]:
    """Nodes with the same streams in their configurations, who know each other's."""
    brokers: list[Broker] = []
    try:
        for name in names:
            join = address(brokers[0]) if brokers else ""
            brokers.append(Broker(with_streams(folder, name, join, "", **streams)))
            await brokers[-1].start()
        await together(*brokers)
        await until(lambda: all(has_addresses(each, *names) for each in brokers if streams))
        await until(lambda: agree(*brokers, streams=list(streams)))
        yield brokers
    finally:
        for each in brokers:
            await each.stop()


def stream(broker: Broker, name: str) -> Stream:
    return streams_of(broker).catalog.get(name)


def owners(broker: Broker, name: str) -> list[str]:
    """The owners of a stream's partitions, as this node sees them."""
    shared = clustering(broker).streams
    own = clustering(broker).node.name
    return [each or own for each in shared.owners(stream(broker, name))]


def agree(*brokers: Broker, streams: list[str]) -> bool:
    """Whether all nodes see the same owners, and all of them in records."""
    return all(
        len({tuple(owners(each, name)) for each in brokers}) == 1
        and None
        not in [noted(each, name, n) for each in brokers for n in range(len(owners(each, name)))]
        and {tuple(owners(each, name)) for each in brokers}
        == {tuple(str(noted(brokers[0], name, n)) for n in range(len(owners(brokers[0], name))))}
        for name in streams
    )


def noted(broker: Broker, name: str, number: int) -> str | None:
    return clustering(broker).streams._noted(name, number)


def has_addresses(broker: Broker, *names: str) -> bool:
    return all(clustering(broker).streams.address(each) for each in names)


async def create(broker: Broker, name: str, **given: Any) -> None:
    streams_of(broker).catalog.create(name, options(**given))


def knows(broker: Broker, name: str) -> bool:
    return broker.streaming is not None and name in broker.streaming.catalog.streams


# --- definitions


async def test_a_stream_is_made_and_deleted_everywhere(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", given=options(filters=["g/#"])) as (a, b):
        await create(a, "fresh", filters=["f/#"], partitions=3)
        await until(lambda: knows(b, "fresh") and len(stream(b, "fresh").partitions) == 3)
        assert stream(b, "fresh").matches("f/1")
        streams_of(b).catalog.delete("fresh")
        await until(lambda: not knows(a, "fresh"))
        assert knows(a, "given")


async def test_a_node_that_was_down_learns_of_both(tmp_path: Path) -> None:
    async with Broker(with_streams(tmp_path, "a", old=options(filters=["o/#"]))) as a:
        await create(a, "gone", filters=["g/#"])
        b = Broker(with_streams(tmp_path, "b", address(a)))
        await b.start()
        await until(lambda: knows(b, "gone") and knows(b, "old"))
        place = address(b)
        await b.stop()
        streams_of(a).catalog.delete("gone")
        await create(a, "new", filters=["n/#"])
        async with Broker(with_streams(tmp_path, "b", listen=place)) as again:
            await until(lambda: knows(again, "new") and not knows(again, "gone"))
            assert stream(again, "old").fed


async def test_what_a_configuration_says_counts_when_it_is_new(tmp_path: Path) -> None:
    first, second = options(filters=["x/#"]), options(filters=["y/#"])
    async with nodes(tmp_path, "a", "b", s=first) as (a, b):
        places = address(a), address(b)
        await b.stop()
        changed = Broker(with_streams(tmp_path, "b", listen=places[1], s=second))
        await changed.start()
        await until(lambda: stream(a, "s").options.filters == ["y/#"])
        assert stream(a, "s").matches("y/1")
        assert not stream(a, "s").matches("x/1")
        # The old words of a are no news.
        await a.stop()
        async with Broker(with_streams(tmp_path, "a", listen=places[0], s=first)) as again:
            assert stream(again, "s").options.filters == ["y/#"]
            await together(again, changed)
            assert stream(changed, "s").options.filters == ["y/#"]
        await changed.stop()


async def test_a_stream_grows_everywhere(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=options(filters=["x/#"])) as (a, b):
        place = address(b)
        await b.stop()
        grown = options(filters=["x/#"], partitions=3)
        async with Broker(with_streams(tmp_path, "b", listen=place, s=grown)) as again:
            await until(lambda: len(stream(a, "s").partitions) == 3)
            await until(lambda: agree(a, again, streams=["s"]))


# --- owners and messages


async def fill(broker: Broker, topics: list[str], qos: int, word: str) -> None:
    for topic in topics:
        await broker.publish(topic, f"{word} {topic}".encode(), qos=qos)


async def total(brokers: list[Broker], name: str) -> list[bytes]:
    found = []
    for each in brokers:
        found += await payloads_of(each, name)
    return sorted(found)


def kept(brokers: list[Broker], name: str) -> int:
    """The messages in a stream's logs on all nodes."""
    found = [stream(each, name).partitions for each in brokers]
    return sum(each.end - each.earliest for partitions in found for each in partitions)


TOPICS = [f"x/{number}" for number in range(24)]


async def test_each_message_is_in_the_log_of_its_owner_once(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", "c", s=given) as brokers:
        assert len(set(owners(brokers[0], "s"))) > 1
        for each in brokers:
            name = clustering(each).node.name
            for qos in (0, 1, 2):
                await fill(each, TOPICS, qos, f"{name}{qos}")
        expected = sorted(
            f"{name}{qos} {topic}".encode()
            for name in "abc"
            for qos in (0, 1, 2)
            for topic in TOPICS
        )
        await until(lambda: kept(brokers, "s") == len(expected))
        assert await total(brokers, "s") == expected
        for each in brokers:
            name = clustering(each).node.name
            for number, partition in enumerate(stream(each, "s").partitions):
                assert partition.end == 0 or owners(each, "s")[number] == name
            for row in await rows_of(each, "s"):
                assert row["qos"] == int(row["payload"][1:2])
                assert row["client_id"].startswith("embedded-")


# --- readers


def read(location: str, name: str) -> list[bytes]:
    """What a plain Arrow client reads, which knows one node."""
    with flight.connect(location) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        found = []
        for each in info.endpoints:
            [place] = each.locations or [location]
            with flight.connect(place) as owner:
                found += owner.do_get(each.ticket).read_all().column("payload").to_pylist()
        assert info.total_records == len(found)
    return sorted(found)


def offsets(location: str, kind: str, **asked: Any) -> dict[str, int]:
    with flight.connect(location) as client:
        found: dict[str, int] = act(client, kind, **asked)
        return found


def flight_of(broker: Broker) -> str:
    return broker.listeners["flight"].url


async def test_a_reader_finds_the_owners_at_any_node(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        await fill(a, TOPICS, 1, "m")
        await until(lambda: kept([a, b], "s") == len(TOPICS))
        expected = sorted(f"m {topic}".encode() for topic in TOPICS)
        for each in (a, b):
            place = flight_of(each)
            assert await asyncio.to_thread(read, place, "s") == expected
            latest = await asyncio.to_thread(offsets, place, "latest", stream="s")
            assert sum(latest.values()) == len(TOPICS)
            assert len(latest) == 6
            earliest = await asyncio.to_thread(offsets, place, "earliest", stream="s")
            assert set(earliest.values()) == {0}
            timed = await asyncio.to_thread(offsets, place, "by-timestamp", stream="s", time=0)
            assert timed == earliest


async def test_a_node_tells_where_what_it_does_not_have_is(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=options(filters=["x/#"])) as (a, b):
        [owner] = owners(a, "s")
        here, there = (a, b) if owner == "b" else (b, a)

        def get() -> dict[str, Any]:
            caught: pytest.ExceptionInfo[flight.FlightServerError]
            with (
                flight.connect(flight_of(here)) as client,
                pytest.raises(flight.FlightServerError, match="is on node") as caught,
            ):
                client.do_get(ticket("s")).read_all()
            found: dict[str, Any] = json.loads(caught.value.extra_info)
            return found

        assert await asyncio.to_thread(get) == {"code": "elsewhere", "location": flight_of(there)}


async def test_a_reader_waits_for_news_of_another_node(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=options(filters=["x/#"])) as (a, b):
        [owner] = owners(a, "s")
        here = a if owner == "b" else b
        asked: dict[str, Any] = {"stream": "s", "after": {"0": 0}, "wait": 20.0}
        waiting = asyncio.create_task(
            asyncio.to_thread(offsets, flight_of(here), "latest", **asked)
        )
        await here.publish("x/1", b"news", qos=1)
        assert await waiting == {"0": 1}


async def test_rows_that_a_program_puts_go_to_the_owners(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):

        def put() -> None:
            topics = pa.array(TOPICS)
            payloads = pa.array([each.encode() for each in TOPICS])
            rows = pa.RecordBatch.from_arrays([topics, payloads], names=["topic", "payload"])
            with flight.connect(flight_of(a)) as client:
                path = flight.FlightDescriptor.for_path("s")
                writer, reader = client.do_put(path, rows.schema)
                writer.write_batch(rows)
                assert json.loads(reader.read().to_pybytes()) == {"rows": len(TOPICS)}
                writer.close()

        await asyncio.to_thread(put)
        assert await total([a, b], "s") == sorted(each.encode() for each in TOPICS)
        for each in (a, b):
            name = clustering(each).node.name
            for number, partition in enumerate(stream(each, "s").partitions):
                assert partition.end == 0 or owners(each, "s")[number] == name


async def test_spark_reads_each_partition_at_its_owner(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        await fill(a, TOPICS, 1, "m")
        await until(lambda: kept([a, b], "s") == len(TOPICS))

        def collect() -> list[bytes]:
            client = Client(Connection(flight_of(b)))
            found = []
            for number, end in client.latest("s").items():
                asked = {"stream": "s", "partition": number, "start": 0, "end": end}
                for batch, _ in client.read(asked):
                    found += batch.column("payload").to_pylist()
            assert len(client.owners) == owners(b, "s").count("a")
            return sorted(found)

        assert await asyncio.to_thread(collect) == sorted(f"m {each}".encode() for each in TOPICS)


# --- nodes that join and leave


async def leave(broker: Broker) -> None:
    """What `vmq cluster leave` does, without waiting until the others have said that they know all."""
    assert await clustering(broker).streams.leave(10)
    await clustering(broker).node.leave(0.2)


async def test_a_node_that_leaves_gives_its_partitions_with_their_offsets(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        await fill(a, TOPICS, 1, "one")
        await until(lambda: kept([a, b], "s") == len(TOPICS))
        had = {
            number: [(each["payload"], each["timestamp"]) for each in read_all(partition)]
            for broker in (a, b)
            for number, partition in enumerate(stream(broker, "s").partitions)
            if partition.end
        }
        await leave(b)
        await until(lambda: set(owners(a, "s")) == {"a"})
        await fill(a, TOPICS, 1, "two")
        await until(lambda: kept([a], "s") == 2 * len(TOPICS))
        for number, partition in enumerate(stream(a, "s").partitions):
            rows = [(each["payload"], each["timestamp"]) for each in read_all(partition)]
            assert rows[: len(had.get(number, []))] == had.get(number, [])
        assert kept([b], "s") == 0
        expected = sorted(f"{word} {each}".encode() for word in ("one", "two") for each in TOPICS)
        assert await asyncio.to_thread(read, flight_of(a), "s") == expected


async def test_nothing_is_lost_while_a_node_leaves(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=4, key="topic")
    async with nodes(tmp_path, "a", "b", "c", s=given) as (a, b, c):
        sent: list[bytes] = []
        left = False

        async def publish(broker: Broker, word: str) -> None:
            number = 0
            while not left or number < 100:
                payload = f"{word} {number:06}".encode()
                await broker.publish(f"x/{number % 7}", payload, qos=1)
                sent.append(payload)
                number += 1
                await asyncio.sleep(0)

        publishers = [asyncio.create_task(publish(a, "a")), asyncio.create_task(publish(b, "b"))]
        await until(lambda: kept([a, b, c], "s") > 100)
        await leave(c)
        left = True
        await asyncio.gather(*publishers)
        await until(lambda: kept([a, b], "s") >= len(sent))
        assert await total([a, b], "s") == sorted(sent)


async def test_a_partition_comes_back_with_its_offsets(tmp_path: Path) -> None:
    given = options(filters=["x/#"])
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        [first] = owners(a, "s")
        owner, other = (a, b) if first == "a" else (b, a)
        await fill(other, TOPICS, 1, "one")
        await until(lambda: kept([owner], "s") == len(TOPICS))
        await leave(owner)
        await until(lambda: kept([other], "s") == len(TOPICS))
        await until(lambda: len(clustering(owner).node.members) == 1)
        await fill(other, TOPICS, 1, "two")
        await clustering(owner).join(address(other), 10)
        await together(a, b)
        await until(lambda: has_addresses(other, "a", "b"))
        await leave(other)
        await until(lambda: kept([owner], "s") == 2 * len(TOPICS))
        words = [f"{word} {each}".encode() for word in ("one", "two") for each in TOPICS]
        assert [each["payload"] for each in read_all(stream(owner, "s").partitions[0])] == words


async def test_what_two_nodes_had_before_they_joined_is_kept(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=2, key="topic")
    async with (
        Broker(with_streams(tmp_path, "a", s=given)) as a,
        Broker(with_streams(tmp_path, "b", s=given)) as b,
    ):
        await fill(a, TOPICS, 1, "a")
        await fill(b, TOPICS, 1, "b")
        await clustering(b).join(address(a), 10)
        await together(a, b)
        await until(lambda: agree(a, b, streams=["s"]))
        expected = sorted(f"{word} {each}".encode() for word in "ab" for each in TOPICS)
        [owner, *others] = sorted(set(owners(a, "s")))
        assert not others, "they stay where they are, with the node that had them first"
        first, second = (a, b) if owner == "a" else (b, a)
        await until(lambda: kept([first], "s") == len(expected) and not kept([second], "s"))
        assert await total([first], "s") == expected


async def test_messages_wait_for_an_owner_that_is_down(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=options(filters=["x/#"])) as (a, b):
        [owner] = owners(a, "s")
        gone, here = (a, b) if owner == "a" else (b, a)
        place = address(gone)
        await fill(here, TOPICS[:1], 1, "one")
        await until(lambda: kept([gone], "s") == 1)
        await gone.stop()
        await fill(here, TOPICS[1:], 1, "one")
        async with Broker(
            with_streams(tmp_path, owner, listen=place, s=options(filters=["x/#"]))
        ) as again:
            await until(lambda: kept([again], "s") == len(TOPICS))
            assert await payloads_of(again, "s") == [f"one {each}".encode() for each in TOPICS]
        assert kept([here], "s") == 0
