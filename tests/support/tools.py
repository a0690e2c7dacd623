"""Programs and libraries that tests need besides vmq's own.

`make test` installs every one of them, and says so in the environment (`CI=1`): then a test whose
tool is missing fails, so that nothing is skipped unseen. Called by hand, pytest skips it.
"""

import os
import platform
import shutil
from importlib.util import find_spec
from typing import NoReturn

import pytest

#: Debian keeps servers in /usr/sbin, which is not on everybody's PATH.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))

#: Tools that `make test` leaves alone, and why. Their tests are skipped wherever they are missing.
LEFT_ALONE = {
    "systemd-analyze": "installing systemd changes a machine or a container that runs without it"
}


def find_tool(*names: str) -> str | None:
    """The path of the first program that is there."""
    for name in names:
        found = shutil.which(name, path=_PATH)
        if found is not None:
            return found
    return None


def require_tool(*names: str) -> str:
    """The path of the first of these programs that is there; without any the test does not run."""
    found = find_tool(*names)
    if found is None:
        missing(names[0], LEFT_ALONE.get(names[0]))
    return found


def require_atheris() -> None:
    """The test does not run without atheris, which exists for one kind of machine."""
    if find_spec("atheris") is not None:
        return
    other = platform.system() != "Linux" or platform.machine() != "x86_64"
    missing("atheris", "it is published for Linux on x86-64 only" if other else None)


def missing(name: str, excuse: str | None = None) -> NoReturn:
    """Skips the test, or fails it where everything is to be there and there is no excuse."""
    if excuse is not None:
        pytest.skip(f"{name} is not installed: {excuse}")
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed, and 'make test' should have seen to it")
    pytest.skip(f"{name} is not installed; 'make test' installs it")
