"""Links between pages lead somewhere, and the README is two screens that run."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import ROOT, python

README = ROOT / "README.md"

pytestmark = pytest.mark.skipif(not README.is_file(), reason="a copy of the tests alone")

_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]+)?\)")


def pages() -> Iterator[Path]:
    yield from (README, ROOT / "CONTRIBUTING.md", ROOT / "hooks" / "README.md")
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "plugins").glob("*/README.md"))


def text_of(page: Path) -> str:
    """The page without its blocks of code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    found = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


@pytest.mark.parametrize("page", list(pages()), ids=lambda each: str(each.relative_to(ROOT)))
def test_links_lead_to_what_there_is(page: Path) -> None:
    for target, anchor in _LINK.findall(text_of(page)):
        there = page if not target else (page.parent / target)
        assert there.exists(), f"{page} names {target}"
        if anchor and there.suffix == ".md":
            assert anchor[1:] in anchors(there), f"{page} names {target}{anchor}"


@functools.cache
def functions_of(file: Path) -> frozenset[str]:
    found = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        each.name
        for each in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(each, found)
    )


@pytest.mark.parametrize("page", list(pages()), ids=lambda each: str(each.relative_to(ROOT)))
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    """What a table of guarantees calls its proof: with its file, or by its name alone."""
    for name in re.findall(r"`(?:[\w/.]+::)?(test_\w+)`", page.read_text("utf-8")):
        assert name in all_tests(), f"{page} names {name}"
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text("utf-8")):
        assert (ROOT / file).is_file(), f"{page} names {file}"
        assert not name or name in functions_of(ROOT / file), f"{file} has no {name}"


@functools.cache
def all_tests() -> frozenset[str]:
    texts = (file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"def (test_\w+)", text))


def test_every_page_can_be_found_from_the_readme() -> None:
    found, left = set(), [README]
    while left:
        page = left.pop()
        if page in found or not page.is_file() or page.suffix != ".md":
            continue
        found.add(page)
        left += [
            (page.parent / target).resolve() for target, _ in _LINK.findall(text_of(page)) if target
        ]
    lost = {page for page in (ROOT / "docs").glob("*.md") if page.resolve() not in found}
    assert {page.name for page in lost} <= {"index.md", "api.md"}, "pages of the site alone"


def test_the_readme_is_short_and_its_program_runs(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 140
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "minute.py").write_text(program)
    done = python(tmp_path, "minute.py")
    assert (done.returncode, done.stdout) == (0, "sensors/1/temp b'20.5'\n"), done.stderr


def test_the_site_has_every_page() -> None:
    nav = (ROOT / "config" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    for page in (ROOT / "docs").glob("*.md"):
        assert re.search(rf"- {page.name}$", nav, re.MULTILINE), f"{page.name} is not in the site"
