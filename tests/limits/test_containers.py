"""A broker in a control group of its own: it knows what memory that leaves it."""

import re
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from vmq.testing.process import BrokerProcess

LIMIT = 1 << 30

#: Becomes the broker of the command behind it, which finds its groups below a folder.
BELOW = """
import sys
from pathlib import Path
from vmq.cli.main import run
from vmq.resources.cgroups import memory_limit

memory_limit.__defaults__ = (Path(sys.argv[1]),)
del sys.argv[: sys.argv.index("vmq")]
run()
"""


def own_group() -> tuple[Path, str]:
    """The folder of this process's memory group, and the file of its limit."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups = {line.split(":")[1]: line.split(":", 2)[2].lstrip("/") for line in lines}
    if "memory" in groups:
        return Path("/sys/fs/cgroup/memory") / groups["memory"], "memory.limit_in_bytes"
    return Path("/sys/fs/cgroup") / groups.get("", ""), "memory.max"


@contextmanager
def in_a_group() -> Iterator[Sequence[str]]:
    """How to start a broker in a group without a limit, which is in one that has `LIMIT`.

    Raises:
        OSError: nobody but the system makes groups here.
    """
    folder, name = own_group()
    outer = folder / "vmq-test"
    inner = outer / "inner"
    outer.mkdir()
    try:
        (outer / name).write_text(str(LIMIT))
        inner.mkdir()
        try:
            yield ["sh", "-c", f'echo $$ > "{inner}/cgroup.procs" && exec "$@"', "sh"]
        finally:
            inner.rmdir()
    finally:
        outer.rmdir()


def as_if_in_a_group(folder: Path) -> Sequence[str]:
    """The same, of files as the kernel has them."""
    files = {
        "proc/self/mountinfo": "29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "proc/self/cgroup": "0::/outer/inner",
        "sys/fs/cgroup/outer/memory.max": str(LIMIT),
        "sys/fs/cgroup/outer/inner/memory.max": "max",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return [sys.executable, "-c", BELOW, str(folder)]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Sequence[str]]:
    with ExitStack() as stack:
        try:
            command = stack.enter_context(in_a_group())
        except OSError:
            command = as_if_in_a_group(tmp_path)
        yield command


def test_the_limit_of_a_group_above_is_the_brokers(launcher: Sequence[str]) -> None:
    """Four fifths of it; the process's own group has none."""
    listen = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
    with (
        BrokerProcess.start(listen, launcher=launcher) as broker,
        urllib.request.urlopen(broker.http + "/metrics", timeout=30) as answer,
    ):
        found = re.search(r"^memory_limit_bytes (\S+)$", answer.read().decode(), re.M)
    assert found is not None
    assert float(found[1]) == LIMIT * 4 // 5
