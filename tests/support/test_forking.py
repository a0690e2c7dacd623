"""Tests run in processes that are forked from the one that has collected them."""

import re
from pathlib import Path

import pytest

from tests.support.pages import WITH_THE_KIT, python

SUITE = """
import os
import signal
from pathlib import Path

import pytest

with Path("collected").open("a") as file:
    file.write("once\\n")


@pytest.mark.parametrize("number", range(4))
def test_many(number):
    with Path("ran").open("a") as file:
        file.write(f"{os.getpid()} {Path(__file__).name}\\n")
    print(f"word {Path(__file__).name} {number}")
    assert number != 3


def test_that_kills():
    if __file__.endswith("test_b.py"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_after_it(pytestconfig):
    pytestconfig.get_terminal_writer().line("as pytest-timeout does")
"""

FIXTURES = """
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def lasting():
    yield
    with Path("ended").open("a") as file:
        file.write(f"{os.getpid()}\\n")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(FIXTURES)
    return tmp_path


def said_by(folder: Path, *words: str) -> str:
    """What pytest prints of tests in processes, of which some fail."""
    with_xdist = ("-p", "xdist", "-p", "tests.support.forking")
    done = python(folder, "-m", "pytest", "-q", *WITH_THE_KIT, *with_xdist, *words, ".")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return done.stdout


def lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def test_each_runs_once_with_its_file_and_what_a_killed_process_had_left_is_run_too(
    suite: Path,
) -> None:
    said = said_by(suite, "-n", "2")
    assert "4 failed, 14 passed" in said
    assert "test_b.py::test_that_kills - the process of this test ended with -9" in said
    assert "as pytest-timeout does" not in said
    ran = lines(suite / "ran")
    assert (len(ran), len({*ran})) == (12, 3), "a file's tests stay together"
    assert len(lines(suite / "collected")) == 3, "each file is imported once"
    assert len(lines(suite / "ended")) == len({*lines(suite / "ended")}), (
        "fixtures last as long as a process"
    )
    for name in "abc":  # what a test printed is shown with it, and no other's
        assert len(re.findall(rf"word test_{name}\.py 3\n", said)) == 1
        assert f"word test_{name}.py 2" not in said


def test_nothing_more_is_begun_after_as_many_failures_as_are_allowed(suite: Path) -> None:
    said = said_by(suite, "-n", "1", "-x")
    assert "stopping after 1 failures" in said
    assert len(lines(suite / "ran")) == 4
