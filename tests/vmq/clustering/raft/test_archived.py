"""The archive of a stream of which three nodes have copies: the one that leads archives, all know what there is."""

from collections.abc import Callable, Iterable
from pathlib import Path
from random import randbytes
from typing import Any
from unittest.mock import patch

from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.raft.replicas import leader, payloads, replicated
from tests.vmq.clustering.stream_nodes import nodes, owners, stream
from tests.vmq.streamed import streams_of
from tests.vmq.streams.support import options
from vmq.admin.streams import alter_stream
from vmq.broker import Broker
from vmq.clustering.raft.groups import thread
from vmq.streams.log.partition import Partition

MESSAGES = 60
SMALL = {"segment_bytes": 65_536, "retention_bytes": 65_536}


def part(broker: Broker) -> Partition:
    return stream(broker, "s").partitions[0]


async def reached(
    brokers: Iterable[Broker], holds: Callable[[Broker], bool], by: Callable[..., bool] = all
) -> None:
    """Waits until something holds on all nodes, or on any; their rounds are not waited for."""

    def do() -> bool:
        for each in brokers:
            present(each.streaming).catalog.janitor.wanted.set()
        return by(map(holds, brokers))

    await until(do, 0.05)


def knows_all(broker: Broker) -> bool:
    """Whether some of it is gone from a node, and it knows that all of that is in the archive."""
    partition = part(broker)
    archive = present(partition.archive)
    return archive.is_known and partition.kept > 0 and partition.earliest == 0


def can_archive(broker: Broker) -> bool:
    return not any("cannot be archived" in each for each in broker.health())


def archived(folder: Path) -> list[tuple[int, int]]:
    """First offset and end of each file."""
    names = sorted(each.name for each in folder.rglob("*.parquet"))
    return [(int(each[:20]), int(each[21:41])) for each in names]


async def publish(broker: Broker, numbers: range) -> None:
    for number in numbers:
        await broker.publish("s/1", b"%04d" % number + randbytes(4000), qos=1)


@patch.object(thread, "LOOK", 0.2)
async def test_the_next_leader_goes_on_where_the_one_before_was(tmp_path: Path) -> None:
    """Nothing goes that is not archived; no segment is there twice, none is missing, and each copy reads all of it."""
    store = tmp_path / "archive"
    store.write_text("no folder")
    given: dict[str, Any] = {**SMALL, "archive": f"file://{store}", "archive_required": True}
    async with replicated(tmp_path, "a", "b", "c", **given) as brokers:
        await publish(brokers["a"], range(MESSAGES))
        await reached(brokers.values(), lambda each: not can_archive(each), any)
        assert [part(each).kept for each in brokers.values()] == [0, 0, 0]
        store.unlink()
        await reached(brokers.values(), knows_all)
        await reached(brokers.values(), can_archive)

        before, first = archived(store), leader(brokers["a"])
        await brokers.pop(first).stop()
        others = list(brokers.values())
        await until(lambda: leader(others[0]) not in ("", first))
        await publish(others[0], range(MESSAGES, 2 * MESSAGES))
        await reached(others, lambda each: part(each).kept > before[-1][1])
        await reached(others, knows_all)
        for each in others:
            numbers = [int(found[:4]) for found in payloads(each)]
            assert numbers == list(range(2 * MESSAGES))
        files = archived(store)
        assert files[: len(before)] == before
        assert [base for base, _ in files] == [0, *(end for _, end in files[:-1])]


async def test_what_was_archived_before_there_were_copies_is_read_by_all(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'archive'}"
    kept = options(filters=["s/#"], key="topic", archive=url, retention_age="1h", replicas=1)
    async with nodes(tmp_path, "a", "b", "c", s=kept) as brokers:
        (name,) = owners(brokers[0], "s")
        owner = brokers["abc".index(name)]
        await publish(owner, range(30))
        partition = part(owner)
        streams_of(owner).commits.writer.call(partition.roll).result(30)
        clock = partition.clock
        partition.clock = lambda: clock() + 7200
        await reached([owner], knows_all)
        partition.clock = clock
        await publish(owner, range(30, 40))
        await alter_stream(owner, "s", {"replicas": 3})
        await reached(brokers, lambda each: part(each).is_replica and part(each).end >= 40)
        await reached(brokers, knows_all)
        for each in brokers:
            assert [int(found[:4]) for found in payloads(each)] == list(range(40))
