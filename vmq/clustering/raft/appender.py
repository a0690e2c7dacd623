"""The write side of a replicated stream: `vmq.streams.appender.Appender`, whose partitions are led by whomever."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vmq.clustering.messages.publishes import QOS, RETAIN
from vmq.clustering.messages.streams import Append
from vmq.clustering.raft.dotted import DottedProducer
from vmq.clustering.raft.producer import ROW, Producer
from vmq.core.output import Output
from vmq.disk.durable import Durable
from vmq.store.store import StoreError
from vmq.streams.append_way import AppendWay
from vmq.streams.appender import REFUSED
from vmq.streams.log.gathering import flags_of

if TYPE_CHECKING:
    from vmq.streams.catalog import Stream
    from vmq.streams.log.partition import Partition

#: The largest message that a group's log takes: it travels in one frame.
LARGEST: Final = 32 << 20


class ReplicatedAppender:
    """The tap of one stream.

    Args:
        stream: the stream.
        find: the producer of a partition; None: the broker ends.
        dotted: that of rows with dots.
        is_here: whether a partition can be read on this node.
    """

    def __init__(
        self,
        stream: "Stream",
        find: Callable[[str, int], Producer | None],
        dotted: Callable[[str, int], DottedProducer | None],
        is_here: Callable[[str, int], bool],
    ) -> None:
        self.stream = stream
        self.options = stream.options
        self._name = stream.name
        self._find = find
        self._dotted = dotted
        self._is_here = is_here
        #: Messages are acknowledged before anybody has them.
        self._is_early = stream.options.acknowledged_by == "none"
        #: The topic and the client that Arrow was last found to take: most often the next ones, too.
        self._topic: bytes = b""
        self._client_id: str = ""
        #: Who took the last message.
        self._taker: Producer | None = None

    @property
    def name(self) -> str:
        """The stream's."""
        return self._name

    def _producer(self, topic: bytes, client_id: str) -> Producer | None:
        return self._find(self._name, self.stream.appender.partition_of(topic, client_id))

    def _is_text(self, topic: bytes, client_id: str) -> bool:
        if topic is self._topic and client_id is self._client_id:
            return True
        if not is_text(topic, client_id):
            return False
        self._topic, self._client_id = topic, client_id
        return True

    def has_room(self, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the next message is taken, if it is this one."""
        producer = self._producer(topic, client_id)
        if producer is None or len(payload) > LARGEST or not self._is_text(topic, client_id):
            return False
        return producer.has_room(len(payload) + len(topic) + ROW)

    def reserve(self, topic: bytes, payload: bytes, client_id: str) -> tuple[str, int] | None:
        """An address and a number by which `Roads.add_row` takes the next message once; None: `append` it.

        Raises:
            StoreError: it is not taken.
        """
        if self._is_early or self.options.without_quorum == "keep":
            return None
        appender = self.stream.appender
        number = appender.partition_of(topic, client_id)
        producer = self._dotted(self._name, number)
        size = len(payload) + len(topic) + ROW
        is_good = len(payload) <= LARGEST and self._is_text(topic, client_id)
        if producer is None or not is_good or not producer.has_room(size):
            appender.refuse(2, 1)
            raise StoreError("a stream cannot write")
        appender.messages += 1
        store, boot, place = producer.reserve()
        return "\0".join((self._name, str(number), store, boot)), place

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
        *,
        is_owed: bool = False,
    ) -> int:
        """Takes one message, as `Appender.append`; `is_owed`: it was acknowledged, and is taken whatever waits."""
        appender = self.stream.appender
        producer = self._producer(topic, client_id)
        size = len(payload) + len(topic) + ROW
        if producer is None or len(payload) > LARGEST or not (is_owed or producer.has_room(size)):
            return appender.refuse(qos, 1)
        if not self._is_text(topic, client_id):
            appender.left_out += 1
            return appender.refuse(qos, 1)
        taking = appender.commits.taking
        if taking.receipt:
            taking.held.append(self._name)  # a crash here may take it: its client sends it again
        rows = producer.gather()
        if headers:
            rows.headers[len(rows.topics)] = headers
        rows.topics.append(topic)
        rows.payloads.append(payload)
        rows.flags.append(flags_of(qos, retain))
        rows.times.append(time)
        rows.clients.append(client_id)
        appender.messages += 1
        self._taker = producer
        number = producer.added(size, publisher)
        return 0 if self._is_early else number

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
        """Takes many messages of one client and topic, one after the other; else as `append`."""
        number = 0
        for payload in payloads:
            number = self.append(topic, payload, qos, retain, client_id, time, publisher)
        return number

    def safe_of(self, topic: bytes, client_id: str) -> Durable:
        """How far the messages of this node for a partition are safe."""
        producer = self._taker  # most often the question is about the message that was just taken
        if producer is None or topic is not self._topic or client_id is not self._client_id:
            producer = self._producer(topic, client_id)
        return Durable() if producer is None else producer.safe

    def place_of(self, topic: bytes, client_id: str) -> "Partition":
        """The partition that a message belongs to, as this node has it."""
        return self.stream.appender.place_of(topic, client_id)

    def way(self, topic: bytes, client_id: str) -> AppendWay:
        """Where a message goes."""
        number = self.stream.appender.partition_of(topic, client_id)
        return AppendWay.HERE if self._is_here(self._name, number) else AppendWay.AWAY

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
        """Takes a message whose publisher waits until it is safe; returns whether it was taken."""
        number = self.append(topic, payload, qos, retain, client_id, time)
        if number > 0 and publisher is not None:
            publisher.answer_after(self.safe_of(topic, client_id), number)
        return number != REFUSED

    # --- what nodes send that knew the stream when it had one copy

    def take(self, message: Append) -> int:
        """Takes a message of another node."""
        qos, retain = message.flags & QOS, message.flags & RETAIN != 0
        given = (message.topic, message.payload, qos, retain, message.client_id, message.time)
        return max(0, self.append(*given, is_owed=True))


def is_text(topic: bytes, client_id: str) -> bool:
    """Whether Arrow takes them: plugins may have put in something else."""
    try:
        topic.decode()
        client_id.encode()
    except UnicodeError:
        return False
    return True
