"""The code blocks of a page: files that it has its reader write, and what these do."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

ROOT = Path(__file__).parents[2]

#: As a reader runs pytest, with the plugin that vmq brings and none of this suite's.
WITH_THE_KIT = ("-p", "no:cacheprovider", "-p", "vmq.testing.plugin", "--rootdir=.")

TIMEOUT = 250.0

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def ran(page: Path, part: str = "", replaced: Mapping[str, str] = NOTHING) -> dict[str, Any]:
    """Runs the Python blocks of a page that have this part, with other texts for some of it; returns their names."""
    text = "".join(each for each in blocks(page, "python") if part in each)
    assert text, f"{page} has no {part}"
    for old, new in replaced.items():
        text = text.replace(old, new)
    names: dict[str, Any] = {}
    exec(text, names)
    return names


def files(page: Path) -> dict[str, str]:
    """The files that a page has its reader write: blocks that begin with `# file: NAME`, those of one name together."""
    found: dict[str, str] = {}
    for block in blocks(page, "python"):
        first, _, rest = block.partition("\n")
        name = first.removeprefix("# file: ")
        assert name != first, f"a block of {page} does not say its file: {first}"
        found[name] = found.get(name, "") + rest
    return found


def write(page: Path, folder: Path) -> list[str]:
    """Writes the files of a page; returns their names."""
    found = files(page)
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [*found]


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder, as a reader who has vmq installed."""
    shelves = [ROOT / each for each in (".", "hooks", "cluster", "plugins")]
    path = os.pathsep.join(str(each) for each in shelves if each.is_dir())
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def pytest_in(folder: Path, *words: str, kit: Sequence[str] = WITH_THE_KIT) -> str:
    """Runs the tests of a folder; returns what pytest prints. They pass."""
    done = python(folder, "-m", "pytest", "-q", *kit, *words, ".")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
