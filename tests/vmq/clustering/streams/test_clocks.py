"""Rows are old by the clock that the cluster agrees on, of two by the earlier: nothing goes early by a wrong one."""

import time
from pathlib import Path

from tests.support.until import until
from tests.vmq.clustering.stream_nodes import nodes
from tests.vmq.streams.support import options

HOUR = 3600.0


async def test_rows_are_old_by_the_earlier_of_two_clocks(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=options()) as (a, b):
        a.parts.core.wall_clock = lambda: time.time() - 6 * HOUR
        wrong = "the clock of {} is wrong: it is 2"
        await until(lambda: any(wrong.format("node b") in each for each in a.health()))
        await until(lambda: any(wrong.format("this node") in each for each in b.health()))
        for node in (a, b):
            catalog = node.open_streams().catalog
            partition = catalog.streams["s"].partitions[0]
            assert abs(time.time() - 6 * HOUR - partition.clock()) < HOUR
            assert catalog.janitor.passed is None
