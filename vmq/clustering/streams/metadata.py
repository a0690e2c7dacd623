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
from vmq_cluster.keyed_records import decode, encode

STREAMS: Final = "vmq.streams"


class Definition(Struct, frozen=True):
    """A stream of the cluster."""

    options: StreamOptions
    origin: Literal["config", "command", "plugin"]
    #: Milliseconds of wall clock time.
    since: int
    #: Tells it from one of the same name before it; "": versions before ids made it.
    stream_id: str = ""
    #: Who made it knew that one of its name was deleted.
    is_anew: bool = False


class Ownership(Struct, frozen=True, array_like=True):
    """Who owns a partition; `since`: milliseconds of wall clock time."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    since: int


class PlaceError(ValueError):
    """A record that is none: the fault is remote."""


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


def merge(one: bytes, other: bytes) -> bytes:
    """Which of two values stands that were written at the same time.

    Of two owners the earlier one: it may have messages already. Of two definitions the later one, and one rather than
    a deletion; but of two ids the older, and the most partitions and copies: a node that joins knows of no stream that
    is there already, and what has copies would have a second log without them. What else there is only one node writes.
    """
    owners = decode(one, Ownership), decode(other, Ownership)
    if owners[0] is not None and owners[1] is not None:
        return min((owners[0].since, one), (owners[1].since, other))[1]
    found = decode(one, _Dated) or _Dated(), decode(other, _Dated) or _Dated()
    later = max((found[0].since, one), (found[1].since, other))[1]
    if min(found[0].since, found[1].since) < 0:
        return later
    definition = decode(later, Definition)
    if definition is None:
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
    is_anew: bool = False
    options: _Sizes = msgspec.field(default_factory=_Sizes)


def stream_id_of(raw: bytes | None) -> str:
    """What tells a defined stream from one of its name before it; "" of none, and of one without."""
    return (decode(raw, _Dated) or _Dated()).stream_id


def comes_after(raw: bytes, other: bytes) -> bool:
    """Whether a definition is of a stream that was made after another one (empty: after its end), not beside it."""
    found = decode(raw, _Dated) or _Dated()
    return found.stream_id > stream_id_of(other) and (found.is_anew or not other)


def chosen(stream: str, partition: int, nodes: Iterable[str]) -> str:
    """The node for a partition: rendezvous hashing (Thaler, Ravishankar 1996), the same wherever it is asked.

    A node that comes or goes changes only what it gets or had.
    """

    def weight(node: str) -> tuple[bytes, str]:
        text = f"{stream}\0{partition}\0{node}".encode()
        return hashlib.blake2b(text, digest_size=8).digest(), node

    return max(nodes, key=weight)
