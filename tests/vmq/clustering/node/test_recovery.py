"""A node that could not read what nodes have in common."""

import asyncio
from pathlib import Path

import pytest

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.running.slotted import named, slotted
from vmq_cluster.errors import StorageError
from vmq_cluster.leveldb import LevelStorage


async def test_a_node_that_could_not_read_is_to_start_anew_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.clustering.node.recovery.LIFE", 0.0)
    monkeypatch.setattr("vmq.clustering.node.recovery.READ_AGAIN", 0.01)
    async with slotted(tmp_path) as nodes, Device("clean", clean=True) as there:
        a, b = nodes["a"], nodes["b"]
        async with Device(named(nodes, "a", "d")) as device:
            await device.connect(a, ("t", 1))
            await there.connect(a)
            disk, recovery = clustering(a)._storage, clustering(a).recovery
            tries: list[Path] = []
            is_well = False

            def fail(*_: object) -> None:
                raise StorageError("no sector there")

            def open_storage(folder: Path) -> LevelStorage:
                tries.append(folder)
                if not is_well:
                    fail()
                return LevelStorage(folder)

            monkeypatch.setattr(disk, "get", fail)
            monkeypatch.setattr(recovery, "_open_storage", open_storage)
            with pytest.raises(StorageError):
                clustering(a).node.put("p", b"k", b"v")
            await there.until(lambda: not there.is_connected)
            assert await there.refusal(a) == 3
            assert "the cluster node does not run: no sector there" in a.health()
            # What is acknowledged meanwhile is so by another node.
            await device.connect(b)
            await b.publish("t", b"1", 1)
            await device.until(lambda: device.log == ["1"])
            await until(lambda: len(tries) > 2)
            assert not recovery.readable.is_set()
            is_well = True
            await asyncio.wait_for(recovery.readable.wait(), PATIENCE)
            await nodes.brokers.pop("a").stop()
            a = await nodes.start("a")
            await until(lambda: a.health() == [] and clustering(b).node.up == ["a"])
