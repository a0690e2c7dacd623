"""What the cluster's metadata say of streams: how each is defined, and which node owns which partition.

All keys are under one prefix, their parts parted by NUL:

- `stream NAME`: the definition; empty: it was deleted, which a node that was down has to learn.
- `config NAME NODE`: the options that stand in the configuration of a node.
- `owner NAME NUMBER`: the owner of a partition, and since when.
- `node NODE`: a node that keeps streams, and its Flight address.
- `damaged NODE NAME NUMBER`: why a partition that a node has is refused there.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.config.streams import StreamOptions, from_plain

STREAMS: Final = "vmq.streams"

Kind = Literal["stream", "config", "owner", "node", "damaged"]
_KINDS: Final = frozenset({"stream", "config", "owner", "node", "damaged"})


class Definition(Struct, frozen=True):
    """A stream of the cluster."""

    options: StreamOptions
    origin: Literal["config", "command", "plugin"]
    #: Milliseconds of wall clock time.
    since: int
    #: Tells it from one of the same name before it; "": versions before ids made it.
    stream_id: str = ""


class Ownership(Struct, frozen=True, array_like=True):
    """Who owns a partition; `since`: milliseconds of wall clock time."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    since: int


class PlaceError(ValueError):
    """A record that is none: the fault is remote."""


def key_of(kind: Kind, *parts: str) -> bytes:
    """A key of the metadata."""
    return "\0".join((kind, *parts)).encode()


def parts_of(key: bytes) -> list[str]:
    """Kind and parts of a key; none where it is no key."""
    try:
        parts = key.decode().split("\0")
    except UnicodeDecodeError:
        return []
    return parts if parts[0] in _KINDS and len(parts) > 1 else []


def encode(record: Struct) -> bytes:
    """A record as the metadata keep it."""
    return msgspec.json.encode(record)


def decode_definition(name: str, raw: bytes) -> Definition:
    """A definition out of the metadata.

    Raises:
        PlaceError: it is none, or an option of it is not accepted.
    """
    try:
        found = msgspec.json.decode(raw, type=Definition)
        from_plain(name, msgspec.to_builtins(found.options))
    except (ValueError, RecursionError) as error:
        raise PlaceError(f"no definition of a stream: {error}") from None
    return found


def decode_owner(raw: bytes | None) -> Ownership | None:
    """An owner out of the metadata; None if it is none."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw, type=Ownership)
    except (ValueError, RecursionError):
        return None


def merge(one: bytes, other: bytes) -> bytes:
    """Which of two values stands that were written at the same time.

    Of two owners the earlier one: it may have messages already. Of two definitions the later one, and one rather than
    a deletion; but of two ids the older, and the most partitions and copies: a node that joins knows of no stream that
    is there already, and what has copies would have a second log without them. What else there is only one node writes.
    """
    owners = decode_owner(one), decode_owner(other)
    if owners[0] is not None and owners[1] is not None:
        return min((owners[0].since, one), (owners[1].since, other))[1]
    found = _dated(one), _dated(other)
    later = max((found[0].since, one), (found[1].since, other))[1]
    if min(found[0].since, found[1].since) < 0:
        return later
    try:
        definition = msgspec.json.decode(later, type=Definition)
    except (ValueError, RecursionError):
        return later
    options = msgspec.structs.replace(
        definition.options,
        partitions=max(each.options.partitions for each in found),
        replicas=max(each.options.replicas for each in found),
    )
    older = min(each.stream_id for each in found)
    merged = msgspec.structs.replace(definition, options=options, stream_id=older)
    return later if merged == definition else encode(merged)


class _Sizes(Struct):
    partitions: int = 1
    replicas: int = 0


class _Dated(Struct):
    since: int = -1
    stream_id: str = ""
    options: _Sizes = msgspec.field(default_factory=_Sizes)


def _dated(raw: bytes) -> _Dated:
    try:
        return msgspec.json.decode(raw, type=_Dated)
    except (ValueError, RecursionError):
        return _Dated()


def chosen(stream: str, partition: int, nodes: Iterable[str]) -> str:
    """The node for a partition: rendezvous hashing (Thaler, Ravishankar 1996), the same wherever it is asked.

    A node that comes or goes changes only what it gets or had.
    """

    def weight(node: str) -> tuple[bytes, str]:
        text = f"{stream}\0{partition}\0{node}".encode()
        return hashlib.blake2b(text, digest_size=8).digest(), node

    return max(nodes, key=weight)
