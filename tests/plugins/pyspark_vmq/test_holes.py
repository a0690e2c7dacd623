"""Offsets whose rows no copy had, given up by an operator: a read goes on behind them, wherever in them it begins."""

from itertools import chain
from pathlib import Path

import pytest

from tests.plugins.pyspark_vmq.test_local import LOCAL, Near, by_flight, reading, rows
from tests.vmq.streams.replica.test_holes import holed
from vmq.streams.replica.tidying import tidy


@pytest.mark.parametrize("is_merged", [False, True])
def test_all_that_is_left_comes_once(tmp_path: Path, is_merged: bool) -> None:
    """From the files, without asking for a get, and by Flight."""
    partition, left = holed(tmp_path)
    if is_merged:
        tidy(partition, lambda: False)
    for start in chain(range(0, 130, 7), [partition.sealed[0].end - 1, partition.end]):
        for end in (partition.end, max(start, partition.sealed[0].end // 2)):
            for given in (LOCAL, by_flight()):
                near = Near(partition)
                found = rows(list(reading(near, start, end, given, "offset", "payload")))
                wanted = [(at, b"payload-%d" % number) for at, number in left if start <= at < end]
                assert [(each["offset"], each["payload"]) for each in found] == wanted
                assert near.gets == (not given.local_reads and start < end)
    partition.shut()
