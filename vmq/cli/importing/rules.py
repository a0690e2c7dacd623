"""What an import is made of: settings as they were read, rules of what becomes of them, and the result.

The rules of a broker are a table. What is known of a setting stands in one row: the option here, or why there is none.
The tables of docs/migrating.md are made of them.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from vmq.config.text import HIDDEN, SECRET_KEY, printable, shortened

_T = TypeVar("_T")
#: Where brokers listen whose configuration names no host.
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - it opens nothing that the other broker has not open


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
        # `password_file` is a path, `authorization` is who may do what.
        key = self.key.removeprefix("authorization")
        is_secret = not key.endswith("file") and SECRET_KEY.search(key) is not None
        value = HIDDEN if self.value and is_secret else self.value
        return printable(shortened(f"{self.key} {value}".rstrip()))


class Rule(Struct, frozen=True):
    """What becomes of a setting.

    Args:
        to: the option here, as `queue.drop`; of a listener its name alone; several with blanks between; "" = none.
        read: makes the value of the option out of the text; ValueError: it cannot be.
        note: what is different here; of a setting without an option, what to do instead.
        closed: what a value that cannot be read becomes, so that nothing is open that was not; None: it is left out.
        is_path: whether the value is a file's path.
        guards: whether something stands open where nothing comes of the setting: somebody has to see to it.
    """

    to: str = ""
    read: Callable[[str], Any] = str
    note: str = ""
    closed: Any = None
    is_path: bool = False
    guards: bool = False


class Note(Struct, frozen=True):
    """Something that the operator has to know."""

    place: str
    what: str
    #: Whether the setting has nothing here that it could become.
    is_lost: bool
    #: Whether somebody has to see to it before what was written can take the old broker's place.
    is_wrong: bool = False

    def __str__(self) -> str:
        return printable(f"{self.place}: {self.what}")


class Imported:
    """What came of a configuration: sections of ours, files beside it, and what is to be known.

    Args:
        locate: where a file lies that the configuration names by a relative path.
    """

    def __init__(self, locate: Callable[[str], Path] = Path) -> None:
        self._locate = locate
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

    def wrong(self, setting: Setting, accepted: str) -> None:
        """A setting has a value that cannot be used, or that somebody has to see to."""
        self.notes.append(Note(setting.place, f"{setting.shown}: {accepted}", True, True))

    def located(self, setting: Setting) -> str:
        """The path that a setting names; a relative one is made good, and told.

        Raises:
            ValueError: it is none.
        """
        if not setting.value or "\0" in setting.value:
            raise ValueError("accepted: a path")
        path = self._locate(setting.value)
        if str(path) != setting.value:
            self.differs(
                setting,
                f"taken for {path}; the old broker may start relative paths in another folder",
            )
        return str(path)

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
            if rule.guards:
                self.wrong(setting, f"no counterpart: {rule.note}")
            else:
                self.lost(setting, rule.note)
            return
        try:
            value = self.located(setting) if rule.is_path else rule.read(setting.value)
        except ValueError as error:
            self.wrong(setting, str(error) or "not accepted here")
            value = rule.closed
        if value is None:
            return
        for option in rule.to.split():
            self.set(f"{below}.{option}" if below else option, value)
        if rule.note:
            self.differs(setting, rule.note)


# How values are read


def number(text: str) -> int:
    """A whole number."""
    # Python's int takes `1_000` and digits of every script; more than 18 of them are more than TOML's integers.
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) is None:
        raise ValueError("accepted: a whole number")
    return int(text)


def decimal(text: str) -> float:
    """A number that may have a part behind the point."""
    if re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{0,18})?", text.strip()) is None:
        raise ValueError("accepted: a number")
    return float(text)


def milliseconds(text: str) -> float:
    """Seconds, of whole milliseconds."""
    return number(text) / 1000


def none_if_zero(text: str) -> int:
    """A whole number of which 0 is no limit there; here that is -1."""
    return number(text) or -1


def zero_if_none(text: str) -> int:
    """A whole number of which -1 (or infinity) is no limit there; here that is 0."""
    return 0 if text in ("infinity", "unlimited") else max(number(text), 0)


def one_of(words: Mapping[str, _T]) -> Callable[[str], _T]:
    """A reader of some words, each of which stands for a value."""

    def read(text: str) -> _T:
        if text not in words:
            raise ValueError(f"accepted: {', '.join(words)}")
        return words[text]

    return read


def mountpoint(text: str) -> str | None:
    """A topic tree of a listener's own, which keeps its clients as far from the others as a prefix of topics does."""
    if re.fullmatch(r"[^\x00-\x1f\x7f+#$]{0,255}", text) is None:
        raise ValueError("the listener is left out; accepted: a text without +, # and placeholders")
    return text or None


def levels(text: str) -> list[int]:
    """Versions of MQTT, of which vmq serves 3 and 4."""
    found = [level for level in (3, 4) if str(level) in re.split(r"[,\s]+", text)]
    if not found:
        raise ValueError("accepted: 3, 4, or both with a comma between them")
    return found


_TRUE: Final = ("true", "on", "yes", "1", "enabled")
_FALSE: Final = ("false", "off", "no", "0", "disabled")


def flag(text: str) -> bool:
    """Yes or no, in the words of any of them."""
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"accepted: {', '.join(_TRUE + _FALSE)}")


def port(text: str) -> int:
    """The port of an address."""
    if re.fullmatch(r"[0-9]{1,5}", text) is None or int(text) > 65535:
        raise ValueError("accepted: a port, 1 to 65535")
    return int(text)


_SIZES: Final = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SECONDS: Final = {"ms": 0.001, "": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def size(text: str) -> int:
    """Bytes, as `16MB`."""
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _SIZES:
        raise ValueError("accepted: a size, as 16MB")
    return int(found[1]) * _SIZES[found[2]]


def seconds(text: str) -> float:
    """Seconds of `15s`, `1h30m` or milliseconds without a unit."""
    part = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([a-z]*)"
    stated = text.strip().lower()
    parts = re.findall(part, stated)
    if not re.fullmatch(f"({part})+", stated) or any(unit not in _SECONDS for _, unit in parts):
        raise ValueError("accepted: a time, as 15s or 1h30m")
    total: float = sum(float(count) * _SECONDS[unit] for count, unit in parts)
    return total


def lifetime(text: str) -> str:
    """A span as `persistent_client_expiration` writes it."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([hdwmy])", text.strip().lower())
    if found is not None:
        return text.strip().lower()
    return span(text)


def span(text: str) -> str:
    """A span of a broker whose `m` is a minute, as EMQX has it; rounded up to minutes."""
    if text.strip().lower() in ("never", "infinity", "0"):
        return "never"
    minutes = max(1, math.ceil(seconds(text) / 60))
    return f"{minutes}min" if minutes % 60 else f"{minutes // 60}h"


def address(text: str, otherwise: int) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[HOST]:PORT`, `:PORT` or `PORT`.

    Raises:
        ValueError: it is none of these.
    """
    host, _, last = text.strip().rpartition(":")
    if host and re.fullmatch(r"[A-Za-z0-9_.:%-]+|\[[A-Za-z0-9_.:%-]+\]", host) is None:
        raise ValueError("accepted: HOST:PORT, [HOST]:PORT, :PORT or PORT")
    return host.strip("[]") or EVERYWHERE, port(last) if last else otherwise


def url(scheme: str, host: str, port: int, path: str = "") -> str:
    """The URL of a listener."""
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}{path}"


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
