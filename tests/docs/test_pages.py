"""docs/testing.md and docs/embedding.md: a reader who copies their blocks gets what they say."""

import inspect
import re
from pathlib import Path

import pytest

import vmq
from tests.support.pages import ROOT, pytest_in, python, write

TESTING = ROOT / "docs" / "testing.md"
EMBEDDING = ROOT / "docs" / "embedding.md"

pytestmark = [
    pytest.mark.skipif(not TESTING.is_file(), reason="a copy of the tests alone"),
    pytest.mark.timeout(300),
]


def test_the_tests_of_the_page_pass_also_side_by_side(tmp_path: Path) -> None:
    names = write(TESTING, tmp_path)
    assert len(names) == 7
    text = "".join((tmp_path / name).read_text() for name in names)
    count = len(re.findall(r"^ *def test_", text, re.MULTILINE))
    assert f"{count} passed" in pytest_in(tmp_path)
    assert f"{count} passed" in pytest_in(tmp_path, "-p", "xdist", "-n", "2")


def test_every_fixture_is_on_the_page() -> None:
    from vmq.testing import plugin

    fixtures = {name for name in vars(plugin) if name.startswith("vmq_")} - {"vmq_options"}
    page = TESTING.read_text(encoding="utf-8")
    assert fixtures == set(re.findall(r"^\| `(vmq_\w+)` \|", page, re.MULTILINE))
    assert "`vmq_options`" in page


def test_the_scripts_run(tmp_path: Path) -> None:
    write(EMBEDDING, tmp_path)
    for name, wanted in (
        ("script.py", r"clients connect to tcp://127\.0\.0\.1:\d+\nsensors/1/temp 20\.5\n"),
        ("keywords.py", r"2 listeners\n"),
        ("mistake.py", re.escape(said_by("mistake.py", tmp_path)) + "\n"),
    ):
        done = python(tmp_path, name)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(wanted, done.stdout), done.stdout
    assert not (tmp_path / "data").exists()


def said_by(name: str, folder: Path) -> str:
    """What a file says that it prints."""
    (found,) = re.findall(r"print\(error\)  # (.*)", (folder / name).read_text())
    return str(found)


def test_the_web_application_passes_its_test(tmp_path: Path) -> None:
    write(EMBEDDING, tmp_path)
    assert "1 passed" in pytest_in(tmp_path, "-p", "anyio")


def test_every_public_name_is_documented() -> None:
    page = EMBEDDING.read_text(encoding="utf-8")
    for name in vmq.__all__:
        assert re.search(rf"^\| `vmq\.{name}(\(\))?` \|", page, re.MULTILINE), name
    parameters = inspect.signature(vmq.Broker).parameters
    for name in ("listen", "data_dir", "users", "acl", "plugins", "config"):
        assert name in parameters
        assert f"| `{name}` |" in page
