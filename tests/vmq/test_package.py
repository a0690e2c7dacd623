"""What `import vmq` gives, and costs."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
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
def load(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:  # a library that vmq runs without
        if error.name.split(".")[0] in ours:
            raise
for package in ours:
    if module := load(package):
        for each in pkgutil.walk_packages(module.__path__, package + ".", onerror=load):
            if not each.name.endswith("__main__"):
                load(each.name)
"""


def our_packages() -> list[str]:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    packages: list[str] = project["tool"]["importlinter"]["root_packages"]
    assert "vmq" in packages
    return packages


def test_every_package_says_its_types_and_setuptools_finds_every_folder() -> None:
    for package in our_packages():
        spec = find_spec(package)
        assert spec is not None, package
        assert spec.origin is not None, package
        folder = Path(spec.origin).parent
        assert (folder / "py.typed").is_file()
        # The rule in pyproject.toml takes folders with an __init__.py.
        folders = {path.parent for path in folder.rglob("*.py")}
        assert [each for each in folders if not (each / "__init__.py").is_file()] == []


def test_every_module_can_be_imported() -> None:
    packages = our_packages()
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
