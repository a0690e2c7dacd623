"""Writes what came of an import: vmq.toml, and the files beside it."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from vmq.cli.importing import emqx, mosquitto, vernemq
from vmq.cli.importing.rules import Imported, ImportProblem
from vmq.config.load import load
from vmq.config.sources import ConfigError
from vmq.config.text import SECRET_KEY, toml_key, toml_value
from vmq.startup.preflight import Preflight

#: Whose configurations can be imported, and how each is read.
READERS: Final = {"mosquitto": mosquitto.read, "vernemq": vernemq.read, "emqx": emqx.read}

#: Sections in the order of the reference.
_ORDER: Final = (
    "broker",
    "log",
    "auth",
    "listeners",
    "session",
    "queue",
    "limits",
    "store",
    "cluster",
)
_SECRET: Final = frozenset({"passwd"})


def kind_of(path: Path) -> str | None:
    """Whose configuration a file is, by its name; None if that does not tell."""
    return next((kind for kind in READERS if kind in path.name.lower()), None)


def as_text(found: Imported, source: str) -> str:
    """The configuration as TOML, a section with its options below its name."""
    lines = [f"# Made of {source} by vmq config import.", ""]
    names = [*_ORDER, *(each for each in found.tree if each not in _ORDER)]
    for name in names:
        if name in found.tree:
            lines += _section(name, found.tree[name])
    return "\n".join(lines)


def _section(header: str, table: Mapping[str, Any]) -> Iterator[str]:
    tables = {name: each for name, each in table.items() if isinstance(each, dict)}
    options = {name: each for name, each in table.items() if name not in tables}
    if options or not tables:
        yield f"[{header}]"
        for name, value in options.items():
            yield f"{toml_key(name)} = {toml_value(value)}"
        yield ""
    for name, each in tables.items():
        yield from _section(f"{header}.{toml_key(name)}", each)


def write(found: Imported, source: Path, folder: Path) -> list[Path]:
    """Writes all of it into a folder; what is there already is not touched.

    Returns:
        The files.

    Raises:
        ImportProblem: a file is there, or cannot be written.
    """
    files = {"vmq.toml": as_text(found, source.name).encode(), **found.files}
    for name in files:
        if (folder / name).exists():
            raise ImportProblem(f"{folder / name} is there already; --to names another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            is_secret = name in _SECRET or (name == "vmq.toml" and _has_secret(found.tree))
            mode = 0o600 if is_secret else 0o644
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
    except OSError as error:
        raise ImportProblem(f"{error.filename or folder}: {error.strerror}") from None
    return [folder / name for name in files]


def _has_secret(value: object, key: str = "") -> bool:
    """Whether a password or the like stands in the options; the path of a file is none."""
    match value:
        case dict():
            return any(_has_secret(each, str(name)) for name, each in value.items())
        case list():
            return any(_has_secret(each, key) for each in value)
        case str() if value:
            is_secret = SECRET_KEY.search(key) is not None and not key.endswith("file")
            return is_secret or re.search("://[^/]*@", value) is not None
        case _:
            return False


def problems(config: Path) -> list[str]:
    """What is still wrong with the configuration that was written, as `vmq config check` would say it."""
    try:
        return Preflight(load(config, os.environ)).problems
    except ConfigError as error:
        return [str(each) for each in error.problems]
