"""References are counted in bounded memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vmq.damaged_store import number, start
from tests.vmq.test_store_model import commit
from vmq.store import references as counting
from vmq.store.references import References


@pytest.mark.parametrize("in_memory", (1, 3, 1000))
def test_references_are_counted_in_sorted_runs(
    monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(counting, "COUNTED_IN_MEMORY", in_memory)
    references = References()
    numbers = [9, 5, 1, 2**63, 5, 300, 256, 255, 5, 1, 7]
    for each in numbers:
        references.add(each)
    references.add(9, -1)
    found = list(references)
    folder = references.folder
    references.close()
    assert found == [(1, 2), (5, 3), (7, 1), (255, 1), (256, 1), (300, 1), (2**63, 1)]
    assert folder is None or not Path(folder.name).exists()


MEASURE = """
import json, sys
from pathlib import Path
from typing import Any
from vmq.store.tools import check

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1])

before = peak()
report = check(Path(sys.argv[1]))
print(json.dumps([report.queued, report.messages, report.problems, peak() - before]))
"""


def test_a_check_takes_bounded_memory(tmp_path: Path) -> None:
    """More different messages are named than are counted in memory."""
    count = 300_000
    store = start(tmp_path)
    session = store.create_session("dev")
    commit(store)
    for begin in range(1, count + 1, 10_000):
        with store.db.write_batch() as batch:
            for each in range(begin, begin + 10_000):
                batch.put(b"q" + session + number(each), b"\x09\0\0" + number(each))
                batch.put(b"m" + number(each), b"\0\1tpayload")
    store.db.close()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    queued, messages, problems, grown = json.loads(done.stdout)
    assert (queued, messages, problems) == (count, count, [])
    # Tables count as well while they are mapped; the numbers in memory are about 25 MiB.
    assert grown <= 100 * 1024
