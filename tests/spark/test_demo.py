"""`vmq demo`, whole: broker, devices and Spark; its buttons kill the broker and the driver in the middle of it."""

import json
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from vmq_spark import status
from vmq_spark.tables import committed_files

from tests.spark.sessions import QUICK_JAVA
from tests.spark.support import executors_environment
from tests.support.tools import missing, require_tool
from tests.vmq.cli.program import Program

#: Seconds for Spark to start and close a window, on a machine that has other things to do.
PATIENCE = 200.0


def rows(table: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for file in committed_files(table)
        for row in pq.read_table(file, columns=columns, partitioning=None).to_pylist()
    ]


def family(folder: Path) -> Iterator[psutil.Process]:
    """Whatever runs in the demo's folder."""
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in process.cmdline()):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


@pytest.mark.timeout(600)
def test_the_demo_goes_on_when_its_driver_is_killed(tmp_path: Path) -> None:
    require_tool("java")
    if not any(each.name == "vmq_spark" for each in entry_points(group="vmq.plugins")):
        missing("vmq")
    keep = tmp_path / "keep"
    pipeline = keep / "data" / "plugins" / "vmq_spark" / "pipelines" / "sensors"
    tables = pipeline / "tables"
    arguments = ("demo", "--self-test", "--devices", "40", "--window", "5s", "--keep", str(keep))
    with Program(*arguments, env=executors_environment() | QUICK_JAVA) as demo:
        try:
            finished = demo.finish(timeout=2 * PATIENCE)
        finally:
            left = [each for each in family(keep) if each.pid != os.getpid()]
            for each in left:
                each.kill()
    assert finished.code == 0, (finished.out, finished.err)
    assert left == []
    assert b"self-test: alerts come back" in finished.out
    assert b"lost 0, repeated 0" in finished.out
    assert b"broker killed 1 times, Spark 1 times" in finished.out
    found = status.read(pipeline)
    assert (found.state, found.is_running) == ("stopped", False)
    assert found.runner.error == "the driver was ended by SIGKILL"

    # Nothing is lost, nothing is there twice: each partition from its first message on.
    offsets: dict[int, list[int]] = {}
    for partition, offset in rows(tables / "readings", ["partition", "offset"]):
        offsets.setdefault(partition, []).append(offset)
    assert len(offsets) == 2
    for each in offsets.values():
        assert sorted(each) == list(range(len(each)))
    windows = rows(tables / "averages", ["site", "device", "start"])
    assert len(windows) == len(set(windows)) >= 40
    # How far it was is in its checkpoint; a batch that was written when the driver ended may have no commit yet.
    checkpoint = pipeline / "checkpoints" / "readings"
    last = max(map(number, (checkpoint / "commits").glob("[0-9]*")))
    plans = [each for each in (checkpoint / "offsets").glob("[0-9]*") if number(each) >= last]
    assert {name: len(each) for name, each in offsets.items()} in map(ends_in, plans)


def ends_in(plan: Path) -> dict[int, int]:
    """Up to where a batch was to read, by partition."""
    read = json.loads(plan.read_text().splitlines()[-1])["s"]["sensors"]
    return {int(name): end for name, end in read.items()}


def number(path: Path) -> int:
    return int(path.name)
