"""The write side of a stream whose partitions have owners: what belongs to another node's goes there.

It stands for the `Appender` of the stream wherever the core hands messages to streams
(`vmq.core.stream_feed`).
"""

from typing import TYPE_CHECKING, Any, Protocol

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.publishes import MAX_HOPS, QOS, RETAIN, flags_of
from vmq.clustering.messages.streams import Append, AppendRun
from vmq.core.context import Core
from vmq.core.output import Output
from vmq.disk.durable import Durable
from vmq.streams.append_way import AppendWay

if TYPE_CHECKING:
    from vmq.clustering.streams.hold import HeldMessages, PartitionHolds
    from vmq.streams.catalog import Stream
    from vmq.streams.log.partition import Partition

#: Bytes of a message between nodes beside topic, payload and client id.
_ENVELOPE = 64


class AppendRoutes(Protocol):
    """Where messages go."""

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""

    def since(self, stream: str, partition: int) -> int:
        """Since when."""

    def way(self, stream: str, partition: int) -> str | None:
        """To which node messages go that the owner is to have; None: they stay here."""

    def refuses(self, stream: str, partition: int) -> bool:
        """Whether a partition is damaged at its owner, which takes nothing new for it."""

    def introduce(self, peer: str, stream: str) -> bool:
        """Makes sure that a peer knows a stream before what is sent to it next; False if there is no room."""


