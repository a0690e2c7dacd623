"""A node whose own storage is damaged does not start, and leaves it as it is."""

import os
from pathlib import Path

import pytest

from tests.vmq.clustering.nodes import config
from vmq.broker import Broker, StartError
from vmq.clustering.node.storage_files import refuse_damaged
from vmq_cluster.leveldb import LevelStorage


def test_a_new_or_whole_storage_is_taken(tmp_path: Path) -> None:
    refuse_damaged(tmp_path / "none")
    storage = LevelStorage(tmp_path)
    storage.write({b"key": b"value"}, True)
    refuse_damaged(tmp_path)
    storage.close()
    refuse_damaged(tmp_path)


@pytest.mark.parametrize("pattern", ("MANIFEST-*", "CURRENT"))
async def test_a_damaged_storage_is_refused_untouched(tmp_path: Path, pattern: str) -> None:
    options = config(tmp_path, "a")
    for _ in range(2):
        async with Broker(options):
            pass
    folder = tmp_path / "a" / "cluster"
    (path,) = folder.glob(pattern)
    os.truncate(path, path.stat().st_size * 2 // 3)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(StartError, match=r"the node's own storage in .* is damaged"):
        await Broker(options).start()
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before
