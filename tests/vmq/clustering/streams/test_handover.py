"""Partitions of streams that change their owners: nodes that join, leave, are removed, and come back."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import randbytes
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, is_subscribed, together
from tests.vmq.clustering.stream_nodes import (
    TOPICS,
    agree,
    fill,
    flight_of,
    has_met,
    kept,
    leave,
    nodes,
    offsets,
    owned,
    owners,
    read,
    settled,
    stream,
    total,
    with_streams,
)
from tests.vmq.streamed import payloads_of, streams_of
from tests.vmq.streams.support import options, read_all
from vmq.admin import cluster as admin
from vmq.broker import Broker
from vmq.clustering.streams.metadata import Ownership
from vmq.clustering.streams.owners import Owners
from vmq.clustering.streams.remote_partitions import RemotePartitions
from vmq.streams.log.cursor import LogReader


async def test_a_node_that_leaves_gives_its_partitions_with_their_offsets(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", flight=True, s=given) as (a, b):
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


def rows_of(broker: Broker) -> list[tuple[int, bytes]]:
    """Offsets and payloads of a stream of one partition."""
    partition = stream(broker, "s").partitions[0]
    chunks = LogReader(partition, ["offset", "payload"]).read(partition.earliest)
    return [
        (each["offset"], each["payload"]) for chunk in chunks for each in chunk.rows.to_pylist()
    ]


async def test_a_compacted_partition_goes_to_another_node_as_it_is(tmp_path: Path) -> None:
    given = options(filters=["x/#"], key="topic", compact=True, segment_bytes=65_536)
    async with owned(tmp_path, s=given) as (owner, other):
        for number in range(120):
            await owner.publish(f"x/{number % 3}", b"%04d" % number + randbytes(4000), qos=1)

        def is_compacted() -> bool:
            streams_of(owner).catalog.janitor.wanted.set()  # rounds are not waited for
            return len(rows_of(owner)) < 90

        await until(is_compacted, 0.05)
        had = rows_of(owner)
        await leave(owner)
        await until(lambda: owners(other, "s") == [clustering(other).node.name])
        await other.publish("x/0", b"last", qos=1)
        await until(lambda: rows_of(other)[-1:] == [(120, b"last")])
        # It may have been compacted once more meanwhile.
        assert set(rows_of(other)) <= {*had, (120, b"last")}
        newest = {int(payload[:4]) % 3: offset for offset, payload in had}
        assert set(newest.values()) <= {offset for offset, _ in rows_of(other)}
        assert kept([owner], "s") == 0


#: Seconds between two publishes: nodes that come and go are to have the loop as well.
PACE = 0.002


async def keep_publishing(
    broker: Broker, word: str, stop: asyncio.Event, sent: list[bytes]
) -> None:
    """Publishes on some topics until told to stop, without waiting for each acknowledgement."""
    pending: set[asyncio.Task[None]] = set()
    for number in range(1_000_000):
        if stop.is_set() and number >= 100:
            break
        payload = f"{word} {number:06}".encode()
        sent.append(payload)
        pending.add(asyncio.create_task(broker.publish(f"x/{number % 7}", payload, qos=1)))
        if len(pending) > 20:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(PACE)
    await asyncio.gather(*pending)


async def assert_in_order(brokers: list[Broker], name: str) -> None:
    """Each publisher's messages of each topic stand as they were published."""
    for broker in brokers:
        for partition in stream(broker, name).partitions:
            last: dict[tuple[str, bytes], bytes] = {}
            for row in read_all(partition):
                key = row["topic"], row["payload"][:1]
                assert last.get(key, b"") < row["payload"], f"partition {partition.number}"
                last[key] = row["payload"]


