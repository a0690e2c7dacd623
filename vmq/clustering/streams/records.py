"""The cluster's metadata of streams (`vmq.clustering.streams.metadata`), as one node reads and writes them."""

from collections.abc import Callable, Iterator

from vmq.clustering.streams.metadata import STREAMS, Definition, Ownership
from vmq_cluster.keyed_records import Records, decode, encode
from vmq_cluster.node import ClusterNode


class StreamRecords(Records):
    """What stands there.

    Args:
        node: the node.
        wall_clock: seconds since 1970.
    """

    def __init__(self, node: ClusterNode, wall_clock: Callable[[], float]) -> None:
        super().__init__(node, STREAMS, "a stream")
        self._wall_clock = wall_clock

    def now(self) -> int:
        """Milliseconds since 1970."""
        return int(self._wall_clock() * 1000)

    def names(self) -> list[str]:
        """The streams of which there is a definition, or was one."""
        return [parts[0] for parts, _ in self.all("stream")]

    def define(self, name: str, definition: Definition) -> None:
        """Writes a definition."""
        self.put(encode(definition), "stream", name)

    def owner(self, stream: str, number: int) -> Ownership | None:
        """Who owns a partition by its record."""
        return decode(self.get("owner", stream, str(number)), Ownership)

    def own(self, stream: str, number: int, node: str, since: int | None = None) -> None:
        """Writes an owner; with `since` 0 one that had messages before it was in a cluster."""
        if since is None:
            before = self.owner(stream, number)
            since = max(self.now(), 0 if before is None else before.since + 1)
        self.put(encode(Ownership(node, since)), "owner", stream, str(number))

    def owned(self, stream: str) -> int:
        """Below which number there are records of a stream's owners."""
        found = self.all("owner", stream)
        numbers = [int(parts[0]) for parts, _ in found if parts[0].isdecimal()]
        return max(numbers, default=-1) + 1

    def configured(self, stream: str) -> dict[str, bytes]:
        """What the configurations of nodes say of a stream, by node."""
        return {parts[0]: raw for parts, raw in self.all("config", stream)}

    def damaged(self) -> Iterator[tuple[tuple[str, str, int], str]]:
        """Node, stream and number of each partition that is refused, and why."""
        for parts, raw in self.all("damaged"):
            if len(parts) == 3 and parts[2].isdecimal():
                yield (parts[0], parts[1], int(parts[2])), raw.decode(errors="replace")
