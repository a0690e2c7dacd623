"""Partitions that other nodes of a cluster own, as the Flight server sees them; without a cluster there are none.

Everything here is asked in Flight's threads, and may block.
"""

from concurrent.futures import Future
from typing import NamedTuple, Protocol

import pyarrow as pa


class Extent(NamedTuple):
    """What a partition holds: offsets from `earliest` up to `end`, in so many bytes."""

    earliest: int
    end: int
    size: int


class Places(Protocol):
    """Where the partitions of streams are."""

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""

    def location(self, node: str) -> str:
        """The Flight address of a node; empty: it has none."""

    def extents(self, stream: str, patience: float) -> dict[int, Extent]:
        """What the partitions of others hold; without those whose owners do not answer in so many seconds."""

    def at_time(self, stream: str, time: int, patience: float) -> dict[int, int]:
        """The first of their offsets that is not older than a time; likewise."""

    def append(self, stream: str, partition: int, rows: pa.RecordBatch) -> "Future[bool]":
        """Sends rows to the owner of a partition; whether they are durable there."""