async def test_nothing_is_lost_nor_out_of_order_while_nodes_come_and_go(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=4, key="topic")
    async with nodes(tmp_path, "a", "b", "c", s=given) as (a, b, c):
        sent: list[bytes] = []
        stops = asyncio.Event(), asyncio.Event()
        publishers = [
            asyncio.create_task(keep_publishing(each, word, stop, sent))
            for each, word, stop in ((a, "a", stops[0]), (c, "c", stops[1]))
        ]
        await until(lambda: kept([a, b, c], "s") > 200)
        for _ in range(2):
            await leave(b)
            await until(lambda: "b" not in owners(a, "s"))
            await until(lambda: len(clustering(b).node.members) == 1)
            await clustering(b).joining.join(address(a), PATIENCE)
            await together(a, b, c)
            await until(lambda: has_met(c, "b") and has_met(b, "a", "c"))
        assert await clustering(c).streams.leave(PATIENCE)
        stops[1].set()
        await publishers[1]
        await leave(c)
        stops[0].set()
        await publishers[0]
        await until(lambda: settled([a, b, c], "s", len(sent)))
        assert await total([a, b, c], "s") == sorted(sent)
        await assert_in_order([a, b, c], "s")


async def test_a_partition_comes_back_with_its_offsets(tmp_path: Path) -> None:
    given = options(filters=["x/#"])
    async with owned(tmp_path, s=given) as (owner, other):
        await fill(other, TOPICS, 1, "one")
        await until(lambda: kept([owner], "s") == len(TOPICS))
        await leave(owner)
        await until(lambda: kept([other], "s") == len(TOPICS))
        await until(lambda: len(clustering(owner).node.members) == 1)
        await fill(other, TOPICS, 1, "two")
        await clustering(owner).joining.join(address(other), PATIENCE)
        await together(owner, other)
        await until(lambda: has_met(other, "a", "b"))
        await leave(other)
        await until(lambda: kept([owner], "s") == 2 * len(TOPICS))
        words = [f"{word} {each}".encode() for word in ("one", "two") for each in TOPICS]
        partition = stream(owner, "s").partitions[0]
        assert (partition.earliest, partition.end) == (0, len(words))
        assert [each["payload"] for each in read_all(partition)] == words


#: What two nodes have that join, each its own.
FILLED = sorted(f"{word} {each}".encode() for word in "ab" for each in TOPICS)


