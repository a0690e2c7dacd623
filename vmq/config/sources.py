"""Reading a configuration from a file, the environment and the command line.

Each source is flattened to leaves, `("queue", "drop") -> value`, laid over those of the weaker sources; the Struct type
at the root says which keys and values are right. A leaf remembers its source, so that a message can name it. Problems
are collected, not raised one by one: whoever mends a file wants the whole list.

The shape is two levels deep: a section is a table of options, or a table of named tables of options (listeners).
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from vmq.config.nested import is_too_large, mistakes
from vmq.config.text import accepted, printable, shortened, toml_value

T = TypeVar("T", bound=Struct)

# The parts of a dotted key.
Key = tuple[str, ...]

ENVIRONMENT_PREFIX: Final = "VMQ_"
COMMAND_LINE: Final = "command line"
DEFAULT: Final = "default"

# Lower case, since the environment's upper-case names must lead back to one name; no "__", which separates its parts.
_NAME: Final = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*\Z")
#: Sections whose tables are named by patterns; `vmq.config.checks` looks at those.
_PATTERNS: Final = frozenset({"jobs"})
_NAME_FORM: Final = "a name of lower-case letters and digits, joined by single _ or -"

_ABSENT: Final = object()

# Where a table that takes options unknown to us keeps them; a Struct with this field is such a table.
_OWN: Final = "own_options"
# And who states each of them.
_OWN_SOURCES: Final = "own_sources"


class Problem(Struct, frozen=True):
    """One thing that is wrong: where (`key` in `source`), what, and the offending value where there is one."""

    key: str
    what: str
    source: str | None = None
    value: object = msgspec.UNSET

    def __str__(self) -> str:
        source = f"{self.source}: " if self.source not in (None, "", DEFAULT) else ""
        value = "" if self.value is msgspec.UNSET else f" = {shortened(toml_value(self.value))}"
        return f"{source}{printable(self.key)}{value}: {self.what}"


class ConfigError(ValueError):
    """The configuration cannot be used; the text has one line a problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class _Leaf(Struct, frozen=True):
    """A value as its source gives it: the readings to try, best first."""

    source: str
    readings: tuple[object, ...]


@cache
def fields_of(struct: type[Struct]) -> tuple[FieldInfo, ...]:
    """The options of a table; each start asks several times, and msgspec looks all types up anew."""
    return msgspec.structs.fields(struct)


def sections(root: type[Struct]) -> Iterator[tuple[str, type[Struct], bool]]:
    """The sections of a configuration: name, Struct of the options, whether it is a table of named tables."""
    for field in fields_of(root):
        if get_origin(field.type) is dict:
            yield field.name, get_args(field.type)[1], True
        else:
            yield field.name, field.type, False


