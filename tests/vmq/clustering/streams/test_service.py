"""Streams across the nodes of a cluster: definitions, messages on their way to owners, readers who look for them."""

import asyncio
import json
import threading
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock, patch

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import flight

from tests.support.present import present
from tests.support.until import PATIENCE, until
from tests.vmq.clustering.nodes import address, clustering, together
from tests.vmq.clustering.stream_nodes import (
    TOPICS,
    agree,
    create,
    fill,
    flight_of,
    kept,
    knows,
    nodes,
    offsets,
    owners,
    read,
    settled,
    stream,
    total,
    with_streams,
)
from tests.vmq.streamed import rows_of, streams_of
from tests.vmq.streams.flight_support import ticket
from tests.vmq.streams.support import options
from vmq.admin import streams as admin
from vmq.broker import Broker
from vmq.clustering.streams.metadata import decode_definition
from vmq.streams.damaged import open_partitions
from vmq.streams.leaving import LeavingStreams
from vmq.streams.log.partition import Partition
from vmq.streams.serving import opening as libraries
from vmq_cluster.keyed_records import key_of

# --- definitions


@pytest.mark.parametrize("is_gone_at_once", [False, True])
async def test_a_node_that_was_down_learns_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone_at_once: bool
) -> None:
    if is_gone_at_once:
        add = LeavingStreams.add

        def add_and_wait(*given: Any) -> Any:
            done = add(*given)
            done.result()
            return done

        monkeypatch.setattr(LeavingStreams, "add", add_and_wait)
    async with Broker(with_streams(tmp_path, "a", old=options(filters=["o/#"]))) as a:
        await create(a, "gone", filters=["g/#"])
        await create(a, "anew", filters=["x/#"], partitions=4, key="topic")
        b = Broker(with_streams(tmp_path, "b", address(a)))
        await b.start()
        await until(lambda: all(knows(b, each) for each in ("gone", "old", "anew")))
        await until(lambda: "b" in owners(b, "anew"))
        await fill(a, [f"x/{number}" for number in range(20)], 1, "before")
        await until(lambda: kept([a, b], "anew") == 20 > kept([a], "anew"))
        place = address(b)
        await b.stop()
        for name in ("gone", "anew"):
            streams_of(a).catalog.delete(name)
        await create(a, "anew", filters=["x/#"], partitions=4, key="topic")
        await create(a, "new", filters=["n/#"])
        async with Broker(with_streams(tmp_path, "b", listen=place)) as again:
            await until(lambda: knows(again, "new") and not knows(again, "gone"))
            assert stream(again, "old").fed
            catalog, made = streams_of(again).catalog, stream(a, "anew")
            await until(
                lambda: made.stream_id in [each.stream_id for each in catalog.streams.values()]
            )
            assert kept([a, again], "anew") == 0, "nothing of the stream that was deleted"


async def test_what_a_configuration_says_counts_when_it_is_new(tmp_path: Path) -> None:
    first, second = (options(filters=[each], replicas=1) for each in ("x/#", "y/#"))
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


async def test_a_stream_that_is_made_or_grows_is_opened_beside_the_loop_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loading, opening = list[threading.Thread](), list[threading.Thread]()
    check = libraries.check_libraries

    def checked() -> None:
        loading.append(threading.current_thread())
        check()

    def noted(make: Any, folder: Path, numbers: range, *given: Any) -> list[Partition]:
        opening.extend([threading.current_thread()] * bool(numbers))
        return open_partitions(make, folder, numbers, *given)

    async with nodes(tmp_path, "a", "b") as (a, b):
        monkeypatch.setattr("vmq.streams.catalog.open_partitions", noted)
        monkeypatch.setattr(libraries, "check_libraries", checked)
        await admin.create_stream(a, "s", {"filters": ["s/#"], "replicas": 1})
        assert knows(b, "s"), "who has made it publishes anywhere"
        assert [each is threading.main_thread() for each in loading] == 2 * [False, True]
        await admin.alter_stream(a, "s", {"partitions": 3})
        await until(lambda: agree(a, b, streams=["s"]))
        assert [len(stream(each, "s").partitions) for each in (a, b)] == [3, 3]
        # Two definitions in a row: the second waits for what the first one has begun.
        records, definitions = clustering(b).streams._records, clustering(b).streams._definitions
        found = decode_definition("s", present(records.get("stream", "s")))
        for count in (4, 5):
            grown = replace(found, options=replace(found.options, partitions=count))
            records.define("s", replace(grown, since=found.since + count))
            present(definitions).follow("s")
        await until(lambda: all(stream(each, "s").options.partitions == 5 for each in (a, b)))
        for each in (a, b):
            assert [found.number for found in stream(each, "s").partitions] == [*range(5)]
        assert "cannot keep" not in caplog.text
    assert len(opening) > 4
    assert threading.main_thread() not in opening


