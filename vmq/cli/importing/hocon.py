"""HOCON, which EMQX is configured in: a file as nested tables, and the line that each key stands in."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from vmq.cli.importing.rules import ImportProblem, Setting, read_text

_TOKEN: Final = re.compile(
    r'"""(?P<long>.*?)"""|"(?P<quoted>(?:[^"\\\n]|\\.)*)"|(?:#|//)[^\n]*|(?P<mark>\+=|[{}\[\],=:\n])'
    r"|(?P<bare>(?:\$\{[^}\n]*\}|[^\s{}\[\],=:\"#+])+)|.",
    re.DOTALL,
)


def parsed(path: Path) -> dict[str, Any]:
    """The file as nested tables.

    Raises:
        ImportProblem: it cannot be read, it is no HOCON, or the library for that is missing.
    """
    text = read_text(path)
    try:
        from pyhocon import ConfigFactory
    except ImportError:
        raise ImportProblem("EMQX's HOCON is read by pyhocon; pip install 'vmq[emqx]'") from None
    try:
        found = ConfigFactory.parse_string(text, basedir=str(path.parent), resolve=True)
        plain = found.as_plain_ordered_dict()
    except Exception as error:  # noqa: BLE001 - a damaged file makes the library raise what it will
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImportProblem(f"{path}: no HOCON: {reason}") from None
    return dict(plain)


class Lines:
    """In which line each key of a file stands, as far as that can be told.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[str, int] = {}
        for key, line in _keys(read_text(path)):
            self._lines.setdefault(key, line)

    def place(self, key: str) -> str:
        """File and line of a dotted key, or of the nearest table that has it."""
        parts = key.split(".")
        while parts:
            line = self._lines.get(".".join(parts))
            if line is not None:
                return f"{self._path}:{line}"
            parts.pop()
        return str(self._path)


def _keys(text: str) -> Iterator[tuple[str, int]]:
    """The dotted keys of a text with their lines; what stands in lists belongs to the list."""
    tables: list[list[str]] = [[]]
    brackets: list[str] = []
    words: list[str] = []
    #: The key whose value comes.
    key: list[str] | None = None
    line = 1
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if mark in ("=", ":", "+=", "{") and words and key is None and "[" not in brackets:
            key = [*tables[-1], *_parts(words)]
            for count in range(len(tables[-1]) + 1, len(key) + 1):
                yield ".".join(key[:count]), line
        if mark == "{":
            brackets.append("{")
            tables.append(key if key is not None else tables[-1])
            key, words = None, []
        elif mark == "[":
            brackets.append("[")
        elif mark in ("}", "]"):
            if brackets and brackets.pop() == "{" and len(tables) > 1:
                tables.pop()
            key, words = None, []
        elif mark in (",", "\n"):
            key, words = None, []
        elif mark is None and key is None:
            word = next((w for w in (token["long"], token["quoted"], token["bare"]) if w), None)
            words += [] if word is None else [word]
        line += token[0].count("\n")


def _parts(words: list[str]) -> list[str]:
    return [each for each in "".join(words).split(".") if each]


def settings(lines: Lines, tree: Mapping[str, Any], above: str = "") -> Iterator[Setting]:
    """The settings of nested tables by dotted key.

    Args:
        lines: where the keys stand.
        tree: the tables.
        above: the dotted key of the table, with a dot at the end.
    """
    for name, value in tree.items():
        key = f"{above}{name}".replace('"', "")
        if isinstance(value, Mapping):
            yield from settings(lines, value, f"{key}.")
        else:
            yield Setting(lines.place(key), key, as_text(value))


def as_text(value: object) -> str:
    """A value as the file has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "seconds"):  # as the library reads `30s`
        return f"{_seconds_in(value):g}s"
    if isinstance(value, list):
        return ", ".join(map(as_text, value))
    return str(value)


def _seconds_in(span: Any) -> float:
    """Seconds of a span, of either of the two kinds that the library gives."""
    parts = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
    whole = sum(getattr(span, name, 0) * each for name, each in parts.items())
    return float(whole) + float(getattr(span, "microseconds", 0)) / 1e6
