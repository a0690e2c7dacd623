"""CPU time and memory of process trees."""

import os
import subprocess
import sys
import time

import pytest

from vmq.bench.load.usage import cpu_of, resident, tree_of, usage_of

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


def test_cpu_time_is_that_of_the_process() -> None:
    before = cpu_of(os.getpid())
    own = time.process_time()
    while time.process_time() - own < 0.02:
        pass
    grown = cpu_of(os.getpid()) - before
    assert 0.02 <= grown < 5


def test_a_process_that_is_gone_is_an_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    with pytest.raises(OSError, match="no process"):
        usage_of(process.pid)
    assert resident(process.pid) == 0