class Sources(Generic[T]):
    """The sources read so far; add them from the weakest to the strongest, over the defaults of `root`."""

    def __init__(self, root: type[T]) -> None:
        self._root = root
        self._sections = {name: (struct, named) for name, struct, named in sections(root)}
        self._leaves: dict[Key, _Leaf] = {}
        self._tables: dict[Key, str] = {}  # named tables and who mentions them first
        self._stated: dict[
            str, str | None
        ] = {}  # sections of named tables and who states them whole
        # Sections of plugins: options that only the plugin knows, by the name of its table.
        self._own: dict[Key, dict[str, object]] = {}
        self._own_sources: dict[Key, dict[str, str]] = {}
        self._problems: list[Problem] = []
        for name, (_, named) in self._sections.items():
            if named:
                self._lay(name, msgspec.to_builtins(getattr(root(), name)), lambda _: DEFAULT)

    def add_file(self, path: Path) -> None:
        """Read a TOML file."""
        source = str(path)
        try:
            # Some editors begin a text with U+FEFF, of which TOML does not speak and tomllib has a syntax error.
            tree = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            what = f"the file cannot be read: {error.strerror}"
            self._problems.append(Problem("configuration", what, source))
        except tomllib.TOMLDecodeError as error:
            self._problems.append(Problem("configuration", f"not TOML: {error}", source))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            what = f"not UTF-8: byte 0x{error.object[error.start]:02x} (at line {line})"
            self._problems.append(Problem("configuration", what, source))
        else:
            self.add_tree(tree, lambda _: source)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Read the `VMQ_SECTION__OPTION` variables; other variables are not ours."""
        for variable in sorted(environ):
            if not variable.startswith(ENVIRONMENT_PREFIX):
                continue
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            source = f"environment {variable}"
            if "__" in name:
                self._set(tuple(name.split("__")), _Leaf(source, _readings(environ[variable])))
            elif key := self._with_one_underscore(name):
                meant = ENVIRONMENT_PREFIX + "__".join(key).upper()
                self._problems.append(Problem(".".join(key), f"did you mean {meant}?", source))

    def add_text(self, key: str, text: str) -> None:
        """Read one value by its dotted key, as the environment would give it; problems name no source."""
        self._set(tuple(key.split(".")), _Leaf("", _readings(text)))

    def add_overrides(self, overrides: Mapping[str, object]) -> None:
        """Read the command line's values; `vmq.config.load.load` tells their form."""
        for text, value in overrides.items():
            if self._is_named(text):
                urls = value if isinstance(value, list | tuple) else ()
                tables = {str(number): {"url": url} for number, url in enumerate(urls, 1)}
                self.add_tree({text: tables or value}, lambda _: COMMAND_LINE)
            else:
                self._set(tuple(text.split(".")), _Leaf(COMMAND_LINE, (value,)))

    def add_tree(self, tree: Mapping[str, object], source: Callable[[str], str | None]) -> None:
        """Read nested tables; `source` tells the source of a dotted key. Named tables replace those read before."""
        for name, value in _lifted(tree).items():
            if self._is_named(name):
                self._leaves = {k: leaf for k, leaf in self._leaves.items() if k[0] != name}
                self._tables = {k: first for k, first in self._tables.items() if k[0] != name}
                self._own = {k: own for k, own in self._own.items() if k[0] != name}
                self._own_sources = {
                    k: own for k, own in self._own_sources.items() if k in self._own
                }
                self._stated[name] = source(name)
            self._lay(name, value, source)

    def source_of(self, section: str) -> str | None:
        """Who states a section of named tables as a whole; None = its default holds."""
        return self._stated.get(section)

    def problems(self) -> list[Problem]:
        """Everything that is wrong so far."""
        return self._resolve()[2]

    def resolve(self) -> tuple[T, dict[str, str]]:
        """The typed configuration, and the source of each of its options by dotted key.

        Raises:
            ConfigError: with every problem of every source.
        """
        plain, origins, problems = self._resolve()
        if problems:
            raise ConfigError(problems)
        return msgspec.convert(plain, self._root), origins

    def _is_named(self, section: str) -> bool:
        """Whether a section is a table of named tables."""
        return section in self._sections and self._sections[section][1]

    def _with_one_underscore(self, name: str) -> Key:
        """The option that a variable of this name is meant for, if its section is not parted from it by two."""
        for section, (struct, named) in self._sections.items():
            option = name.removeprefix(section + "_")
            if not named and option != name and option in struct.__struct_fields__:
                return section, option
        return ()

    def _lay(self, name: str, value: object, source: Callable[[str], str | None]) -> None:
        depth = 3 if self._is_named(name) else 2
        for key, leaf in _flat((name,), value, depth):
            self._set(key, _Leaf(source(".".join(key)) or "", (leaf,)))

    def _set(self, key: Key, leaf: _Leaf) -> None:
        section = self._sections.get(key[0])
        if section is not None and section[1] and len(key) >= 2:
            self._tables.setdefault(key[:2], leaf.source)
            if len(key) == 2 and leaf.readings == ({},):
                return  # an empty named table: it exists, and lacks what it must have
            fields = section[0].__struct_fields__
            if len(key) == 3 and _OWN in fields and key[2] not in fields:
                self._own.setdefault(key[:2], {})[key[2]] = leaf.readings[0]
                self._own_sources.setdefault(key[:2], {})[key[2]] = leaf.source
                return
        self._leaves[key] = leaf

    def _resolve(self) -> tuple[dict[str, object], dict[str, str], list[Problem]]:
        plain: dict[str, object] = {}
        origins: dict[str, str] = {}
        problems = list(self._problems)
        left = dict(self._leaves)
        for name, (struct, named) in self._sections.items():
            if not named:
                plain[name] = _options((name,), struct, left, origins, problems)
                continue
            tables = plain[name] = {}
            for key, first in self._tables.items():
                if key[0] != name or key in left:
                    continue
                if name not in _PATTERNS and not _NAME.match(key[1]):
                    what = f"not a usable name; accepted: {_NAME_FORM}"
                    problems.append(Problem(".".join(key), what, first))
                tables[key[1]] = table = _options(key, struct, left, origins, problems, first)
                if _OWN in struct.__struct_fields__:
                    for option, stated in (
                        (_OWN, self._own.get(key, {})),
                        (_OWN_SOURCES, self._own_sources.get(key, {})),
                    ):
                        known = table.get(option, {})
                        assert isinstance(known, dict)
                        table[option] = {**known, **stated}
                    table.setdefault("stated_in", first)
        problems.extend(self._unknown(key, leaf) for key, leaf in left.items())
        return plain, origins, problems

    def _unknown(self, key: Key, leaf: _Leaf) -> Problem:
        """What to say of a leaf that no option has taken."""
        dotted, source, value = ".".join(key), leaf.source, leaf.readings[0]
        section = self._sections.get(key[0])
        hint = self._elsewhere(key[-1])
        if section is None and (len(key) > 1 or not hint):
            hint = did_you_mean(key[0], list(self._sections))
            return Problem(dotted, f"there is no section {key[0]!r}; {hint}", source, value)
        if section is None:
            return Problem(dotted, f"an option stands in a section; {hint}", source, value)
        struct, named = section
        if len(key) < (3 if named else 2):
            return Problem(dotted, "accepted: a table of options", source, value)
        options = [field.name for field in fields_of(struct)]
        hint = hint or did_you_mean(key[-1], options)
        return Problem(dotted, f"unknown option; {hint}", source, value)

    def _elsewhere(self, option: str) -> str:
        """The section in which an option stands, as a question; "" if there is no such option."""
        for name, (struct, named) in self._sections.items():
            if not named and option in struct.__struct_fields__:
                return f"did you mean {name}.{option}?"
        return ""