async def test_a_stream_has_one_id_everywhere_and_one_made_anew_another(tmp_path: Path) -> None:
    """One of the configuration too, which each node makes by itself: a node that comes has the id that is there."""
    given = options(filters=["g/#"])
    async with Broker(with_streams(tmp_path, "a", given=given)) as a:
        await create(a, "made", filters=["m/#"])
        first = {name: stream(a, name).stream_id for name in ("given", "made")}
        b = Broker(with_streams(tmp_path, "b", address(a), given=given))
        await b.start()
        place = address(b)
        await until(lambda: knows(b, "made"))
        await until(lambda: all(stream(b, name).stream_id == first[name] for name in first))
        assert all(stream(a, name).stream_id == first[name] for name in first)
        streams_of(a).catalog.delete("made")
        await until(lambda: not knows(b, "made"))
        await create(b, "made", filters=["m/#"])
        await until(lambda: knows(a, "made"))
        anew = stream(b, "made").stream_id
        assert anew not in {first["made"], ""}
        assert stream(a, "made").stream_id == anew
        await b.stop()
        changed = options(filters=["g/+"])
        async with Broker(with_streams(tmp_path, "b", listen=place, given=changed)) as again:
            await until(lambda: stream(a, "given").options.filters == ["g/+"])
            found = [stream(each, "given").stream_id for each in (a, again)]
            assert found == [first["given"]] * 2
            assert stream(again, "made").stream_id == anew


# --- owners and messages


async def test_a_node_follows_once_what_was_deleted_is_gone(tmp_path: Path) -> None:
    """Its event loop does not wait for that."""
    may_go = threading.Event()
    async with nodes(tmp_path, "a", "b", given=options(filters=["g/#"])) as (a, b):
        await create(a, "made", filters=["m/#"])
        await until(lambda: knows(b, "made"))
        streams_of(b).commits.writer.call(may_go.wait)
        streams_of(a).catalog.delete("made")
        await until(lambda: not knows(b, "made"))
        await create(a, "made", filters=["m/#"])
        await create(a, "other", filters=["o/#"])
        await until(lambda: knows(b, "other"))
        assert not knows(b, "made")
        may_go.set()
        await until(lambda: knows(b, "made"))
        assert stream(b, "made").stream_id == stream(a, "made").stream_id


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


