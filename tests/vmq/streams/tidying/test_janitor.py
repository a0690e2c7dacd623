from pathlib import Path

import pytest

from tests.vmq.streams.support import Clock, make, put, read_all, row, rows_from
from vmq.streams.tidying.janitor import Janitor


def test_a_round_deletes_merges_and_syncs(tmp_path: Path) -> None:
    clock = Clock()
    partition = make(tmp_path, clock, retention_age="1h")
    put(partition, [row(0, time=int((clock.now - 7200) * 1e6))])
    partition.roll()
    for number in range(1, 5):
        put(partition, [row(number)])
    partition.roll()
    put(partition, [row(5)])
    assert partition.active.synced < partition.visible
    Janitor(lambda: [partition]).tidy()
    assert [(each.base, each.merged) for each in partition.sealed] == [(1, True)]
    assert read_all(partition) == rows_from(1, 5)
    assert partition.active.synced == partition.visible
    partition.close()


def test_trouble_with_one_partition_is_not_that_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ill, well = make(tmp_path / "1"), make(tmp_path / "2")
    for partition in (ill, well):
        for number in range(3):
            put(partition, rows_from(number, 1))
        partition.roll()
    path = ill.sealed[0].path
    path.write_bytes(path.read_bytes()[:-40])
    janitor = Janitor(lambda: [ill, well])
    janitor.start()
    janitor.wanted.set()
    janitor.stop()
    janitor.stopping = False
    janitor.tidy()
    assert well.sealed[0].merged
    assert not ill.sealed[0].merged
    assert "is damaged at byte" in caplog.text
    assert not janitor.thread.is_alive()
