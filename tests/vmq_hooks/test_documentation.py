"""hooks/README.md: every hook stands there with its exact signature and has a test; its examples run."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_hooks.modifiers import DeliverModifiers, PublishModifiers, RegisterModifiers
from vmq_hooks.specs import CHAINS, Specs
from vmq_hooks.testing import FakeChecking
from vmq_hooks.verdicts import Refuse

from vmq.cli.admin.plugin_project import write_project

ROOT = Path(__file__).parents[2]
README = ROOT / "hooks" / "README.md"

#: As the reader runs pytest: by itself, with the plugin that vmq brings, and none of this suite's.
WITH_THE_KIT = ("-p", "no:cacheprovider", "-p", "vmq.testing.plugin")

pytestmark = pytest.mark.skipif(not README.is_file(), reason="a copy of the tests alone")


def readme() -> str:
    return README.read_text(encoding="utf-8")


def signature(hook: str) -> str:
    """The specification's signature as it is written."""
    tree = ast.parse(inspect.getsource(Specs).lstrip())
    (found,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == hook
    ]
    arguments = ", ".join(ast.unparse(each) for each in found.args.args[1:])
    assert found.returns is not None
    return f"{hook}({arguments}) -> {ast.unparse(found.returns)}"


@pytest.mark.parametrize("hook", sorted(CHAINS))
def test_every_hook_is_documented_with_its_signature_and_chain(hook: str) -> None:
    text = readme()
    assert f"`{signature(hook)}`" in text, f"write `{signature(hook)}`"
    entry = text[text.index(f"`{signature(hook)}`") :].split("\n", 1)[1].split("\n#### ")[0]
    assert f"Chain: {CHAINS[hook]}." in entry
    assert len(entry.split()) > 10, "say what it is for"


@pytest.mark.parametrize("hook", sorted(CHAINS))
def test_every_hook_is_specified_and_tested(hook: str) -> None:
    assert inspect.getdoc(getattr(Specs, hook))
    tests = [*(ROOT / "tests" / "vmq").rglob("test_*.py")]
    assert any(re.search(rf'"{hook}"|def {hook}\b', each.read_text()) for each in tests)


def test_the_specifications_and_their_chains_are_the_same() -> None:
    assert {name for name in vars(Specs) if not name.startswith("_")} == set(CHAINS)


@pytest.mark.parametrize("kind", (RegisterModifiers, PublishModifiers, DeliverModifiers))
def test_every_modifier_is_documented(kind: type[msgspec.Struct]) -> None:
    text = readme()
    section = text[text.index(f"### {kind.__name__}") :].split("\n### ")[0].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(kind.__struct_fields__)


def test_every_way_to_refuse_is_documented() -> None:
    said = set(inspect.signature(Refuse).parameters)
    assert said == {"reason", "bad_credentials", "unavailable", "cache"}
    text = readme()
    for flag in ("bad_credentials", "unavailable"):
        assert f"| `Refuse(reason, {flag}=True)` |" in text
    with pytest.raises(ValueError, match="not both"):
        Refuse("no", bad_credentials=True, unavailable=True)


def blocks() -> list[str]:
    """The README's Python, one module after the other; `# file: NAME` begins a file."""
    return re.findall(r"```python\n(.*?)```", readme(), re.DOTALL)


def tutorial() -> dict[str, str]:
    """The tutorial's files by name."""
    files: dict[str, str] = {}
    for block in blocks():
        first, _, rest = block.partition("\n")
        name = first.removeprefix("# file: ")
        assert name != first, f"a block does not say its file: {first}"
        files[name] = files.get(name, "") + rest
    return files


@pytest.mark.timeout(300)
def test_what_is_written_like_the_examples_has_types(tmp_path: Path) -> None:
    for name, text in tutorial().items():
        if not name.startswith("test_"):
            (tmp_path / name).write_text(text, encoding="utf-8")
    write_project("new_one", tmp_path / "project")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "mypy", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "", "MYPYPATH": str(tmp_path / "project")},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_tutorial_s_plugin_passes_the_tutorial_s_tests(tmp_path: Path) -> None:
    files = tutorial()
    assert len(files) == 9
    doors: dict[str, Any] = {"__name__": "doors"}
    exec(compile(files.pop("doors.py"), "doors.py", "exec"), doors)
    (mistake,) = doors["Doors"]().check(FakeChecking(tmp_path), doors["Options"]())
    assert mistake == ("file", f"{tmp_path}/doors.txt: there is no such file")
    assert doors["Doors"]().explain(None, Refuse("no")).remedy == "`USER=open` in doors.txt"
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *WITH_THE_KIT, "--rootdir=.", "."],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(
                str(ROOT / each) for each in (".", "hooks", "cluster", "plugins")
            ),
        },
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
