"""What the partitions of a stream hold, wherever they are; asked in Flight's threads."""

from collections.abc import Mapping
from typing import Final, TypeVar

from vmq.streams.catalog import Catalog, Stream
from vmq.streams.log.errors import AwayError
from vmq.streams.log.partition import Partition
from vmq.streams.places import PartitionExtent
from vmq.streams.times import offset_at

T = TypeVar("T")

#: Seconds that other nodes have to answer; where it can be done without, and where it cannot.
_SHORT: Final = 1.0
_LONG: Final = 5.0
#: Seconds between two questions whether others have news.
LOOK: Final = 0.05


class Extents:
    """Of the streams of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def known(self, stream: Stream, patience: float = _SHORT) -> dict[int, PartitionExtent | None]:
        """What each partition holds; None where its owner does not answer."""
        numbers = range(len(stream.partitions))
        found: dict[int, PartitionExtent | None] = dict.fromkeys(numbers)
        elsewhere = False
        for number, partition in enumerate(stream.partitions):
            if self._owner(stream, number) is None:
                found[number] = extent_of(partition)
            else:
                elsewhere = True
        if elsewhere and self._catalog.places is not None:
            answered = self._catalog.places.extents(stream.name, patience)
            found |= {number: each for number, each in answered.items() if number in found}
        return found

    def of_all(self, stream: Stream) -> list[PartitionExtent]:
        """What each partition holds.

        Raises:
            AwayError: a node that has one does not answer.
        """
        found = self.known(stream, _LONG)
        return [self._there(stream, number, each) for number, each in found.items()]

    def at_time(self, stream: Stream, time: int) -> list[int]:
        """The first offset of each partition that is not older than a time.

        Raises:
            AwayError: a node that has one does not answer.
        """
        places = self._catalog.places
        asked: dict[int, int] | None = None
        offsets = []
        for number, partition in enumerate(stream.partitions):
            if places is None or self._owner(stream, number) is None:
                offsets.append(offset_at(partition, time))
                continue
            if asked is None:
                asked = places.at_time(stream.name, time, _LONG)
            offsets.append(self._there(stream, number, asked.get(number)))
        return offsets

    def have_passed(self, stream: Stream, after: Mapping[int, int]) -> bool:
        """Whether one of some partitions of other nodes ends behind its offset."""
        found = self.known(stream)
        return any(
            (each := found.get(number)) is not None and each.end > offset
            for number, offset in after.items()
        )

    def _there(self, stream: Stream, number: int, found: T | None) -> T:
        if found is None:
            raise AwayError(stream.name, number, self._owner(stream, number) or "of this broker")
        return found

    def _owner(self, stream: Stream, number: int) -> str | None:
        places = self._catalog.places
        return None if places is None else places.owner(stream.name, number)


def extent_of(partition: Partition) -> PartitionExtent:
    """What a partition of this node holds."""
    counted = messages_in(partition)
    return PartitionExtent(partition.earliest, partition.end, partition.size, counted)


def messages_in(partition: Partition) -> int:
    """How many messages of a partition of this node can be read, here or from the archive."""
    with partition.changed:
        sealed, index, end = partition.sealed, partition.active.index, partition.end
    # What is not shown yet counts as if each offset were one: it is of the last moment.
    growing = max(0, index.rows - max(0, index.end - end))
    archived = max(0, partition.kept - partition.earliest)
    return archived + sum(each.rows for each in sealed) + growing