def _options(
    key: Key,
    struct: type[Struct],
    left: dict[Key, _Leaf],
    origins: dict[str, str],
    problems: list[Problem],
    table_source: str = "",
) -> dict[str, object]:
    """The plain values of one table of options; takes its leaves out of `left`."""
    plain: dict[str, object] = {}
    for field in fields_of(struct):
        dotted = ".".join((*key, field.name))
        leaf = left.pop((*key, field.name), None)
        if leaf is None:
            origins[dotted] = DEFAULT
            if field.required:
                what = f"missing; accepted: {accepted(field.type)}"
                problems.append(Problem(dotted, what, table_source))
            continue
        origins[dotted] = leaf.source
        value = _converted(field, leaf)
        if value is _ABSENT:
            problems += (
                Problem(key_of, what, leaf.source, wrong)
                for key_of, what, wrong in mistakes(dotted, leaf.readings[0], field.type)
            )
        else:
            plain[field.name] = value
    return plain


def _lifted(tree: Mapping[str, object]) -> Mapping[str, object]:
    """[jobs.schedules.NAME] stands for [schedules.NAME]: beside it tables of jobs are named by patterns."""
    jobs = tree.get("jobs")
    if not isinstance(jobs, Mapping) or not isinstance(jobs.get("schedules"), Mapping):
        return tree
    schedules = jobs["schedules"]
    others = {name: table for name, table in jobs.items() if name != "schedules"}
    if any(not isinstance(each, Mapping) for each in schedules.values()):
        return tree  # options of the queue of that name
    stated = tree.get("schedules")
    both = {**stated, **schedules} if isinstance(stated, Mapping) else schedules
    found: dict[str, object] = {**tree, "schedules": both}
    if others or "jobs" not in tree:
        found["jobs"] = others
    else:
        del found["jobs"]
    return found


def _converted(field: FieldInfo, leaf: _Leaf) -> object:
    """The first reading of a leaf that the option's type accepts, or `_ABSENT`."""
    for reading in leaf.readings:
        try:
            value = msgspec.convert(reading, field.type)
        except msgspec.ValidationError:
            continue
        if not is_too_large(value):
            return value
    return _ABSENT


def _flat(key: Key, value: object, depth: int) -> Iterator[tuple[Key, object]]:
    """The leaves below `key`, down to `depth` parts; an empty table is a leaf where a named table stands."""
    if not isinstance(value, Mapping) or len(key) == depth:
        if value is not None:
            yield key, value
        return
    if not value and len(key) == 2:
        yield key, {}
    for name, below in value.items():
        yield from _flat((*key, str(name)), below, depth)


def _readings(text: str) -> tuple[object, ...]:
    """What an environment variable may mean: TOML, else the bare text."""
    try:
        tree = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return (text,)
    # More than one key: the text holds a line feed and more TOML behind it.
    return (tree["value"], text) if len(tree) == 1 else (text,)


def did_you_mean(name: str, names: list[str]) -> str:
    """The name that was meant most likely, or all that there are."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"accepted: {', '.join(names)}"


def type_problems(config: Struct, origin: Callable[[str], str | None]) -> list[Problem]:
    """What is wrong with the types and bounds of a configuration made by calls, where nothing has checked them."""
    try:
        tree = msgspec.to_builtins(config, enc_hook=os.fspath)
    except TypeError as error:
        return [Problem("configuration", str(error))]
    sources = Sources(type(config))
    sources.add_tree(tree, origin)
    return sources.problems()
