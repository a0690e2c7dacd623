"""The cluster's metadata of streams (`vmq.clustering.streams.metadata`), as one node reads and writes them."""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.streams.metadata import (
    STREAMS,
    Definition,
    Kind,
    Ownership,
    decode_owner,
    encode,
    key_of,
    parts_of,
)
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")


class StreamRecords:
    """What stands there. Of a node that does not run there is nothing, and what is written is lost.

    Args:
        node: the node.
        wall_clock: seconds since 1970.
    """

    def __init__(self, node: ClusterNode, wall_clock: Callable[[], float]) -> None:
        self.node: Final = node
        self._wall_clock = wall_clock

    def now(self) -> int:
        """Milliseconds since 1970."""
        return int(self._wall_clock() * 1000)

    def get(self, kind: Kind, *parts: str) -> bytes | None:
        """What stands under a key."""
        return self.node.get(STREAMS, key_of(kind, *parts)) if self.node.is_running else None

    def put(self, value: bytes, kind: Kind, *parts: str) -> None:
        """Writes something, if it is not there already."""
        if not self.node.is_running or self.get(kind, *parts) == value:
            return
        try:
            self.node.put(STREAMS, key_of(kind, *parts), value)
        except ClusterError as error:
            log.error("other nodes do not learn of a stream: %s", error)

    def delete(self, kind: Kind, *parts: str) -> None:
        """Deletes what stands under a key."""
        if self.get(kind, *parts) is not None:
            self.node.delete(STREAMS, key_of(kind, *parts))

    def names(self) -> list[str]:
        """The streams of which there is a definition, or was one."""
        return list(self._names()) if self.node.is_running else []

    def _names(self) -> Iterator[str]:
        for key, _ in self.node.items(STREAMS):
            parts = parts_of(key)
            if parts[:1] == ["stream"]:
                yield parts[1]

    def define(self, name: str, definition: Definition) -> None:
        """Writes a definition."""
        self.put(encode(definition), "stream", name)

    def owner(self, stream: str, number: int) -> Ownership | None:
        """Who owns a partition by its record."""
        return decode_owner(self.get("owner", stream, str(number)))

    def own(self, stream: str, number: int, node: str, since: int | None = None) -> None:
        """Writes an owner; with `since` 0 one that had messages before it was in a cluster."""
        if since is None:
            before = self.owner(stream, number)
            since = max(self.now(), 0 if before is None else before.since + 1)
        self.put(encode(Ownership(node, since)), "owner", stream, str(number))

    def owned(self, stream: str) -> int:
        """Below which number there are records of a stream's owners."""
        numbers = [
            int(parts[2])
            for key, _ in list(self.node.items(STREAMS, key_of("owner", stream) + b"\0"))
            if len(parts := parts_of(key)) == 3 and parts[2].isdecimal()
        ]
        return max(numbers, default=-1) + 1

    def configured(self, stream: str) -> Iterator[str]:
        """The nodes in whose configuration a stream stands."""
        if self.node.is_running:
            for key, _ in self.node.items(STREAMS, key_of("config", stream) + b"\0"):
                yield parts_of(key)[2]

    def damage(self, node: str, stream: str, number: int, text: str) -> None:
        """Writes why a partition that a node has is refused."""
        self.put(text.encode(errors="replace"), "damaged", node, stream, str(number))

    def mended(self, node: str, stream: str, number: int) -> None:
        """It is refused no more."""
        self.delete("damaged", node, stream, str(number))

    def damaged(self) -> Iterator[tuple[tuple[str, str, int], str]]:
        """Node, stream and number of each partition that is refused, and why."""
        if self.node.is_running:
            for key, value in list(self.node.items(STREAMS, key_of("damaged", ""))):
                parts = parts_of(key)
                if len(parts) == 4 and parts[3].isdecimal():
                    yield (parts[1], parts[2], int(parts[3])), value.decode(errors="replace")
