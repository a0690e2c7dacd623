"""The write side of a stream whose partitions have owners: what belongs to another node's goes there.

It stands for the `Appender` of the stream wherever the core hands messages to streams (`vmq.registry.Registry.tap`).
"""

from typing import TYPE_CHECKING, Any, Protocol

from vmq.clustering.appends import Append, AppendRun
from vmq.clustering.lanes import Lanes
from vmq.clustering.publishes import MAX_HOPS, QOS, RETAIN, flags_of
from vmq.core import Core

if TYPE_CHECKING:
    from vmq.streams.appender import Appender
    from vmq.streams.catalog import Stream

#: Bytes of a message between nodes beside topic, payload and client id.
_ENVELOPE = 64


class Owners(Protocol):
    """Who owns what."""

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""

    def introduce(self, peer: str, stream: str) -> bool:
        """Makes sure that a peer knows a stream before what is sent to it next; False if there is no room."""


class Tap:
    """The tap of one stream."""

    def __init__(self, stream: "Stream", core: Core, lanes: Lanes, owners: Owners) -> None:
        self.stream = stream
        self._core = core
        self._lanes = lanes
        self._owners = owners

    def has_room(self, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the next message is taken, if it is this one."""
        appender = self.stream.appender
        owner = self._owners.owner(self.stream.name, appender.partition_of(topic, client_id))
        if owner is None:
            return appender.has_room(topic, payload, client_id)
        return self._takes(owner, topic, payload, client_id)

    def refuse(self, qos: int, count: int) -> int:
        """Counts messages that are not taken."""
        return self.stream.appender.refuse(qos, count)

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        headers: Any = None,
        hops: int = 0,
    ) -> int:
        """Takes one message, as `Appender.append`; one for another node is in this broker's store then."""
        appender = self.stream.appender
        owner = self._owners.owner(self.stream.name, appender.partition_of(topic, client_id))
        if owner is None or hops >= MAX_HOPS:
            return appender.append(topic, payload, qos, retain, client_id, time, headers)
        flags = flags_of(qos, retain)
        message = Append(self.stream.name, topic, payload, flags, client_id, time, hops)
        if qos == 0:
            taken = self._lanes.send_quick(owner, message)
        else:
            taken = self._takes(owner, topic, payload, client_id) and self._send(owner, message)
        return 0 if taken else appender.refuse(qos, 1)

    def append_run(
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        hops: int = 0,
    ) -> int:
        """Takes many messages of one client and topic at QoS 0, all or none; else as `append`."""
        appender = self.stream.appender
        owner = self._owners.owner(self.stream.name, appender.partition_of(topic, client_id))
        if owner is None or hops >= MAX_HOPS:
            return appender.append_run(topic, payloads, qos, retain, client_id, time)
        run = AppendRun(self.stream.name, topic, payloads, client_id, time, hops)
        if self._lanes.send_quick(owner, run):
            return 0
        return appender.refuse(qos, len(payloads))

    def take(self, message: Append) -> int:
        """Takes a message of another node, which was acknowledged there: it has to have it."""
        topic, payload, client_id = message.topic, message.payload, message.client_id
        qos, retain = message.flags & QOS, message.flags & RETAIN != 0
        if not qos or self.has_room(topic, payload, client_id):
            hops = message.hops + 1
            return self.append(topic, payload, qos, retain, client_id, message.time, hops=hops)
        appender: Appender = self.stream.appender
        appender.room = max(appender.room, appender.size + len(payload) + len(topic) + 1024)
        return appender.append(topic, payload, qos, retain, client_id, message.time)

    def _takes(self, owner: str, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the lane to an owner has room: a message that is dropped later would have been acknowledged."""
        store = self._core.store
        assert store is not None, "a node has a store"
        if store.refuses(self._core.options.max_uncommitted_writes):
            return False
        size = len(payload) + len(topic) + len(client_id) + len(self.stream.name) + _ENVELOPE
        return self._lanes.has_room(owner, size)

    def _send(self, owner: str, message: Append) -> bool:
        return self._owners.introduce(owner, self.stream.name) and self._lanes.forward(
            owner, message
        )