class RoutedAppender:
    """The tap of one stream."""

    def __init__(
        self,
        stream: "Stream",
        core: Core,
        outboxes: Outboxes,
        places: AppendRoutes,
        holding: "PartitionHolds",
    ) -> None:
        self.stream = stream
        self._name = stream.name
        self._core = core
        self._outboxes = outboxes
        self._places = places
        self._holding = holding
        #: Messages that this node has sent to others that own their partitions.
        self.sent = 0

    # --- what clients of this node publish

    def has_room(self, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the next message is taken, if it is this one."""
        appender = self.stream.appender
        number = appender.partition_of(topic, client_id)
        if self._holding.holds(self._name, number):
            return self._holding.has_room(self._name, number, len(topic) + len(payload))
        owner = self._places.owner(self._name, number)
        if owner is None:
            return appender.has_room(topic, payload, client_id)
        return self._takes(owner, number, topic, payload, client_id)

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
        publisher: Output | None = None,
        headers: Any = None,
    ) -> int:
        """Takes one message, as `Appender.append`; one for another node is in this broker's store then."""
        appender = self.stream.appender
        number = appender.partition_of(topic, client_id)
        if self._holding.holds(self._name, number):
            given = (topic, [payload], qos, retain, client_id, time, publisher)
            if not self._holding.keep(self, number, *given):
                return appender.refuse(qos, 1)
            appender.commits.taking.held.append(self._name)
            return 0
        owner = self._places.owner(self._name, number)
        if owner is None:
            return appender.append(topic, payload, qos, retain, client_id, time, None, headers)
        since = self._places.since(self._name, number)
        flags = flags_of(qos, retain)
        message = Append(self._name, topic, payload, flags, client_id, time, 0, since)
        if qos == 0:
            refused = self._places.refuses(self._name, number)
            taken = not refused and self._outboxes.send_quick(owner, message)
        else:
            taken = self._takes(owner, number, topic, payload, client_id)
            taken = taken and self._forward(owner, message, publisher)
        if not taken:
            return appender.refuse(qos, 1)
        self.sent += 1
        return 0

    @property
    def name(self) -> str:
        """The stream's."""
        return self._name

    def reserve(self, _topic: bytes, _payload: bytes, _client_id: str) -> tuple[str, int] | None:
        """A dot by which the next message is taken once, whoever hands it in: none is known here."""
        return None

    def safe_of(self, topic: bytes, client_id: str) -> Durable:
        """How far this node's log of the partition is safe that a message belongs to."""
        return self.stream.appender.safe_of(topic, client_id)

    def place_of(self, topic: bytes, client_id: str) -> "Partition":
        """The partition that a message belongs to, as this node has it."""
        return self.stream.appender.place_of(topic, client_id)

    def way(self, topic: bytes, client_id: str) -> AppendWay:
        """Where a message goes."""
        number = self.stream.appender.partition_of(topic, client_id)
        if self._holding.holds(self._name, number):
            return AppendWay.HELD
        return AppendWay.HERE if self._places.owner(self._name, number) is None else AppendWay.AWAY

    def send(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        publisher: Output | None,
    ) -> bool:
        """Sends a message to the owner, which is another node; returns whether it was taken.

        Whatever its QoS it is in this broker's store with all else that is written in this pass, and reaches the owner.
        """
        number = self.stream.appender.partition_of(topic, client_id)
        owner = self._places.owner(self._name, number)
        assert owner is not None
        since = self._places.since(self._name, number)
        flags = flags_of(qos, retain)
        message = Append(self._name, topic, payload, flags, client_id, time, 0, since)
        taken = self._takes(owner, number, topic, payload, client_id)
        if not taken or not self._forward(owner, message, publisher):
            self.refuse(qos, 1)
            return False
        self.sent += 1
        return True

    def append_run(
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        publisher: Output | None = None,
    ) -> int:
        """Takes many messages of one client and topic at QoS 0, all or none; else as `append`."""
        appender = self.stream.appender
        number = appender.partition_of(topic, client_id)
        if self._holding.holds(self._name, number):
            given = (topic, payloads, qos, retain, client_id, time, publisher)
            taken = self._holding.keep(self, number, *given)
            return 0 if taken else appender.refuse(qos, len(payloads))
        owner = self._places.owner(self._name, number)
        if owner is None:
            return appender.append_run(topic, payloads, qos, retain, client_id, time)
        run = AppendRun(self._name, topic, payloads, client_id, time, 0)
        refused = self._places.refuses(self._name, number)
        if refused or not self._outboxes.send_quick(owner, run):
            return appender.refuse(qos, len(payloads))
        self.sent += len(payloads)
        return 0

    def place(self, message: "HeldMessages") -> int:
        """Takes what has waited while the owner changed, whatever room there is; returns the commit that has it."""
        topic, client_id, time = message.topic, message.client_id, message.time
        if not message.qos:
            for payload in message.payloads:
                self.append(topic, payload, 0, message.retain, client_id, time)
            return 0
        number = self.stream.appender.partition_of(topic, client_id)
        flags = flags_of(message.qos, message.retain)
        commit = 0
        for payload in message.payloads:
            owner = self._places.owner(self._name, number)
            since = self._places.since(self._name, number)
            sent = Append(self._name, topic, payload, flags, client_id, time, 0, since)
            if owner is not None and self._move(owner, sent, message):
                self.sent += 1
            else:
                commit = self._keep(sent)
        return commit

    # --- what other nodes send

    def take(self, message: Append) -> int:
        """Takes a message of another node, which was acknowledged there: it has to have it."""
        topic, payload, client_id = message.topic, message.payload, message.client_id
        qos = message.flags & QOS
        number = self.stream.appender.partition_of(topic, client_id)
        owner = self._places.owner(self._name, number)
        since = self._places.since(self._name, number)
        # The sender may know sooner than this node that this is the owner.
        if owner is None or message.hops >= MAX_HOPS or message.since > since:
            return self._keep(message)
        flags, hops = message.flags, message.hops + 1
        sent = Append(self._name, topic, payload, flags, client_id, message.time, hops, since)
        if not qos:
            return 0 if self._outboxes.send_quick(owner, sent) else self.refuse(qos, 1)
        if self._has_room(owner, topic, payload, client_id) and self._forward(owner, sent, None):
            return 0
        return self._keep(message)

    def take_run(self, run: AppendRun) -> None:
        """Takes a run of messages at QoS 0: here or on the partition's owner."""
        appender = self.stream.appender
        owner = self._places.owner(self._name, appender.partition_of(run.topic, run.client_id))
        if owner is None or run.hops >= MAX_HOPS:
            appender.append_run(run.topic, run.payloads, 0, False, run.client_id, run.time)
            return
        given = (self._name, run.topic, run.payloads, run.client_id, run.time)
        if not self._outboxes.send_quick(owner, AppendRun(*given, run.hops + 1)):
            appender.refuse(0, len(run.payloads))

    def take_back(self, message: Append) -> int:
        """Takes what was sent to a node that will not have it."""
        number = self.stream.appender.partition_of(message.topic, message.client_id)
        way = self._places.way(self._name, number)
        given = (self._name, message.topic, message.payload, message.flags, message.client_id)
        if way is not None and self._move(way, Append(*given, message.time)):
            return 0
        return self._keep(message)

    # --- how it is done

    def _takes(self, owner: str, number: int, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether an owner takes a message: one that is dropped later would have been acknowledged."""
        refused = self._places.refuses(self._name, number)
        return not refused and self._has_room(owner, topic, payload, client_id)

    def _has_room(self, owner: str, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the outbox to an owner has room."""
        store = self._core.store
        assert store is not None, "a node has a store"
        if store.refuses(self._core.options.max_uncommitted_writes):
            return False
        size = len(payload) + len(topic) + len(client_id) + len(self._name) + _ENVELOPE
        return self._outboxes.has_room(owner, size)

    def _forward(self, owner: str, message: Append, publisher: Output | None) -> bool:
        introduced = self._places.introduce(owner, self._name)
        qos = message.flags & QOS
        return introduced and self._outboxes.forward(owner, message, qos, publisher)

    def _move(self, node: str, message: Append, waiting: "HeldMessages | None" = None) -> bool:
        wait = None if waiting is None else waiting.wait
        introduced = self._places.introduce(node, self._name)
        return introduced and self._outboxes.move(node, message, wait)

    def _keep(self, message: Append) -> int:
        """Has a message in the log of this node, whose ever it is."""
        topic, payload, client_id = message.topic, message.payload, message.client_id
        appender = self.stream.appender
        qos, retain = message.flags & QOS, message.flags & RETAIN != 0
        if qos and not appender.has_room(topic, payload, client_id):
            appender.room = max(appender.room, appender.size + len(payload) + len(topic) + 1024)
        is_owed = qos > 0
        return appender.append(
            topic, payload, qos, retain, client_id, message.time, is_owed=is_owed
        )
