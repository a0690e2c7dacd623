"""The driver as a process, as far as it goes without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from vmq_spark import status
from vmq_spark.driver import HOPELESS
from vmq_spark.pipeline import find

from tests.spark.support import executors_environment


def driver(folder: Path, source: Path, **options: str) -> subprocess.CompletedProcess[bytes]:
    """A life of a driver whose runner is gone as soon as it has said what to do."""
    settings = {
        "name": "p",
        "source": str(source),
        "options": options,
        "connection": {"server": "grpc://127.0.0.1:1"},
        "master": "nothing that Spark knows",
        "folder": str(folder),
        "checkpoint": str(folder / "checkpoints"),
        "output": str(folder / "tables"),
        "trigger": "1 second",
    }
    return subprocess.run(
        [sys.executable, "-m", "vmq_spark.driver"],
        input=json.dumps(settings).encode() + b"\n",
        env=executors_environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"windows": "1m"}, "there is no option 'windows'; there are: topic, lowest,"),
        ({"window": "1 minute"}, "option 'window': '1 minute' is not accepted; accepted: a number"),
        ({"qos": "3"}, "option 'qos': '3' is not accepted"),
    ],
)
def test_wrong_options_are_hopeless(tmp_path: Path, options: dict[str, str], said: str) -> None:
    done = driver(tmp_path, find("sensors"), **options)
    assert (done.returncode, done.stdout, done.stderr) == (HOPELESS, b"", b"")
    assert said in status.read(tmp_path).progress.error


def test_a_module_that_cannot_be_imported_is_hopeless(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import nowhere\n")
    assert driver(tmp_path, path).returncode == HOPELESS
    assert "No module named 'nowhere'" in status.read(tmp_path).progress.error
