"""What a stream is, in a file of its folder: its options, and who wants it."""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.config.columns import changed_types
from vmq.config.streams import StreamOptions, from_plain
from vmq.streams.groups.records import made_at
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.errors import StreamError

#: Who wants the stream: the configuration, `vmq stream create`, or a plugin.
Origin = Literal["config", "command", "plugin"]

DEFINITION: Final = "stream.json"


def check_schema(name: str, before: StreamOptions, after: StreamOptions) -> None:
    """Refuses a typed column that becomes one of another type.

    Raises:
        StreamError: there is such.
    """
    for flaw in changed_types(before.schema, after.schema):
        raise StreamError(f"streams.{name}.schema: {flaw}")


def read_definition(folder: Path) -> tuple[StreamOptions, Origin]:
    """What a stream is, by its folder.

    Raises:
        StreamError: there is no definition, or it cannot be used.
    """
    path = folder / DEFINITION
    try:
        plain = json.loads(path.read_bytes())
        found = plain["origin"]
        origin: Origin = found if found in {"command", "plugin"} else "config"
        check_known(plain["options"])
        return from_plain(folder.name, plain["options"]), origin
    except FileNotFoundError:
        raise StreamError(f"{folder} is no stream: it has no {DEFINITION}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise StreamError(f"{path} cannot be used: {error}") from None


def check_known(options: Iterable[str]) -> None:
    """Refuses options that this version does not know.

    Raises:
        ValueError: there are such.
    """
    unknown = set(options) - set(StreamOptions.__struct_fields__)
    if unknown:
        raise ValueError(f"it has options of a later version of vmq: {', '.join(sorted(unknown))}")


def id_of(folder: Path) -> str:
    """The id of the stream in a folder: another one of the same name has another. "": versions before ids made it."""
    try:
        found = json.loads((folder / DEFINITION).read_bytes()).get("id", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def new_id() -> str:
    """An id for a stream that is made now: of two, the older one's is less."""
    return f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(4)}"


class StreamRef(NamedTuple):
    """Which stream something was kept of; another one of the same name has another id."""

    name: str
    stream_id: str

    @property
    def text(self) -> str:
        """What is kept: the id; the name of a stream that has none."""
        return self.stream_id or self.name

    def has(self, kept: str, used: float) -> bool:
        """Whether what was kept is of this stream; `used`: when that was so last, in seconds since 1970.

        Versions before ids kept the name: it is of this stream if it was used since that was made.
        """
        if kept == self.text:
            return True
        return kept == self.name and made_at(self.stream_id) // 1000 <= used


def check_before(folder: Path, options: StreamOptions) -> None:
    """Refuses fewer partitions than a stream has, or other types; one that is not there yet may have any.

    Raises:
        StreamError: there would be such, or the stream's definition cannot be used.
    """
    if not (folder / DEFINITION).exists():
        return
    before, _ = read_definition(folder)
    check_schema(folder.name, before, options)
    if options.partitions < before.partitions:
        raise StreamError(
            f"streams.{folder.name}.partitions = {options.partitions}: there are {before.partitions}, "
            "and messages in them; accepted: as many or more"
        )


def settled(folder: Path, options: StreamOptions) -> StreamOptions:
    """Options with the copies that a stream has already."""
    there = (folder / DEFINITION).exists()
    return options.with_copies_of(read_definition(folder)[0]) if there else options


def write_definition(
    folder: Path, options: StreamOptions, origin: Origin, stream_id: str | None = None
) -> None:
    """Keeps what a stream is, in one step. Without `stream_id` it keeps its id, or gets one if it is new."""
    if stream_id is None:
        stream_id = id_of(folder) if (folder / DEFINITION).exists() else new_id()
    # No start finds a folder without its definition: it is no stream, and nobody could tell what it was.
    home = folder if folder.exists() else folder.with_name(f".new-{folder.name}")
    home.mkdir(exist_ok=True)
    plain: dict[str, object] = {"version": 1, "origin": origin}
    if stream_id:
        plain["id"] = stream_id
    plain["options"] = msgspec.to_builtins(options)
    replace_file(home / DEFINITION, (json.dumps(plain, indent=2) + "\n").encode())
    if home != folder:
        home.rename(folder)
        sync_folder(folder.parent)


def lock_folder(folder: Path) -> int:
    """Takes the folder for this process; returns the descriptor that holds the lock.

    Raises:
        StreamError: another process has it.
    """
    fd = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StreamError(f"{folder} is in use by another process") from None
    return fd
