"""Partitions that other nodes of a cluster own, as readers see them; without a cluster there are none.

Everything here is asked in readers' threads, and may block.
"""

from collections.abc import Collection
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import pyarrow as pa

from vmq.streams.log.message import StreamMessage


class PartitionExtent(NamedTuple):
    """What a partition holds: offsets from `earliest` up to `end`, in so many bytes, which are so many messages."""

    earliest: int
    end: int
    size: int
    messages: int


class Page(NamedTuple):
    """Messages of one partition in order, perhaps none; the next page begins at offset `next`."""

    messages: list[StreamMessage]
    next: int


class PageQuery(NamedTuple):
    """Which messages: from offset `start` up to `end`, at most `rows` of them, and about `size` bytes.

    `filter`: topics that match. `payload_bytes`: more of a payload is left out; 0 = all of it is wanted.
    """

    start: int
    end: int
    rows: int
    size: int
    filter: str | None = None
    payload_bytes: int = 0


class PartitionPlaces(Protocol):
    """Where the partitions of streams are."""

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""

    def location(self, node: str) -> str:
        """The Flight address of a node; empty: it has none."""

    def check(self, stream: str, partition: int) -> None:
        """Looks whether a partition of another node takes rows.

        Raises:
            DamagedElsewhereError: it is refused there.
        """

    def extents(
        self, stream: str, patience: float, wanted: Collection[int] | None = None
    ) -> dict[int, PartitionExtent]:
        """What the partitions of others hold; without those whose owners do not answer in so many seconds.

        `wanted`: those that are waited for; None: all.
        """

    def at_time(
        self, stream: str, time: int, patience: float, wanted: Collection[int] | None = None
    ) -> dict[int, int]:
        """The first of their offsets that is not older than a time; likewise."""

    def page(self, stream: str, partition: int, wanted: PageQuery) -> Page | None:
        """Some messages of a partition of another node; None if its owner does not answer.

        Raises:
            StreamError: the owner cannot read them, and says why.
        """

    def replicates(self, stream: str) -> bool:
        """Whether several nodes have copies of a stream: then its rows go by `append`, wherever they can be read."""

    def append(self, stream: str, partition: int, rows: pa.RecordBatch) -> "Future[bool]":
        """Sends rows to the owner of a partition; whether they are durable there."""
