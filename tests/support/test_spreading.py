"""How the suite is spread over processes."""

from pathlib import Path

from tests.support.spreading import APPLICATIONS, LONGEST, PROGRAMS, next_of, scope_of

ROOT = Path(__file__).parents[2]


def test_clusters_are_begun_first_and_sparks_applications_apart_from_its_session() -> None:
    left = ["tests/vmq/cli/a.py", *APPLICATIONS, "tests/cluster_processes/a.py", "tests/spark/"]
    begun = []
    while left:
        begun.append(next_of(left, programs=True))
        left.remove(begun[-1])
    session, first = "tests/spark/", "tests/cluster_processes/a.py"
    assert begun == [first, session, *APPLICATIONS, "tests/vmq/cli/a.py"]
    assert next_of(["tests/vmq/a.py", LONGEST[0]], programs=False) == LONGEST[0]


def test_a_file_stays_together_and_so_do_those_that_share_what_they_start() -> None:
    assert scope_of("tests/vmq/a.py::test[x::y]") == "tests/vmq/a.py"
    assert scope_of("tests/spark/test_sink.py::test_a") == "tests/spark/"
    assert scope_of("tests/spark/test_sink.py::test_b") == scope_of("tests/spark/test_batch.py::c")
    assert scope_of(f"{APPLICATIONS[0]}::test_a") == APPLICATIONS[0]
    assert scope_of("tests/clients/test_qos.py::test_a[x]") == "tests/clients/"
    simulated = [f"tests/simulator/test_walks.py::{each}" for each in ("test_a", "test_b[1]")]
    assert [scope_of(each) for each in simulated] == simulated, "they share nothing"


def test_what_is_named_is_there() -> None:
    tests = ROOT / "tests"
    names = {path.relative_to(ROOT).as_posix() for path in tests.rglob("*.py")}
    assert set(APPLICATIONS) <= names
    for folder in (*LONGEST, *PROGRAMS):
        assert any(name.startswith(folder) for name in names), folder
