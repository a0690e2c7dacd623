"""Which partitions are damaged on which nodes, as the cluster's metadata tell it: each node writes its own.

A node that does not own a partition refuses what is published for it, instead of taking it for an owner that does not.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from vmq.clustering.streams.records import StreamRecords

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog
    from vmq.streams.log.partition import Partition

log = logging.getLogger("vmq.cluster")

#: Characters of the reason that others are told.
_LONGEST: Final = 1000

#: Node, stream and number of a partition.
Place = tuple[str, str, int]


class StreamDamage:
    """The damaged partitions of all nodes. What is read is replaced, never changed: Flight looks in its threads.

    Args:
        name: this node's.
        records: the cluster's.
    """

    def __init__(self, name: str, records: StreamRecords) -> None:
        self._name = name
        self._records = records
        self._found: dict[Place, str] = {}

    def look(self, catalog: "Catalog") -> None:
        """Records or partitions may have changed."""
        own = {(self._name, each.stream, each.number): _text(each) for each in catalog.damaged()}
        before, found = self._found, dict(self._records.damaged())
        for place in [each for each in found if each[0] == self._name and each not in own]:
            self._records.delete("damaged", *map(str, place))
            del found[place]
        for place, text in own.items():
            self._records.put(text.encode(errors="replace"), "damaged", *map(str, place))
        self._found = found | own
        for place in self._found.keys() - before.keys() - own.keys():
            log.error("%s", _line(place, self._found[place]))
        for node, stream, number in before.keys() - self._found.keys():
            log.info("partition %d of stream %r on node %s is mended", number, stream, node)

    def at(self, node: str | None, stream: str, number: int) -> str | None:
        """What is wrong with a partition on a node (None: this one); None if nothing is, as far as is known."""
        if not self._found:
            return None
        return self._found.get((node or self._name, stream, number))

    def elsewhere(self) -> Iterator[tuple[Place, str]]:
        """What is damaged on other nodes, and how that is said."""
        for place, text in sorted(self._found.items()):
            if place[0] != self._name:
                yield place, _line(place, text)


def _text(partition: "Partition") -> str:
    return str(partition.damage)[:_LONGEST]


def _line(place: Place, text: str) -> str:
    node, stream, number = place
    return (
        f"partition {number} of stream {stream!r} is damaged on node {node!r} and refused: {text}"
    )
