"""How the suite is spread over processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.spreading import APPLICATIONS, PROGRAMS, next_of, scope_of

ROOT = Path(__file__).parents[2]
SCOPES = ["tests/vmq/a.py", "tests/cluster/b.py", "tests/crash/c.py", "tests/spark/"]


def test_one_process_takes_programs_and_the_others_the_rest() -> None:
    assert next_of(SCOPES, programs=True) == "tests/spark/"
    assert next_of(SCOPES[:3], programs=True) == "tests/crash/c.py"
    assert next_of(SCOPES, programs=False) == "tests/vmq/a.py"


def test_who_is_done_with_its_own_helps() -> None:
    assert next_of(SCOPES[:2], programs=True) == "tests/vmq/a.py"
    assert next_of(SCOPES[2:], programs=False) == "tests/spark/"


def test_a_file_stays_together_and_so_do_those_that_share_spark() -> None:
    assert scope_of("tests/vmq/a.py::test[x::y]") == "tests/vmq/a.py"
    assert scope_of("tests/spark/test_sink.py::test_a") == "tests/spark/"
    assert scope_of("tests/spark/test_sink.py::test_b") == scope_of("tests/spark/test_batch.py::c")
    assert scope_of(f"{APPLICATIONS[0]}::test_a") == APPLICATIONS[0]


def test_what_is_named_is_there() -> None:
    tests = ROOT / "tests"
    names = {path.relative_to(ROOT).as_posix() for path in tests.rglob("*.py")}
    assert set(APPLICATIONS) <= names
    for folder in PROGRAMS:
        assert any(name.startswith(folder) for name in names), folder
