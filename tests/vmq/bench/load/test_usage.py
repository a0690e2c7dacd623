"""CPU time and memory of process trees."""

import subprocess
import sys

import pytest

from vmq.bench.load.usage import resident, tree_of, usage_of

CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.communicate(b"\\n")
"""


def test_a_tree_holds_children_and_their_children() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert tree_of(process.pid) == [process.pid, grandchild]
        usage = usage_of(process.pid)
        assert (usage.processes, usage.threads) == (2, 2)
        assert usage.cpu > 0
        assert usage.rss > resident(process.pid) / 2
        process.communicate("\n", timeout=60)


def test_a_process_that_is_gone_is_an_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    with pytest.raises(OSError, match="no process"):
        usage_of(process.pid)
    assert resident(process.pid) == 0
