"""`vmq demo`, whole: broker, devices, runner, and a driver that is killed in the middle of it."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

import psutil
import pyarrow.parquet as pq
import pytest
from vmq_spark import status
from vmq_spark.tables import committed_files

from tests.spark.support import executors_environment
from tests.support.tools import missing, require_tool
from tests.vmq.cli.program import Program

#: Seconds for Spark to start and close a window, on a machine that has other things to do.
PATIENCE = 200.0


def until(is_so: Callable[[], bool]) -> None:
    """Waits for what other processes write into files."""
    deadline = monotonic() + PATIENCE
    while not is_so():
        assert monotonic() < deadline, "it does not come"
        sleep(0.1)


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
    pipeline = keep / "plugins" / "vmq_spark" / "pipelines" / "sensors"
    tables = pipeline / "tables"
    command = (sys.executable, "-m", "vmq", "demo", "--window", "5s", "--keep", str(keep))
    with Program(*command[3:], env=executors_environment()) as demo:
        try:
            http = demo.wait_out("^vmq demo: ").split()[-1]

            def batch_of(query: str) -> int:
                found = status.read(pipeline).progress.queries.get(query)
                return -1 if found is None else found.batch

            until(lambda: batch_of("averages") >= 0)
            before = batch_of("readings")
            os.kill(status.read(pipeline).runner.driver, signal.SIGKILL)
            until(lambda: status.read(pipeline).runner.restarts == 1)
            until(lambda: batch_of("readings") > before)
            demo.wait_out("^window: .* 200 devices", timeout=PATIENCE)
            demo.wait_out("^alert: alerts/site-", timeout=PATIENCE)
            with urlopen(f"{http}/metrics", timeout=10) as answer:
                metrics = answer.read().decode()
            demo.signal(signal.SIGINT)
            finished = demo.finish(timeout=60)
        finally:
            left = [each for each in family(keep) if each.pid != os.getpid()]
            for each in left:
                each.kill()
    assert finished.code == 0, finished.err
    assert left == []
    assert b", 1 restarts\n" in finished.out
    assert 'vmq_plugin_spark_pipeline_up{pipeline="sensors",plugin="vmq_spark"} 1' in metrics
    assert 'query="readings",stream="sensors"' in metrics
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
    assert len(windows) == len(set(windows)) >= 200
    # How far it was is in its checkpoint.
    last = max((pipeline / "checkpoints" / "readings" / "commits").glob("[0-9]*"), key=number)
    planned = (pipeline / "checkpoints" / "readings" / "offsets" / last.name).read_text()
    read = json.loads(planned.splitlines()[-1])["s"]["sensors"]
    assert {int(name): end for name, end in read.items()} == {
        name: len(each) for name, each in offsets.items()
    }


def number(path: Path) -> int:
    return int(path.name)
