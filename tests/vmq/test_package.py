"""What `import vmq` gives, and costs."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vmq
import vmq.config
import vmq.core.trie
from vmq.config.options import Config


def test_importing_the_package_is_light() -> None:
    code = "import sys, vmq; print(*sorted({'asyncio', 'uvloop', 'plyvel', 'msgspec'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


IMPORT_ALL = """
import importlib, pkgutil, sys
ours = sys.argv[1:]
for package in map(importlib.import_module, ours):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            try:
                importlib.import_module(each.name)
            except ModuleNotFoundError as error:  # a library that vmq runs without
                if error.name.split(".")[0] in ours:
                    raise
"""


def test_every_module_can_be_imported() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    packages = project["tool"]["importlinter"]["root_packages"]
    assert "vmq" in packages
    subprocess.run([sys.executable, "-c", IMPORT_ALL, *packages], check=True, timeout=60)


def test_the_package_exports_the_configuration() -> None:
    assert vmq.Config is Config
    assert vmq.config.Config is Config
    assert "Broker" in dir(vmq)
    with pytest.raises(AttributeError, match="nothing"):
        vmq.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_knows_whether_its_core_is_compiled() -> None:
    # Functions of an extension module are built in; those of a source have code.
    assert vmq.is_compiled() is not hasattr(vmq.core.trie.Trie.__init__, "__code__")


def test_a_name_holds_one_kind_of_exception_in_a_compiled_function() -> None:
    # mypyc gives each local name one type; a second kind of exception under it is a TypeError.
    path = Path(__file__).parents[2] / "setup.py"
    if not path.is_file():
        pytest.skip("the list of compiled modules is in the repository only")
    setup = path.read_text()
    modules = re.findall(r'"(vmq/[\w/]+\.py)"', setup)
    assert "vmq/protocol/session.py" in modules
    for module in modules:
        source = Path(vmq.__file__).parent.parent / module
        for function in ast.walk(ast.parse(source.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            kinds: dict[str, set[str]] = {}
            for each in ast.walk(function):
                if isinstance(each, ast.ExceptHandler) and each.name and each.type:
                    kinds.setdefault(each.name, set()).add(ast.unparse(each.type))
            mixed = {name for name, found in kinds.items() if len(found) > 1}
            assert not mixed, f"{module}: {function.name}"