async def test_an_operator_sees_who_has_what(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        await fill(a, TOPICS, 1, "m")
        await until(lambda: kept([a, b], "s") == len(TOPICS))
        names = owners(a, "s")
        for each in (a, b):
            [row] = await admin.list_streams(each).rows()
            assert row.owned == names.count(clustering(each).node.name)
            shown = await admin.show_stream(each, "s")
            assert shown.messages == len(TOPICS)
            assert [part.owner for part in shown.partitions] == names
            assert sum(part.end or 0 for part in shown.partitions) == len(TOPICS)
            assert figures_of(each, "cluster_stream_partitions") == row.owned
        assert sum(figures_of(each, "cluster_stream_messages_sent") for each in (a, b)) == kept(
            [b], "s"
        )
        await b.stop()
        shown = await admin.show_stream(a, "s")
        away = [part for part in shown.partitions if part.owner == "b"]
        assert {(part.earliest, part.end, part.bytes) for part in away} == {(None, None, None)}
        assert shown.messages == kept([a], "s")


async def test_a_stream_whose_disk_was_full_for_a_moment_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with nodes(tmp_path, "a", "b") as (a, b):
        await admin.create_stream(a, "s", {"filters": ["s/#"], "replicas": 1})
        monkeypatch.setattr("vmq.clustering.streams.definitions._AGAIN", 0.01)
        full = Mock(
            wraps=open_partitions, side_effect=chain([OSError("full")] * 2, repeat(DEFAULT))
        )
        monkeypatch.setattr("vmq.streams.catalog.open_partitions", full)
        assert not clustering(a).streams.set_options(stream(a, "s"), {"partitions": 2})
        await until(lambda: all(len(stream(each, "s").partitions) == 2 for each in (a, b)))
    assert "cannot keep the stream 's' of the cluster: full" in caplog.text


def figures_of(broker: Broker, name: str) -> float:
    """The sum of a figure of the cluster."""
    found = {family.name: family for family in clustering(broker).families()}
    return sum(sample.value for sample in found[name].samples)


@pytest.mark.parametrize("before", ["none", "deleted", "there"])
async def test_a_message_may_come_before_the_news_of_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """And before it is open: it waits for that. All that the owner knows by then may be one of its name before it."""
    may_go, made = threading.Event(), {"filters": ["x/#"], "partitions": 8, "key": "topic"}

    def held_up(make: Any, folder: Path, *given: Any) -> list[Partition]:
        if folder.is_relative_to(streams_of(b).catalog.folder):
            may_go.wait(PATIENCE)
        return open_partitions(make, folder, *given)

    async with nodes(tmp_path, "a", "b", given=options(filters=["g/#"])) as (a, b):
        if before != "none":
            await create(a, "s", **made)
            await until(lambda: knows(b, "s") and agree(a, b, streams=["s"]))
        if before == "deleted":
            streams_of(a).catalog.delete("s")
            await until(lambda: not knows(b, "s"))
        late = clustering(b).streams
        get, old = late._records.get, late._records.get("stream", "s")
        with monkeypatch.context() as patch:
            patch.setattr(late._records, "get", lambda *of: old if of[0] == "stream" else get(*of))
            patch.setattr("vmq.streams.catalog.open_partitions", held_up)
            if before == "there":
                streams_of(a).catalog.delete("s")
            await create(a, "s", **made)
            await fill(a, TOPICS, 1, "m")
            confirming = clustering(b).outboxes.arrivals.confirming("a")
            await until(lambda: len(confirming.actions) > 0)
            assert knows(b, "s") == (before == "there")
            assert clustering(a).outboxes.has_any("b"), "a has it until it is safe"
            may_go.set()
            if before == "none":
                await until(lambda: knows(b, "s") and kept([b], "s") > 0)
            await until(lambda: get("stream", "s") not in (old, b""))
        late._on_changes([Mock(key=key_of("stream", "s"), local=False)])
        await until(lambda: knows(b, "s") and agree(a, b, streams=["s"]))
        await until(lambda: settled([a, b], "s", len(TOPICS)))
        assert await total([a, b], "s") == sorted(f"m {each}".encode() for each in TOPICS)


# --- readers


async def test_a_reader_finds_the_owners_at_any_node(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", flight=True, s=given) as (a, b):
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
    async with nodes(tmp_path, "a", "b", flight=True, s=options(filters=["x/#"])) as (a, b):
        [owner] = owners(a, "s")
        here, there = (a, b) if owner == "b" else (b, a)

        def get() -> None:
            with flight.connect(flight_of(here)) as client:
                client.do_get(ticket("s")).read_all()

        with pytest.raises(flight.FlightServerError, match="is on node") as caught:
            await asyncio.to_thread(get)
        elsewhere = {"code": "elsewhere", "location": flight_of(there)}
        assert json.loads(caught.value.extra_info) == elsewhere


@patch("vmq.streams.extents._LONG", 0.2)
@patch("vmq.streams.extents._SHORT", 0.2)
async def test_offsets_of_a_node_that_is_down_are_asked_for_again(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", flight=True, s=options(filters=["x/#"])) as (a, b):
        [name] = owners(a, "s")
        gone, here = (a, b) if name == "a" else (b, a)
        await fill(here, TOPICS, 1, "m")
        await gone.stop()
        for kind, more in (("latest", {}), ("earliest", {}), ("by-timestamp", {"time": 0})):
            with pytest.raises(
                flight.FlightUnavailableError, match=f"'{name}' does not answer"
            ) as caught:
                await asyncio.to_thread(offsets, flight_of(here), kind, stream="s", **more)
            assert json.loads(caught.value.extra_info) == {"code": "away"}
        assert await asyncio.to_thread(endpoints, flight_of(here)) == (1, -1)


def endpoints(location: str) -> tuple[int, int]:
    """How many endpoints a stream has, and rows."""
    with flight.connect(location) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("s"))
        return len(info.endpoints), info.total_records


async def test_a_reader_waits_for_news_of_another_node(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", flight=True, s=options(filters=["x/#"])) as (a, b):
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
    async with nodes(tmp_path, "a", "b", flight=True, s=given) as (a, b):

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
