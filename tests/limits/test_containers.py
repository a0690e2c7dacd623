"""A broker in a control group of its own: it knows what memory that leaves it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

LIMIT = 1 << 30


def own_group() -> tuple[Path, str]:
    """The folder of this process's memory group, and the file of its limit."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups = {line.split(":")[1]: line.split(":", 2)[2].lstrip("/") for line in lines}
    if "memory" in groups:
        return Path("/sys/fs/cgroup/memory") / groups["memory"], "memory.limit_in_bytes"
    return Path("/sys/fs/cgroup") / groups.get("", ""), "memory.max"


@pytest.fixture
def group() -> Iterator[Path]:
    """A group without a limit in one that has `LIMIT`."""
    folder, name = own_group()
    outer = folder / "vmq-test"
    inner = outer / "inner"
    try:
        outer.mkdir()
        (outer / name).write_text(str(LIMIT))
        inner.mkdir()
    except OSError as error:
        if outer.is_dir():
            outer.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield inner
    inner.rmdir()
    outer.rmdir()


def test_the_limit_of_a_group_above_is_the_brokers(group: Path) -> None:
    """Four fifths of it; the process's own group has none."""
    enter = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    listen = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
    with (
        BrokerProcess.start(listen, launcher=enter) as broker,
        urllib.request.urlopen(broker.http + "/metrics", timeout=30) as answer,
    ):
        found = re.search(r"^memory_limit_bytes (\S+)$", answer.read().decode(), re.M)
    assert found is not None
    assert float(found[1]) == LIMIT * 4 // 5
