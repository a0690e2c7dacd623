"""What other nodes send for streams: messages, rows, and what waited for a node that will not have it.

A stream may have become replicated since it was sent: then its groups get it.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import Append, AppendRun, Define, PartitionRows
from vmq.clustering.streams.introductions import AnnouncedStreams
from vmq.clustering.streams.records import StreamRecords
from vmq.clustering.streams.routed_appender import RoutedAppender
from vmq.clustering.streams.view import StreamsView
from vmq.core.context import Core
from vmq.core.on_commit import OnCommit
from vmq.disk.durable import Durable

if TYPE_CHECKING:
    from vmq.streams.catalog import Stream

log = logging.getLogger("vmq.cluster")

M = TypeVar("M", Append, AppendRun, Define, PartitionRows)
#: What has to be safe before a message is confirmed.
Safe = tuple[Durable, int]


class TakesRows(Protocol):
    """`vmq.clustering.streams.remote_partitions.RemotePartitions`."""

    def take_rows(self, peer: str, message: PartitionRows) -> int: ...


class InboxStreams(StreamsView, Protocol):
    """The streams of a node."""

    @property
    def places(self) -> TakesRows | None: ...

    def hear_of(self, name: str, definition: bytes) -> None: ...
    def when_open(self, name: str, call: Callable[[], None]) -> bool: ...
    def tap(self, stream: "Stream") -> RoutedAppender: ...


class StreamInbox:
    """What comes to one node.

    Args:
        streams: the node's.
        core: the broker's.
        outboxes: to the other nodes, whose messages are confirmed once they are safe.
        records: the cluster's.
    """

    def __init__(
        self, streams: InboxStreams, core: Core, outboxes: Outboxes, records: StreamRecords
    ) -> None:
        self._streams = streams
        self.announced = AnnouncedStreams(records)
        self._core = core
        self._outboxes = outboxes
        self._on(Append, self.append, for_streams=True)
        self._on(AppendRun, self.append_run)
        self._on(PartitionRows, self.take_rows, for_streams=True)
        self._on(Define, self.define)

    def _on(
        self, kind: type[M], handle: Callable[[str, M], Safe | None], *, for_streams: bool = False
    ) -> None:
        def take(peer: str, message: M) -> None:
            if safe := handle(peer, message):
                self._outboxes.arrivals.confirming(peer).answer_after(*safe)

        self._outboxes.on(kind, take, for_streams=for_streams)

    def _when_open(
        self, handle: Callable[[str, M], Safe | None], peer: str, message: M, name: str
    ) -> Safe | None:
        """Has a message handled once its stream is known and open, if that is on its way; returns what is safe then."""
        handled = Durable()

        def go_on() -> None:
            if self._outboxes.arrivals.is_closed:
                return  # its sender has it, for the next life
            assert self._core.store is not None, "a node has a store"
            kept = OnCommit(self._core.outbox, self._core.store)
            if safe := handle(peer, message):
                kept.answer_after(*safe)
            kept.after(partial(handled.advance, 1))
            self._outboxes.flush()

        waits = self.announced.then(name, go_on) or self._streams.when_open(name, go_on)
        return (handled, 1) if waits else None

    def define(self, peer: str, message: Define) -> Safe | None:
        """What a stream is: confirmed when it is open here."""
        was_loaded = self._streams.catalog is not None
        self.announced.hear(message.stream, message.definition)
        self._streams.hear_of(message.stream, message.definition)
        then = _nothing if was_loaded else self.define
        return self._when_open(then, peer, message, message.stream)

    def _stream(self, name: str) -> "Stream | None":
        catalog = self._streams.catalog
        if catalog is None or name in self.announced:
            return None
        return catalog.streams.get(name)

    def _later(
        self, handle: Callable[[str, M], Safe | None], peer: str, message: M, name: str
    ) -> Safe | None:
        """As `_when_open`, of what is lost if its stream does not come."""
        later = self._when_open(handle, peer, message, name)
        if later is None and self._streams.catalog is not None:
            log.warning("messages from %s are dropped: the stream %r was deleted", peer, name)
        return later

    def append(self, peer: str, message: Append) -> Safe | None:
        """A message for a partition that this node owns, or owned."""
        streams = self._streams
        stream = self._stream(message.stream)
        if stream is None:
            return self._later(self.append, peer, message, message.stream)
        if stream.is_replicated:
            return streams.replicas.take(stream, message)
        commit = streams.tap(stream).take(message)
        if commit and any(streams.owners(stream)):
            self._look_later()  # should it have come here though it is another's
        return stream.appender.safe_of(message.topic, message.client_id), commit

    def append_run(self, peer: str, run: AppendRun) -> Safe | None:
        """Messages at QoS 0."""
        stream = self._stream(run.stream)
        if stream is None:
            return self._later(self.append_run, peer, run, run.stream)
        if stream.is_replicated:
            self._streams.replicas.take_run(stream, run)
        else:
            self._streams.tap(stream).take_run(run)
        return None

    def take_rows(self, peer: str, rows: PartitionRows) -> Safe | None:
        """Rows that a node had of a partition."""
        streams = self._streams
        stream = self._stream(rows.stream)
        if stream is None or streams.places is None:
            return self._later(self.take_rows, peer, rows, rows.stream)
        if stream.is_replicated:
            return streams.replicas.take_rows(peer, stream, rows)
        commit = streams.places.take_rows(peer, rows)
        if streams.owner(rows.stream, rows.partition) is not None:
            self._look_later()
        return (stream.appender.safe[rows.partition], commit) if commit else None

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


def _nothing(_peer: str, _message: Define) -> None:
    """All is done."""
