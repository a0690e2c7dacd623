"""Prints the tests that are worth running interpreted as well: those of what is compiled.

mypyc changes what integers, classes and exceptions do; the other modules are the same code in both runs. A file of
tests counts if it bears the name of a compiled module; if it stands where such modules' tests stand, and imports one
that no file bears the name of; if it stands above them all, and imports any; and if it switches rules of a compiled
machine off. One that bears the name of another module does not: what that one has of those that are compiled, their
own tests ask. Nor do those in which whole nodes live through something by way of modules that have tests of their own:
they took a quarter of the time, and what they ask is whether the parts fit, which the compiled run asks as well.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path("tests/vmq")
#: No method of a compiled class can be replaced: the compiled run skips these.
RULES = (
    "tests/simulator/test_rules_of_jobs.py",
    "tests/simulator/test_rules_of_logs.py",
    "tests/simulator/test_rules_of_sessions.py",
    "tests/simulator/test_holes.py::test_each_rule_is_needed",
    "tests/simulator/test_restarts.py::test_without_new_links_to_a_new_store_a_publisher_waits_for_ever",
    "tests/cluster/raft/test_election.py",
    "tests/cluster/raft/test_leading.py",
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


def _tests_of(module: str) -> Path:
    """The file of tests that bears a module's name."""
    *folders, name = module.split(".")[1:]
    return TESTS.joinpath(*folders, f"test_{name}.py")


def interpreted() -> Iterator[str]:
    """What is run interpreted, by file; of what switches rules off some tests alone."""
    modules = compiled()
    folders = {"", *("/".join(module.split(".")[1:-1]) for module in modules)}
    untested = {module for module in modules if not _tests_of(module).exists()}
    for path in sorted(TESTS.rglob("test_*.py")):
        folder, name = path.parent.relative_to(TESTS), path.stem.removeprefix("test_")
        if folder.as_posix().removeprefix(".") not in folders:
            continue
        is_of_another = folder.parts and Path("vmq", folder, f"{name}.py").exists()
        asked = untested if folder.parts else modules
        if ".".join(("vmq", *folder.parts, name)) in modules or not (
            is_of_another or asked.isdisjoint(imported(path.read_text()))
        ):
            yield path.as_posix()
    yield from RULES


if __name__ == "__main__":
    print(*interpreted(), sep="\n")
