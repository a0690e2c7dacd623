"""What `import vmq` gives, and costs."""

import subprocess
import sys

import pytest

import vmq
import vmq.trie
from vmq.config import Config


def test_importing_the_package_is_light() -> None:
    code = "import sys, vmq; print(*sorted({'asyncio', 'uvloop', 'plyvel', 'msgspec'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


def test_the_package_exports_the_configuration() -> None:
    assert vmq.Config is Config
    assert "Broker" in dir(vmq)
    with pytest.raises(AttributeError, match="nothing"):
        vmq.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_knows_whether_its_core_is_compiled() -> None:
    # Functions of an extension module are built in; those of a source have code.
    assert vmq.is_compiled() is not hasattr(vmq.trie.Trie.__init__, "__code__")
