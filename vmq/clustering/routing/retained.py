"""Retained messages of the whole cluster: each node has all of them, and the replicated metadata say which.

A node keeps and looks them up as it would alone, in memory and in its store; the metadata follow at the end of the
pass, before the store commits, and other nodes follow the metadata. Of two messages for one topic the last writer's
stays. Live subscribers elsewhere get a message by its route; what comes by the metadata is for later subscriptions, and
for those that are so new that it may have had no route to them (`late_retained`).

Who published a message stands under a prefix of its own, which older nodes do not know: so the values are what they
always were. It is written before the message where it is another than before; which of the two comes first to other
nodes is open.

Each node holds to its own limits: what it refuses when it comes from elsewhere (it is counted and logged) it has again
with the next message of the topic, or after its next start.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from vmq.clustering.directory.records import RETAINED, RecordError, decode_key, encode_key
from vmq.clustering.routing.late_retained import LateRetained
from vmq.core.context import Core
from vmq.core.hook_sites import Hooks
from vmq.core.ports import RetainedListener
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.mqtt.message import Message, Sourced
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import decode_topic_name
from vmq_cluster.effects import Changed
from vmq_cluster.errors import ClusterError
from vmq_cluster.messages import MAX_VALUE
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: The prefix under which their sources are: mountpoint, NUL, topic -> `RetainedSource`.
SOURCES: Final = "vmq.retained.sources"

_HIGHEST_QOS: Final = 2


class RetainedSource(Struct, array_like=True, frozen=True):
    """Who published a retained message."""

    client_id: str
    user: str | None = None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(RetainedSource)


class ClusterRetained(RetainedListener):
    """The retained messages of one node.

    Args:
        node: which runs.
        core: the broker's; `attach` sets its port.
        registries: the topic trees that there are.
        find: the topic tree of a mountpoint, made when first asked for.
        call_soon: calls back at the end of the pass.
    """

    def __init__(
        self,
        node: ClusterNode,
        core: Core,
        registries: Mapping[str, Registry],
        find: Callable[[str], Registry],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__()
        self.longest = MAX_VALUE - 1
        self._node = node
        self._core = core
        self._registries = registries
        self._find = find
        self._call_soon = call_soon
        #: What this node's clients published in this pass; None: it is erased.
        self._pending: dict[bytes, bytes | None] = {}
        #: Who published that; None: that is not known.
        self._sources: dict[bytes, RetainedSource | None] = {}
        #: Sends what comes late to who has just subscribed.
        self.late: LateRetained | None = None
        node.watch_steps(RETAINED, self._on_changes)
        node.watch_steps(SOURCES, self._on_sources)

    def attach(self, is_first: bool, was_alone: bool = False) -> None:
        """Makes this node's and the cluster's the same, and keeps them so; no client is here yet.

        `is_first`: what the metadata lack is new to the cluster; else it was erased while this node was down.
        `was_alone`: the broker ran without the cluster meanwhile. Then what it has is newer than what the metadata had
        when it left; but what it lacks it may never have kept, for its limits, and gets back.
        """
        found: set[bytes] = set()
        for key, value in self._node.items(RETAINED):
            found.add(key)
            if not was_alone or not self._has(key):
                self._take(key, value)
        for registry in list(self._registries.values()):
            for message in registry.retained.all():
                key = encode_key(registry.mountpoint, message.topic.decode())
                if key in found:
                    if was_alone and self._node.get(RETAINED, key) != _encode(message):
                        self.on_retained(registry, message)
                elif is_first or was_alone:
                    self.on_retained(registry, message)
                else:
                    self._take(key, None)
        self.flush()
        self._core.retained_listener = self

    def detach(self) -> None:
        """They are this node's own from now on."""
        self.flush()
        self._core.retained_listener = RetainedListener()

    def flush(self) -> None:
        """Puts everything into the metadata. To be called before the store commits it."""
        if not self._pending or not self._node.is_running:
            return  # it may run again
        pending, self._pending = self._pending, {}
        sources, self._sources = self._sources, {}
        for key, value in pending.items():
            try:
                self._write_source(key, sources.get(key))
                if value is None:
                    self._node.delete(RETAINED, key)
                else:
                    self._node.put(RETAINED, key, value)
            except ClusterError as error:
                log.error("other nodes do not get the retained message of %r: %s", key, error)

    # --- how it is done

    def on_retained(self, registry: Registry, message: Message) -> None:
        """What `vmq.core.ports.RetainedListener.on_retained` is told."""
        if not self._pending:
            self._call_soon(self.flush)
        key = encode_key(registry.mountpoint, message.topic.decode())
        self._pending[key] = _encode(message)
        self._sources[key] = _source_of(message) if message.payload else None

    def on_subscribed(
        self, registry: Registry, subscriber: Subscriber, granted: dict[str, int], hooks: Hooks
    ) -> None:
        """What `vmq.core.ports.RetainedListener.on_subscribed` is told."""
        if self.late is not None:
            self.late.on_subscribed(registry, subscriber, granted, hooks)

    def _write_source(self, key: bytes, source: RetainedSource | None) -> None:
        present = self._node.get(SOURCES, key)
        if source is None:
            if present is not None:
                self._node.delete(SOURCES, key)
        elif present != (raw := _ENCODER.encode(source)):
            self._node.put(SOURCES, key, raw)

    def _source(self, key: bytes) -> RetainedSource | None:
        """Who published the message under a key, as the metadata say."""
        raw = self._node.get(SOURCES, key)
        try:
            return None if raw is None else _DECODER.decode(raw)
        except msgspec.DecodeError as error:
            log.warning("no source of a retained message: %s", error)
            return None

    def _on_sources(self, changes: list[Changed]) -> None:
        """The source of a message comes after it, or is another."""
        for change in changes:
            if change.local or change.key in self._pending:
                continue
            value = self._node.get(RETAINED, change.key)
            if value is not None:
                self._take(change.key, value)

    def _on_changes(self, changes: list[Changed]) -> None:
        for change in changes:
            # What this node is about to write is the last word.
            if not change.local and change.key not in self._pending:
                self._take(change.key, change.value)

    def _has(self, key: bytes) -> bool:
        try:
            mountpoint, topic = decode_key(key)
        except RecordError:
            return False
        registry = self._registries.get(mountpoint)
        return registry is not None and registry.retained.get(topic) is not None

    def _take(self, key: bytes, value: bytes | None) -> None:
        """This node has the message of the cluster, or none."""
        try:
            mountpoint, topic = decode_key(key)
            raw = topic.encode()
            decode_topic_name(raw)
            message = _decode(raw, value, self._source(key))
        except (RecordError, ProtocolError) as error:
            log.warning("no retained message: %s", error)
            return
        if not message.payload and mountpoint not in self._registries:
            return
        registry = self._find(mountpoint)
        present = registry.retained.get(topic)
        if present is not None and _is_same(present, message):
            return
        is_kept = registry.keep_retained(topic, message)
        # Another source alone is no news to a subscriber.
        is_news = present is None or present.payload != message.payload
        if self.late is not None and is_kept and is_news and (message.payload or present):
            self.late.on_changed(registry, topic)


def _encode(message: Message) -> bytes | None:
    payload = message.payload
    return bytes((message.qos,)) + payload if payload else None


def _source_of(message: Message) -> RetainedSource | None:
    return RetainedSource(message.client_id, message.user) if isinstance(message, Sourced) else None


def _is_same(one: Message, other: Message) -> bool:
    """Whether they are equal, and of one source."""
    contents = (one.payload, one.qos, _source_of(one))
    return contents == (other.payload, other.qos, _source_of(other))


def _decode(topic: bytes, value: bytes | None, source: RetainedSource | None) -> Message:
    """A message out of the metadata; one without a payload erases the topic's.

    Raises:
        RecordError: it is none.
    """
    if value is None:
        return Message(topic, b"", 0, True)
    if len(value) < 2 or value[0] > _HIGHEST_QOS:
        raise RecordError(f"{value[:10]!r} of {topic[:100]!r}")
    if source is not None:
        client = sys.intern(source.client_id)
        user = None if source.user is None else sys.intern(source.user)
        return Sourced(topic, value[1:], value[0], True, client, user)
    return Message(topic, value[1:], value[0], True)
