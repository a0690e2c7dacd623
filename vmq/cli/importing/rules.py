"""What an import is made of: settings as they were read, rules of what becomes of them, and the result.

The rules of a broker are a table. What is known of a setting stands in one row: the option here, or why there is none.
The tables of docs/migrating.md are made of them.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from vmq.config.text import HIDDEN, SECRET_KEY, printable, shortened


class ImportProblem(Exception):
    """The file cannot be imported at all; the text says why."""


class Setting(Struct, frozen=True):
    """One setting of the other broker's configuration."""

    place: str
    key: str
    value: str

    @property
    def shown(self) -> str:
        """The setting for a message; secrets are not told."""
        value = HIDDEN if self.value and SECRET_KEY.search(self.key) else self.value
        return printable(shortened(f"{self.key} {value}".rstrip()))


class Rule(Struct, frozen=True):
    """What becomes of a setting.

    Args:
        to: the option here, as `queue.drop`; of a listener its name alone; several with blanks between; "" = none.
        read: makes the value of the option out of the text; ValueError: it cannot be.
        note: what is different here; of a setting without an option, what to do instead.
    """

    to: str = ""
    read: Callable[[str], Any] = str
    note: str = ""


class Note(Struct, frozen=True):
    """Something that the operator has to know."""

    place: str
    what: str
    #: Whether the setting has nothing here that it could become.
    is_lost: bool

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


class Imported:
    """What came of a configuration: sections of ours, files beside it, and what is to be known."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        #: Files to write beside the configuration.
        self.files: dict[str, bytes] = {}
        self.notes: list[Note] = []

    def set(self, dotted: str, value: object) -> None:
        """Sets an option; tables on the way are made."""
        table = self.tree
        *tables, option = dotted.split(".")
        for name in tables:
            table = table.setdefault(name, {})
        table[option] = value

    def lost(self, setting: Setting, instead: str = "") -> None:
        """A setting has no counterpart."""
        what = f"{setting.shown}: no counterpart" + (f": {instead}" if instead else "")
        self.notes.append(Note(setting.place, what, True))

    def differs(self, setting: Setting, what: str) -> None:
        """A setting was taken over, and means something else here."""
        self.notes.append(Note(setting.place, f"{setting.shown}: {what}", False))

    def apply(self, rules: Mapping[str, Rule], setting: Setting, key: str, below: str = "") -> None:
        """Does what the rules say of a setting.

        Args:
            rules: the table.
            setting: what was read.
            key: its name in the table.
            below: where its option belongs: "" or the dotted name of a table.
        """
        rule = rules.get(key)
        if rule is None:
            self.lost(setting, "unknown here")
            return
        if not rule.to:
            self.lost(setting, rule.note)
            return
        try:
            value = rule.read(setting.value)
        except ValueError as error:
            self.lost(setting, str(error) or "its value has none")
            return
        if value is None:
            return
        for option in rule.to.split():
            self.set(f"{below}.{option}" if below else option, value)
        if rule.note:
            self.differs(setting, rule.note)


# How values are read


def number(text: str) -> int:
    """A whole number."""
    return int(text)


def none_if_zero(text: str) -> int:
    """A whole number of which 0 is no limit there; here that is -1."""
    return int(text) or -1


def zero_if_none(text: str) -> int:
    """A whole number of which -1 (or infinity) is no limit there; here that is 0."""
    return 0 if text in ("infinity", "unlimited") else max(int(text), 0)


_TRUE: Final = ("true", "on", "yes", "1", "enabled")
_FALSE: Final = ("false", "off", "no", "0", "disabled")


def flag(text: str) -> bool:
    """Yes or no, in the words of any of them."""
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"accepted: {', '.join(_TRUE + _FALSE)}")


_SIZES: Final = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SECONDS: Final = {"ms": 0.001, "": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def size(text: str) -> int:
    """Bytes, as `16MB`."""
    found = re.fullmatch(r"(\d+)([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _SIZES:
        raise ValueError("its value is no size")
    return int(found[1]) * _SIZES[found[2]]


def seconds(text: str) -> float:
    """Seconds of `15s`, `1h30m` or milliseconds without a unit."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().lower())
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        raise ValueError("its value is no time")
    total: float = sum(float(count) * _SECONDS[unit] for count, unit in parts)
    return total


def lifetime(text: str) -> str:
    """A span as `persistent_client_expiration` writes it, rounded up to hours."""
    if text.strip().lower() in ("never", "infinity", "0"):
        return "never"
    found = re.fullmatch(r"([1-9]\d*)([hdwmy])", text.strip().lower())
    if found is not None:
        return text.strip().lower()
    hours = max(1, -(-int(seconds(text)) // 3600))
    return f"{hours}h"


def address(text: str, port: int) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[HOST]:PORT`, `:PORT` or `PORT`.

    Raises:
        ValueError: it is none of these.
    """
    host, _, last = text.strip().rpartition(":")
    if not last:
        return host or "0.0.0.0", port  # noqa: S104 - what the other broker listens on
    return host.strip("[]") or "0.0.0.0", int(last)  # noqa: S104


def url(scheme: str, host: str, port: int, path: str = "") -> str:
    """The URL of a listener."""
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}{path}"


def existing(folder: Path, text: str) -> Path:
    """A file that the configuration names, relative to its own folder.

    Raises:
        ImportProblem: it cannot be read.
    """
    path = folder / text
    if not path.is_file():
        raise ImportProblem(f"{path}: there is no such file")
    return path


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ImportProblem: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ImportProblem(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ImportProblem(f"{path}: not UTF-8") from None
