"""What other nodes send for streams: messages, rows, and what waited for a node that will not have it.

A stream may have become replicated since it was sent: then its groups get it.
"""

import logging
from typing import TYPE_CHECKING, Protocol

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import Append, AppendRun, PartitionRows
from vmq.clustering.streams.routed_appender import RoutedAppender

if TYPE_CHECKING:
    from vmq.clustering.streams.replicas import Replicas
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")


class TakesRows(Protocol):
    """`vmq.clustering.streams.remote_partitions.RemotePartitions`."""

    def take_rows(self, peer: str, message: PartitionRows) -> int: ...


class LooksLater(Protocol):
    """`vmq.clustering.streams.handover.Handover`."""

    def look_later(self) -> None: ...


class InboxStreams(Protocol):
    """The streams of a node."""

    @property
    def catalog(self) -> "Catalog | None": ...
    @property
    def replicas(self) -> "Replicas": ...
    @property
    def places(self) -> TakesRows | None: ...
    @property
    def handover(self) -> LooksLater | None: ...

    def tap(self, stream: "Stream") -> RoutedAppender: ...
    def owner(self, stream: str, partition: int) -> str | None: ...
    def owners(self, stream: "Stream") -> list[str | None]: ...


class StreamInbox:
    """What comes to one node.

    Args:
        streams: the node's.
        outboxes: to the other nodes, whose messages are confirmed once they are safe.
    """

    def __init__(self, streams: InboxStreams, outboxes: Outboxes) -> None:
        self._streams = streams
        self._outboxes = outboxes

    def _stream(self, peer: str, name: str) -> "Stream | None":
        catalog = self._streams.catalog
        if catalog is None:
            return None
        stream = catalog.streams.get(name)
        if stream is None:
            log.warning("messages from %s are dropped: the stream %r was deleted", peer, name)
        return stream

    def on_append(self, peer: str, message: Append) -> None:
        """A message for a partition that this node owns, or owned."""
        streams = self._streams
        stream = self._stream(peer, message.stream)
        if stream is None:
            return
        if stream.is_replicated:
            streams.replicas.take(peer, stream, message)
            return
        commit = streams.tap(stream).take(message)
        if commit and any(streams.owners(stream)):
            self._look_later()  # should it have come here though it is another's
        safe = stream.appender.safe_of(message.topic, message.client_id)
        self._outboxes.arrivals.confirming(peer).answer_after(safe, commit)

    def on_run(self, peer: str, run: AppendRun) -> None:
        """Messages at QoS 0."""
        stream = self._stream(peer, run.stream)
        if stream is None:
            return
        if stream.is_replicated:
            self._streams.replicas.take_run(stream, run)
        else:
            self._streams.tap(stream).take_run(run)

    def on_rows(self, peer: str, rows: PartitionRows) -> None:
        """Rows that a node had of a partition."""
        streams = self._streams
        stream = self._stream(peer, rows.stream)
        if stream is None or streams.places is None:
            return
        if stream.is_replicated:
            streams.replicas.take_rows(peer, stream, rows)
            return
        commit = streams.places.take_rows(peer, rows)
        if streams.owner(rows.stream, rows.partition) is not None:
            self._look_later()
        if commit:
            safe = stream.appender.safe[rows.partition]
            self._outboxes.arrivals.confirming(peer).answer_after(safe, commit)

    def take_back(self, message: Append) -> int | None:
        """Has who owns the partition now get what waited for a node that will not have it.

        Returns:
            The commit of this node's streams that has it, 0 if it is sent on; None: there is no such stream any more.
        """
        catalog = self._streams.catalog
        stream = None if catalog is None else catalog.streams.get(message.stream)
        if stream is None:
            return None
        if stream.is_replicated:
            return self._streams.replicas.take_back(stream, message)
        commit = self._streams.tap(stream).take_back(message)
        if commit:
            self._look_later()
        return commit

    def _look_later(self) -> None:
        if self._streams.handover is not None:
            self._streams.handover.look_later()
