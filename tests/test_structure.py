"""The house in numbers: modules a folder, lines a file and a function, one class a name."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("vmq", "hooks/vmq_hooks", "cluster/vmq_cluster", "plugins")
TOP = {
    "__init__.py",
    "__main__.py",
    "broker.py",
    "embedded.py",
    "ports.py",
    "version.py",
}

#: Files of more than 500 lines: the lines that each may have, and why it is one file still.
LONG_FILES = {
    "vmq/clustering/directory/directory.py": (
        570,
        "records and their pieces are written and told in one step",
    ),
    "vmq/config/options.py": (760, "a table: every option with its meaning"),
}
#: Functions of more than 60 lines: the lines that each may have, and why.
LONG_FUNCTIONS = {
    "vmq/cli/admin/why.py:why": (70, "options of a command, and its help"),
    "vmq/cli/bench.py:bench": (91, "options of a command, and its help"),
    "vmq/cli/data/stream_tail.py:tail": (72, "options of a command, and its help"),
    "vmq/core/context.py:__init__": (108, "attributes with their meanings"),
}

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").is_file(), reason="the sources are in the repository only"
)


def sources() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path


class Definition(NamedTuple):
    """A function, or a class with its bases: what is kept of a tree, for trees cost memory."""

    file: str
    name: str
    lines: int
    is_at_the_top: bool
    bases: list[str] | None


@functools.cache
def definitions() -> list[Definition]:
    """All of the product, read once for all rules: parsing is what takes time."""
    found = []
    for file, path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bases = None
                if isinstance(node, ast.ClassDef):
                    bases = [ast.unparse(base) for base in node.bases]
                lines = (node.end_lineno or 0) - node.lineno + 1
                found.append(Definition(file, node.name, lines, node.col_offset == 0, bases))
    return found


def test_a_docstring_can_be_read_without_the_one_before() -> None:
    leaning = re.compile(r'"""(The same|Likewise|As above)\b.*')
    assert [
        (file, found[0]) for file, path in sources() if (found := leaning.search(path.read_text()))
    ] == []


def test_nothing_but_the_broker_lies_at_the_top() -> None:
    assert {path.name for path in (ROOT / "vmq").glob("*.py")} == TOP
    assert [path.name for path in (ROOT / "vmq" / "clustering").glob("*.py")] == ["__init__.py"]


def test_no_folder_holds_more_than_25_modules() -> None:
    folders = Counter(path.parent for _, path in sources())
    assert {str(folder) for folder, count in folders.items() if count > 25} == set()


def test_files_fit_500_lines() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in sources()}
    long = {name: count for name, count in lines.items() if count > 500}
    too_long = {
        name: count for name, count in long.items() if count > LONG_FILES.get(name, (500, ""))[0]
    }
    assert too_long == {}
    assert set(LONG_FILES) - set(long) == set(), "exceptions that are needed no more"


def test_functions_fit_60_lines() -> None:
    long: dict[str, int] = {}
    for each in definitions():
        place = f"{each.file}:{each.name}"
        if each.bases is None and each.lines > 60:
            long[place] = max(each.lines, long.get(place, 0))
    too_long = {
        place: count
        for place, count in long.items()
        if count > LONG_FUNCTIONS.get(place, (60, ""))[0]
    }
    assert too_long == {}
    assert set(LONG_FUNCTIONS) - set(long) == set(), "exceptions that are needed no more"


#: Not names of modules: the configuration file, and tables of SQL.
NO_MODULES = {"toml", "NAME", "main"}


def test_what_texts_say_of_modules_is_there() -> None:
    lacking = set()
    for file, path in sources():
        for package, rest in re.findall(
            r"`(vmq|vmq_cluster|vmq_hooks)\.([\w.]+)", path.read_text()
        ):
            place = next(ROOT / each for each in PACKAGES if each.rpartition("/")[2] == package)
            names = rest.split(".")
            while names and ((place / names[0]).is_dir() or (place / f"{names[0]}.py").is_file()):
                place /= names.pop(0)
            text = (
                place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            ).read_text()
            if names and names[0] not in text and names[0] not in NO_MODULES:
                lacking.add(f"{file}: {package}.{rest}")
    assert lacking == set()


