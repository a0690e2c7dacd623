"""The file of rules, in mosquitto's and VerneMQ's syntax.

    # a comment
    topic [read|write|readwrite|deny] FILTER
    user NAME
    topic [read|write|readwrite|deny] FILTER
    pattern [read|write|readwrite|deny] FILTER

`topic` lines before the first `user` are the general section, those after a `user` are that user's.
`pattern` lines are everybody's, wherever they stand.
"""

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from vmq_hooks.files import FileError

#: [MQTT-4.7.3-3]
MAX_FILTER_BYTES: Final = 65535


class Access(enum.Flag):
    """What a rule is about. A rule that denies, denies both."""

    READ = enum.auto()
    WRITE = enum.auto()


_ACCESS: Final = {
    "read": Access.READ,
    "write": Access.WRITE,
    "readwrite": Access.READ | Access.WRITE,
    "deny": Access(0),
}


class Rule(msgspec.Struct, frozen=True):
    """One line that grants, or with no access denies."""

    topic_filter: str
    access: Access
    #: None: the general section, or a pattern.
    user: str | None = None
    is_pattern: bool = False
    #: Where it stands in the file, from 1.
    line: int = 0

    def __str__(self) -> str:
        keyword = "pattern" if self.is_pattern else "topic"
        word = next(word for word, access in _ACCESS.items() if access == self.access)
        return f"{keyword} {word} {self.topic_filter}"

    @property
    def denies(self) -> bool:
        """Whether this is a denial."""
        return not self.access


def parse(data: bytes, path: Path) -> list[Rule]:
    """The rules of a file.

    Raises:
        FileError: a line is no rule.
    """
    rules: list[Rule] = []
    user: str | None = None
    for number, line in _lines(data, path):
        try:
            keyword, rest = _split(line)
            if keyword == "user":
                user = _user(rest)
            else:
                rules.append(_rule(keyword, rest, user, number))
        except ValueError as error:
            raise FileError(path, number, str(error)) from None
    return rules


def _lines(data: bytes, path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise FileError(path, number, "not UTF-8") from None
        if line and line[0] != "#":
            yield number, line


def _split(line: str) -> tuple[str, str]:
    """The first word and the rest, without the blanks between."""
    first, *rest = line.split(maxsplit=1)
    return first, rest[0] if rest else ""


def _user(name: str) -> str:
    if not name:
        raise ValueError("user: a name is missing")
    return name


def _rule(keyword: str, rest: str, user: str | None, line: int) -> Rule:
    if keyword not in {"topic", "pattern"}:
        raise ValueError(f"{keyword!r} begins no rule; accepted: topic, pattern, user")
    if not rest:
        raise ValueError(f"{keyword}: a topic filter is missing")
    word, topic_filter = _split(rest)
    if not topic_filter:
        # Mosquitto takes this for a topic of that name, and would grant everything on it.
        if word in _ACCESS:
            raise ValueError(f"{keyword} {word}: a topic filter is missing")
        word, topic_filter = "readwrite", word
    access = _ACCESS.get(word)
    if access is None:
        raise ValueError(
            f"{word!r} is no access; accepted: {', '.join(_ACCESS)} (or none, if the filter has no blanks)"
        )
    _check_filter(topic_filter)
    is_pattern = keyword == "pattern"
    return Rule(topic_filter, access, None if is_pattern else user, is_pattern, line)


def _check_filter(topic_filter: str) -> None:
    """Raises ValueError for what is no topic filter (section 4.7)."""
    if len(topic_filter.encode()) > MAX_FILTER_BYTES:
        raise ValueError(f"the filter is longer than {MAX_FILTER_BYTES} bytes")
    if "\0" in topic_filter:
        raise ValueError(f"{topic_filter!r}: a filter has no null character")
    levels = topic_filter.split("/")
    if levels[0] == "$share":
        raise ValueError(f"{topic_filter!r}: rules name topics; leave $share/GROUP/ away")
    if "#" in "".join(levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        raise ValueError(f"{topic_filter!r}: # stands alone, in the last level only")
    if any("+" in level and level != "+" for level in levels):
        raise ValueError(f"{topic_filter!r}: + stands alone in its level")
