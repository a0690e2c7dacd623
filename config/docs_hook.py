"""Pages of the site that lie beside what they are about, and links between pages that hold in both places.

A page is written once, with links that work where it lies; the site has it in its own place.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]

#: Pages of the site by their file in the repository.
PAGES: Final = {
    "hooks/README.md": "hooks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    **{
        path.relative_to(ROOT).as_posix(): f"plugins/{path.parent.name}.md"
        for path in sorted((ROOT / "plugins").glob("*/README.md"))
    },
}
_LINK: Final = re.compile(
    r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)"
)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie elsewhere, and the reference of options."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, source, page)))
    options = (ROOT / "config" / "reference.toml").read_text(encoding="utf-8")
    text = f"# Every option\n\n```toml\n{options}```\n"
    files.append(File.generated(config, "reference.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Has the links of a page of docs/ lead to where the site has what they name."""
    uri = page.file.src_uri
    if page.file.generated_by:
        return markdown
    return _moved(markdown, f"docs/{uri}", uri)


def place_of(path: str) -> str | None:
    """Where the site has a file of the repository; None = nowhere."""
    if path == "config/reference.toml":
        return "reference.md"
    if path in PAGES:
        return PAGES[path]
    if (ROOT / path).is_dir():
        return place_of(f"{path}/README.md")
    if path.startswith("docs/") and not path.endswith(".py") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return None


def _moved(text: str, source: str, page: str) -> str:
    """The text with its links as they are from the page; one to what the site has not leaves its words."""

    def link(found: re.Match[str]) -> str:
        words, where, part = found[1], found[2], found[3] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), where))
        place = place_of(target)
        if place is None:
            return words
        return f"[{words}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{part})"

    return _LINK.sub(link, text)
