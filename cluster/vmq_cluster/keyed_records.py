"""Records in the replicated metadata, under one prefix: keys are texts parted by NUL, the first says of what kind.

Whatever a peer may have written there that is no such key, or no record, is passed over.
"""

import logging
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

S = TypeVar("S", bound=msgspec.Struct)


def key_of(*parts: str) -> bytes:
    """A key of the metadata."""
    return "\0".join(parts).encode()


def parts_of(key: bytes) -> list[str]:
    """The parts of a key; none where it is no key."""
    try:
        return key.decode().split("\0")
    except UnicodeDecodeError:
        return []


def encode(record: msgspec.Struct) -> bytes:
    """A record as the metadata keep it."""
    return msgspec.json.encode(record)


def decode(raw: bytes | None, kind: type[S]) -> S | None:
    """A record out of the metadata; None if it is none."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError):
        return None


class Records:
    """What stands there. Of a node that does not run there is nothing, and what is written is lost.

    Args:
        node: the node.
        prefix: of the metadata.
        what: these are records of, for the log.
    """

    def __init__(self, node: ClusterNode, prefix: str, what: str) -> None:
        self.node = node
        self._prefix = prefix
        self._what = what

    def get(self, *parts: str) -> bytes | None:
        """What stands under a key."""
        return self.node.get(self._prefix, key_of(*parts)) if self.node.is_running else None

    def put(self, value: bytes, *parts: str) -> None:
        """Writes something, if it is not there already."""
        if not self.node.is_running or self.get(*parts) == value:
            return
        try:
            self.node.put(self._prefix, key_of(*parts), value)
        except ClusterError as error:
            log.error("other nodes do not learn of %s: %s", self._what, error)

    def delete(self, *parts: str) -> None:
        """Deletes what stands under a key."""
        if self.get(*parts) is not None:
            self.node.delete(self._prefix, key_of(*parts))

    def all(self, *begin: str) -> list[tuple[list[str], bytes]]:
        """The keys that go on behind these parts, without them, and what stands there."""
        if not self.node.is_running:
            return []
        found = self.node.items(self._prefix, key_of(*begin, ""))
        return [(parts[len(begin) :], value) for key, value in found if (parts := parts_of(key))]

    def records(self, begin: str, form: type[S]) -> Iterator[tuple[list[str], S]]:
        """What stands behind these parts, as records, where it is one."""
        for parts, raw in self.all(begin):
            if (found := decode(raw, form)) is not None:
                yield parts, found