def test_a_class_has_its_name_for_itself() -> None:
    classes = Counter(
        each.name
        for each in definitions()
        if each.file.startswith("vmq/") and each.is_at_the_top and each.bases is not None
    )
    assert {name for name, count in classes.items() if count > 1} == set()


#: Attributes of the compiled core that are called back: a call costs twenty times that of a port
#: (`vmq.core.ports`). Each with the reason why it is one still.
CALLBACKS = {
    "Core.call_later": "the event loop's own function",
    "Core.call_soon": "the event loop's own function",
    "Core.choose": "a function of the standard library",
    "Core.clock": "a function of the standard library",
    "Core.wall_clock": "a function of the standard library",
    "Cork.call_soon": "the event loop's own function",
    "Cork.clock": "a function of the standard library",
    "EndingShares.purge": "the end of a durable session",
    "Hooks.*": "plugins are Python; None where no plugin is",
    "ListenerContext.closed": "the listener's: once a connection",
    "ListenerContext.opened": "the listener's: once a connection",
    "OnCommit.actions": "what is to be done once, of many kinds: one a batch of another node",
    "OnCommit.resumed": "when a store has room again",
    "Outbox.leading": "what a pass ends with: one a batch for another process of this machine",
    "Pending.cancel": "whoever will answer: one a question",
    "Pending.charge": "whoever will answer: one a question",
    "Pending.then": "whoever asked: one a question",
    "Client.proceed": "what goes on with an answer: one a question",
    "Queue.wake": "the draining of a backlog: once until it is drained",
    "Registry.purge": "the end of a durable session",
    "Registry.wake": "handed to queues",
    "Writes.on_unreadable": "damage",
    "Writes.schedule": "once a commit",
}

CORE = ("vmq/core/", "vmq/protocol/", "vmq/mqtt/", "vmq/store/", "vmq/disk/durable.py")


def compiled_core() -> Iterator[ast.Module]:
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            for name in ast.literal_eval(node.value):
                if name.startswith(CORE):
                    yield ast.parse((ROOT / name).read_text())


def protocols() -> set[str]:
    """The names of all classes by which a room knows another one without its type."""
    return {
        each.name
        for each in definitions()
        if any(base.split("[")[0].endswith("Protocol") for base in each.bases or ())
    }


def attributes(each: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """The attributes of a class with their types, as far as it names these."""
    for part in each.body:
        if isinstance(part, ast.AnnAssign):
            yield ast.unparse(part.target), part.annotation
        if not isinstance(part, ast.FunctionDef):
            continue
        given = {one.arg: one.annotation for one in part.args.args if one.annotation is not None}
        for node in ast.walk(part):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                yield node.target.attr, node.annotation
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                kind = given.get(node.value.id)
                for target in node.targets:
                    if kind is not None and isinstance(target, ast.Attribute):
                        yield target.attr, kind


def words_of(kind: ast.expr) -> set[str]:
    """The names in a type, also in one that stands in quotes."""
    text = kind.value if isinstance(kind, ast.Constant) else ast.unparse(kind)
    tree = ast.parse(str(text), mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_the_compiled_core_calls_ports_not_callbacks() -> None:
    slow = protocols() | {"Callable"}
    found = {
        f"{each.name}.{name}"
        for module in compiled_core()
        for each in module.body
        if isinstance(each, ast.ClassDef)
        for name, kind in attributes(each)
        if words_of(kind) & slow
    }
    found = {"Hooks.*" if name.startswith("Hooks.") else name for name in found}
    assert found - set(CALLBACKS) == set()
    assert set(CALLBACKS) - found == set(), "exceptions that are needed no more"


def test_threads_have_msgspec_learn_no_forms() -> None:
    """Two at once crash the process (msgspec 0.22): the rooms of streams, which have threads, make decoders first.

    But in what a process does first, before it has any.
    """
    first = {"main", "_hear"}
    found = []
    for path in sorted((ROOT / "vmq" / "streams").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name not in first:
                found += [
                    f"{path.name}:{call.lineno}"
                    for call in ast.walk(function)
                    if isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "decode"
                    and any(each.arg == "type" for each in call.keywords)
                ]
    assert found == []
