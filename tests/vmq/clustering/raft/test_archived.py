"""The archive of a stream of which three nodes have copies: the one that leads archives, all know what there is."""

from pathlib import Path
from random import randbytes
from typing import Any

import pytest

from tests.support.until import until
from tests.vmq.clustering.raft.replicas import leader, payloads, replicated
from tests.vmq.clustering.stream_nodes import stream
from vmq.broker import Broker
from vmq.clustering.raft import thread
from vmq.streams.log.partition import Partition

MESSAGES = 120
SMALL = {"segment_bytes": 65_536, "retention_bytes": 65_536}


def part(broker: Broker) -> Partition:
    partition = stream(broker, "s").partitions[0]
    assert broker.streaming is not None
    broker.streaming.catalog.janitor.wanted.set()  # rounds are not waited for
    return partition


def archived(folder: Path) -> list[tuple[int, int]]:
    """First offset and end of each file."""
    names = sorted(each.name for each in folder.rglob("*.parquet"))
    return [(int(each[:20]), int(each[21:41])) for each in names]


async def publish(broker: Broker, numbers: range) -> None:
    for number in numbers:
        await broker.publish("s/1", b"%04d" % number + randbytes(4000), qos=1)


async def test_the_next_leader_goes_on_where_the_one_before_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No segment is archived twice, none is missing, and each copy reads all of it from the first message on."""
    monkeypatch.setattr(thread, "LOOK", 0.2)
    given: dict[str, Any] = {**SMALL, "archive": f"file://{tmp_path / 'archive'}"}
    async with replicated(tmp_path, "a", "b", "c", **given) as brokers:
        await publish(brokers["a"], range(MESSAGES))
        await until(lambda: all(part(each).kept > 0 for each in brokers.values()))
        await until(lambda: all(part(each).earliest == 0 for each in brokers.values()))
        first = leader(brokers["a"])
        before = archived(tmp_path / "archive")
        assert not list(brokers[first].health())
        await brokers.pop(first).stop()
        others = list(brokers.values())
        await until(lambda: leader(others[0]) not in ("", first))
        await publish(others[0], range(MESSAGES, 2 * MESSAGES))
        await until(lambda: all(part(each).kept > before[-1][1] for each in others))
        await until(lambda: all(part(each).earliest == 0 for each in others))
        for each in others:
            numbers = [int(found[:4]) for found in payloads(each)]
            assert numbers == list(range(2 * MESSAGES))
        files = archived(tmp_path / "archive")
        assert files[: len(before)] == before
        assert [base for base, _ in files] == [0, *(end for _, end in files[:-1])]


async def test_nothing_goes_that_is_not_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is away all of it stays on all copies; it goes on once the store is there."""
    monkeypatch.setattr(thread, "LOOK", 0.2)
    store = tmp_path / "archive"
    store.write_text("no folder")
    given: dict[str, Any] = {**SMALL, "archive": f"file://{store}", "archive_required": True}
    async with replicated(tmp_path, "a", "b", "c", **given) as brokers:
        await publish(brokers["a"], range(MESSAGES))
        leading = brokers[leader(brokers["a"])]
        await until(lambda: part(leading).end >= MESSAGES and list(leading.health()))
        assert "cannot be archived" in next(iter(leading.health()))
        assert [part(each).kept for each in brokers.values()] == [0, 0, 0]
        store.unlink()
        await until(lambda: all(part(each).kept > 0 for each in brokers.values()))
        await until(lambda: all(part(each).earliest == 0 for each in brokers.values()))
        assert not list(leading.health())
        assert [int(each[:4]) for each in payloads(leading)] == list(range(MESSAGES))
