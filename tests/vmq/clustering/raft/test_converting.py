"""Streams of which one node had each partition get copies, while they are read and written."""

import asyncio
import errno
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest

from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, together
from tests.vmq.clustering.raft.replicas import groups, is_led, node_config, payloads, replicated
from tests.vmq.clustering.stream_nodes import nodes, owners, stream
from tests.vmq.streams.support import options
from vmq.admin import streams as admin
from vmq.admin.errors import RefusedError
from vmq.broker import Broker
from vmq.streams.log.cursor import LogReader
from vmq.streams.replica.converting import leave_log
from vmq.streams.stored import StoredStream, find_folder

NAMES = ("a", "b", "c")


def is_whole(broker: Broker, partitions: int = 1) -> bool:
    """Whether a node reads its own copies of `s`, of which there are three."""
    places = groups(broker).places
    return all(
        sorted(places.replicas("s", number)) == [*NAMES] and places.is_here("s", number)
        for number in range(partitions)
    )


def offsets(broker: Broker, number: int = 0) -> list[int]:
    partition = stream(broker, "s").partitions[number]
    found: list[int] = []
    for chunk in LogReader(partition, ["offset"]).read(partition.earliest):
        found += chunk.rows.column(0).to_pylist()
    return found


def put_aside(folder: Path) -> list[Path]:
    """The data directories of what a node keeps for its operator."""
    return list(folder.glob("streams/.aside/*"))


async def publish_on(brokers: list[Broker], sent: list[bytes], topics: int, count: int) -> None:
    """So many more rows of these topics, by one node after the other."""
    for _ in range(count):
        sent.append(b"%d" % len(sent))
        await brokers[len(sent) % 3].publish(f"s/{len(sent) % topics}", sent[-1], qos=1)


async def same_rows(brokers: list[Broker], partitions: int, sent: list[bytes]) -> list[list[bytes]]:
    """What all brokers have by partition, which is all that was sent, once."""

    def rows(broker: Broker) -> list[list[bytes]]:
        return [payloads(broker, number) for number in range(partitions)]

    await until(lambda: all(sum(map(len, rows(each))) == len(sent) for each in brokers))
    found = rows(brokers[0])
    assert all(rows(each) == found for each in brokers)
    assert sorted((row for each in found for row in each), key=int) == sent
    return found


async def test_one_copy_becomes_three_while_publishers_and_readers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once = chain([OSError(errno.ENOSPC, "full")], repeat(DEFAULT))
    leaves = Mock(wraps=leave_log, side_effect=fails_once)
    monkeypatch.setattr("vmq.streams.catalog.leave_log", leaves)
    made = options(filters=["s/#"], key="topic", partitions=2, durability="os")
    async with nodes(tmp_path, *NAMES, s=made) as brokers:
        sent: list[bytes] = []
        publish = partial(publish_on, brokers, sent, 3)
        await publish(90)
        had = owners(brokers[0], "s")
        by_name = dict(zip(NAMES, brokers, strict=True))
        before = [offsets(by_name[had[number]], number) for number in range(2)]
        publishing = asyncio.create_task(publish(300))
        assert (await admin.alter_stream(brokers[1], "s", {"replicas": 3})).stream == "s"
        await publishing
        await until(lambda: all(is_whole(each, 2) for each in brokers))
        await publish(30)
        found = await same_rows(brokers, 2, sent)
        for each in brokers:
            for number in range(2):
                assert offsets(each, number)[: len(before[number])] == before[number]
        # What a client sent by one node to one topic stands in its order.
        for rest in range(3):
            for part in found:
                own = [int(row) for row in part if int(row) % 3 == rest]
                assert own == sorted(own)


async def test_a_stream_gets_more_partitions_while_it_is_used(tmp_path: Path) -> None:
    async with nodes(tmp_path, *NAMES) as brokers:
        made = {"filters": ["s/#"], "key": "topic", "partitions": 2, "replicas": 3}
        await admin.create_stream(brokers[0], "s", made)
        sent: list[bytes] = []
        publish = partial(publish_on, brokers, sent, 12)
        await publish(60)
        with pytest.raises(RefusedError, match="s' has 2 partitions, and none goes"):
            await admin.alter_stream(brokers[2], "s", {"partitions": 1})
        publishing = asyncio.create_task(publish(120))
        for count, broker in zip((3, 4, 5), brokers, strict=True):  # one leads the meta group
            row = await admin.alter_stream(broker, "s", {"partitions": count})
            assert (row.partitions, row.leaderless) == (count, 0)
            shown = await admin.show_stream(broker, "s")
            copies = [(bool(each.leader), len(each.replicas)) for each in shown.partitions]
            assert copies == [(True, 3)] * count
        await publishing
        await until(lambda: all(is_whole(each, 5) for each in brokers))
        await publish(60)
        found = await same_rows(brokers, 5, sent)
        assert sum(bool(each) for each in found) > 2


async def test_a_stream_of_the_configuration_gets_copies_as_nodes_join(tmp_path: Path) -> None:
    made = options(filters=["s/#"], key="topic", durability="os")
    brokers: list[Broker] = []
    try:
        for name in NAMES:
            join = address(brokers[0]) if brokers else ""
            brokers.append(Broker(node_config(tmp_path, name, join, made)))
            await brokers[-1].start()
            await brokers[-1].publish("s/t", name.encode(), qos=1)
        await together(*brokers)
        await until(lambda: all(is_whole(each) for each in brokers))
        assert stream(brokers[0], "s").options.replicas == 3
        await until(lambda: sorted(payloads(brokers[2])) == [b"a", b"b", b"c"])
        config = brokers[1].config
        await brokers[1].stop()
        brokers[1] = Broker(config)
        await brokers[1].start()
        assert stream(brokers[1], "s").is_replicated
        await until(lambda: is_led(brokers[1]))
        await brokers[1].publish("s/t", b"d", qos=1)
        await until(lambda: sorted(payloads(brokers[1])) == [b"a", b"b", b"c", b"d"])
        assert clustering(brokers[0]).streams.replicas.hosts == 3
    finally:
        for each in brokers:
            await each.stop()


async def test_what_a_node_had_alone_is_kept_when_the_cluster_that_it_joins_has_such_a_stream(
    tmp_path: Path,
) -> None:
    """Acknowledged rows that are no part of the cluster's log are deleted by nobody but the operator."""
    lone = Broker(node_config(tmp_path, "c", "", options(filters=["s/#"], key="topic")))
    folder = Path(lone.config.broker.data_dir)
    await lone.start()
    for row in (b"1", b"2"):
        await lone.publish("s/t", row, qos=1)
    await lone.stop()
    async with replicated(tmp_path, "a", "b", replicas=2) as brokers:
        await brokers["a"].publish("s/t", b"3", qos=1)
        made = options(filters=["s/#"], key="topic", replicas=2)
        async with Broker(node_config(tmp_path, "c", address(brokers["a"]), made)) as joins:
            await together(joins, *brokers.values())
            await until(lambda: is_led(joins) and put_aside(folder))
            await joins.publish("s/t", b"4", qos=1)
            await until(lambda: payloads(brokers["b"]) == [b"3", b"4"])
    [kept] = put_aside(folder)
    stored = StoredStream(find_folder(kept), "s")
    found = [row for batch in stored.rows(["payload"]) for row in batch.column(0).to_pylist()]
    assert found == [b"1", b"2"]