@asynccontextmanager
async def joined(folder: Path, **given: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """Two nodes that each had a stream of one name before one joined the other."""
    made = options(filters=["x/#"], partitions=2, key="topic", **given)
    async with (
        Broker(with_streams(folder, "a", s=made)) as a,
        Broker(with_streams(folder, "b", s=made)) as b,
    ):
        await fill(a, TOPICS, 1, "a")
        await fill(b, TOPICS, 1, "b")
        await clustering(b).joining.join(address(a), PATIENCE)
        await together(a, b)
        yield a, b


async def test_what_two_nodes_had_before_they_joined_is_kept(tmp_path: Path) -> None:
    async with joined(tmp_path, replicas=1) as (a, b):
        await until(lambda: agree(a, b, streams=["s"]))
        [owner, *others] = sorted(set(owners(a, "s")))
        assert not others, "they stay where they are, with the node that had them first"
        first, second = (a, b) if owner == "a" else (b, a)
        await until(lambda: kept([first], "s") == len(FILLED) and not kept([second], "s"))
        assert await total([first], "s") == FILLED


async def test_what_two_nodes_had_before_they_joined_is_in_both_copies(tmp_path: Path) -> None:
    async with joined(tmp_path) as (a, b):

        def rows(broker: Broker) -> list[bytes]:
            found = stream(broker, "s").partitions
            return sorted(row["payload"] for each in found for row in read_all(each))

        await until(lambda: all(each.is_replica for each in stream(b, "s").partitions))
        await until(lambda: rows(a) == rows(b) == FILLED)


async def test_what_waits_for_an_owner_that_is_removed_goes_to_the_next_one(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", "c", flight=True, s=given) as (a, b, c):
        await fill(a, TOPICS, 1, "one")
        await until(lambda: kept([a, b, c], "s") == len(TOPICS))
        lost = {
            n: stream(c, "s").partitions[n].end for n, o in enumerate(owners(a, "s")) if o == "c"
        }
        assert any(lost.values())
        had = kept([c], "s")
        await c.stop()
        await fill(a, TOPICS, 1, "two")
        await fill(b, TOPICS, 2, "six")
        await until(lambda: "c" not in clustering(a).node.up)
        clustering(a).node.remove("c")
        await until(lambda: set(owners(b, "s")) == {"a", "b"} and agree(a, b, streams=["s"]))
        await until(lambda: settled([a, b], "s", 3 * len(TOPICS) - had))
        words = [payload[:3] for payload in await total([a, b], "s")]
        assert (words.count(b"two"), words.count(b"six")) == (len(TOPICS), len(TOPICS))
        # No offset of the lost log is given out again.
        latest = await asyncio.to_thread(offsets, flight_of(a), "latest", stream="s")
        earliest = await asyncio.to_thread(offsets, flight_of(b), "earliest", stream="s")
        for number, end in lost.items():
            assert latest[str(number)] >= earliest[str(number)] > end


async def test_a_node_that_leaves_passes_on_what_waits_for_one_that_is_down(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", "c", s=given) as (a, b, c):
        theirs = [n for n, owner in enumerate(owners(a, "s")) if owner == "c"]
        place = address(c)
        await c.stop()
        await until(lambda: not {"c"} & {*clustering(a).node.up, *clustering(b).node.up})
        await fill(b, TOPICS, 1, "one")
        expected = sorted(f"one {each}".encode() for each in TOPICS)
        assert await clustering(b).leave(PATIENCE)
        await b.stop()
        async with Broker(with_streams(tmp_path, "c", listen=place, s=given)) as again:
            await until(lambda: settled([a, again], "s", len(TOPICS)))
            assert await total([a, again], "s") == expected
            assert any(stream(again, "s").partitions[n].end for n in theirs)


async def test_a_node_leaves_with_its_streams_and_its_sessions(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        async with Device("sleeper") as sleeper:
            await sleeper.connect(b, ("x/#", 1))
        await until(lambda: is_subscribed(a, "sleeper", "b"))
        await fill(a, TOPICS, 1, "one")
        await until(lambda: kept([a, b], "s") == len(TOPICS))
        assert await admin.leave(b, PATIENCE) == admin.LeftCluster("b", complete=True)
        assert set(owners(a, "s")) == {"a"}
        assert kept([a], "s") == len(TOPICS)
        async with Device("sleeper") as sleeper:
            assert await sleeper.connect(a)
            await sleeper.until(lambda: len(sleeper.log) == len(TOPICS))
            assert sleeper.log == [f"one {each}" for each in TOPICS]


@pytest.mark.parametrize("is_killed", [False, True], ids=["once", "killed before it begins"])
async def test_an_owner_that_has_lost_its_disk_gives_no_offset_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    given = options(filters=["x/#"])
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        [owner] = owners(a, "s")
        gone, here = (a, b) if owner == "a" else (b, a)
        await fill(here, TOPICS, 1, "one")
        await until(lambda: kept([gone], "s") == len(TOPICS))
        place = address(gone)
        await gone.stop()
        shutil.rmtree(tmp_path / owner)
        again = with_streams(tmp_path, owner, address(here), place, s=given)
        if is_killed:
            with monkeypatch.context() as patch:
                patch.setattr(RemotePartitions, "begin_at", begun := Mock())
                async with Broker(again):
                    await until(lambda: begun.called)
        await fill(here, TOPICS, 1, "two")
        async with Broker(again) as empty:
            await until(lambda: kept([empty], "s") == len(TOPICS))
            partition = stream(empty, "s").partitions[0]
            assert partition.earliest > 1_000_000_000
            assert await payloads_of(empty, "s") == [f"two {each}".encode() for each in TOPICS]


@pytest.mark.parametrize(("since", "begin"), [(5, 7_000), (9, 10_000)])  # its clock was ahead
def test_who_owns_a_lost_log_says_so_once_it_begins_behind_that(since: int, begin: int) -> None:
    """A crash before that would leave a record, and offsets that were given out before."""
    records, begun = Mock(), list[int]()
    records.owner.return_value, records.now.return_value = Ownership("gone", since), 7
    partition = SimpleNamespace(number=0, kept=0, end=0, damage=None, is_copy=False)
    found: Any = SimpleNamespace(name="s", is_replicated=False, partitions=[partition])
    owners = Owners("a", records, lambda *given: begun.append(given[2]))
    for end, says in (0, []), (begin, [call("s", 0, "a")]):
        partition.kept = partition.end = end
        owners.look(Mock(streams={"s": found}), {"a", "b"}, {"a"})
        assert (begun, records.own.call_args_list) == ([begin], says)
