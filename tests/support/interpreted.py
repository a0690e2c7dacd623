"""Prints the tests that are worth running interpreted as well: those of what is compiled.

mypyc changes what integers, classes and exceptions do; the other modules are the same code in both runs. A file of
tests counts if it stands where the compiled modules' tests stand, or above them all, and imports one of them or bears
its name; and if it switches rules of a compiled machine off.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path("tests/vmq")
#: No method of a compiled class can be replaced: the compiled run skips tests of these.
RULES = (
    Path("tests/simulator/test_rules_of_jobs.py"),
    Path("tests/simulator/test_rules_of_logs.py"),
    Path("tests/simulator/test_rules_of_sessions.py"),
    Path("tests/simulator/test_holes.py"),
    Path("tests/cluster/raft/test_election.py"),
    Path("tests/cluster/raft/test_leading.py"),
)


def compiled() -> set[str]:
    """The names of the modules of vmq that setup.py compiles."""
    paths = re.findall(r'"(vmq/[\w/]+)\.py"', Path("setup.py").read_text())
    return {path.replace("/", ".") for path in paths}


def imported(source: str) -> Iterator[str]:
    """What a source may import by name; `from a import b` may mean a or a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def interpreted() -> Iterator[Path]:
    """The files of tests that are run interpreted."""
    modules = compiled()
    folders = {"", *("/".join(module.split(".")[1:-1]) for module in modules)}
    names = {module.rpartition(".")[2] for module in modules}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.parent.relative_to(TESTS).as_posix().removeprefix(".") in folders and (
            path.stem.removeprefix("test_") in names
            or not modules.isdisjoint(imported(path.read_text()))
        ):
            yield path
    yield from RULES


if __name__ == "__main__":
    print(*interpreted(), sep="\n")
