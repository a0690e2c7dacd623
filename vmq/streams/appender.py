"""Where the broker hands messages over: one appender a stream, called in the event loop for every message.

What is appended gathers in memory, column by column, and is closed every few milliseconds as part of a
numbered commit (`vmq.streams.log.commits`). An acknowledgement has to wait for the number that `append`
returns, as it waits for a commit of the store.
"""

from collections.abc import Iterator
from typing import Final

from vmq.config.streams import StreamOptions
from vmq.disk.durable import Durable
from vmq.streams.append_way import AppendWay
from vmq.streams.log.commits import STEP, Commits
from vmq.streams.log.gathering import Gathering, Headers, flags_of
from vmq.streams.log.keys import Keys
from vmq.streams.log.partition import Partition
from vmq.streams.log.writer import Item

#: What `append` returns for a message that was not taken: it must not be acknowledged.
REFUSED: Final = -1

#: Bytes that a row counts for beside its topic and payload.
ROW: Final = 100

#: Clients, or topics, whose partition is remembered.
MOST_KEYS: Final = 65_536


class Appender:
    """The write side of one stream.

    `dropped` counts the messages that were not taken, because the disk lags behind by more than the commits' limit or
    because their partition is damaged, `refused` those among them that ask for an acknowledgement.
    """

    def __init__(
        self, options: StreamOptions, partitions: list[Partition], commits: Commits
    ) -> None:
        self.commits = commits
        self.messages = 0
        self.dropped = 0
        self.refused = 0
        self.left_out = 0
        self.size = 0
        self.room = STEP
        #: How far the rows of each partition are safe, in the commits that have them.
        self.safe: list[Durable] = []
        self.dirty = False
        self.set_options(options, partitions)

    def set_options(self, options: StreamOptions, partitions: list[Partition]) -> None:
        """Takes over other options; nothing may be gathered."""
        assert not self.size
        self.keys = Keys(options)
        self.partitions = partitions
        #: The numbers of those that take nothing new until they are mended (`vmq.streams.damaged`), or from here.
        self.damaged = frozenset(
            each.number for each in partitions if each.damage is not None or each.is_replica
        )
        self.safe += [Durable(is_near=True) for _ in partitions[len(self.safe) :]]
        self.early = options.durability == "memory" or options.acks == "none"
        self.gatherings = [Gathering() for _ in partitions]
        self.only = self.gatherings[0] if len(partitions) == 1 else None
        #: Partition by what it depends on: topic or client id.
        self.known: dict[bytes | str, int] = {}
        self.by_client = options.key == "client_id"

    def take_over(self, before: "Appender") -> None:
        """Counts on where another one ended."""
        self.messages += before.messages
        self.dropped += before.dropped
        self.refused += before.refused
        self.left_out += before.left_out
        self.safe[: len(before.safe)] = before.safe

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        _publisher: object = None,
        headers: Headers | None = None,
        *,
        is_owed: bool = False,
    ) -> int:
        """Takes one message.

        Args:
            topic: the topic, UTF-8.
            payload: the application message.
            qos: the publisher's.
            retain: the RETAIN flag of the PUBLISH.
            client_id: the publisher's.
            time: when the broker got it, in microseconds since 1970.
            _publisher: whose connection it is, which waits where another node owns the partition.
            headers: MQTT 5's user properties.
            is_owed: it was acknowledged, and is taken though its partition is damaged.

        Returns:
            The commit that an acknowledgement has to wait for, by `safe_of`; 0 if it need not wait;
            `REFUSED` if the message was not taken, and must not be acknowledged.
        """
        if self.damaged and not is_owed and self.refuses(topic, client_id):
            return self.refuse(qos, 1)
        size = self.size + len(payload) + len(topic) + ROW
        if size > self.room:
            if not self.commits.make_room(self, size - self.size):
                return self.refuse(qos, 1)
            size = self.size + len(payload) + len(topic) + ROW
        self.size = size
        if not self.dirty:
            self.dirty = True
            self.commits.touch(self)
        gathering = self.only
        if gathering is None:
            gathering = self.choose(topic, client_id)
        taking = self.commits.taking
        if taking.receipt:
            gathering.receipts.append((len(gathering.topics), taking.receipt))
            taking.places.append((self.name, self.partition_of(topic, client_id)))
        if headers:
            gathering.headers[len(gathering.topics)] = headers
        gathering.topics.append(topic)
        gathering.payloads.append(payload)
        gathering.flags.append(qos | 4 if retain else qos)
        gathering.times.append(time)
        gathering.clients.append(client_id)
        return 0 if self.early else self.commits.number

    def refuses(self, topic: bytes, client_id: str) -> bool:
        """Whether a message belongs to a partition that is damaged."""
        return self.partition_of(topic, client_id) in self.damaged

    def has_room(self, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the next message is taken, if it is this one."""
        if self.damaged and self.refuses(topic, client_id):
            return False
        added = len(payload) + len(topic) + ROW
        return self.size + added <= self.room or self.commits.make_room(self, added)

    def append_run(
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        _publisher: object = None,
    ) -> int:
        """Takes many messages of one client and topic, all or none; else as `append`."""
        if self.damaged and self.refuses(topic, client_id):
            return self.refuse(qos, len(payloads))
        added = sum(map(len, payloads)) + (len(topic) + ROW) * len(payloads)
        if self.size + added > self.room and not self.commits.make_room(self, added):
            return self.refuse(qos, len(payloads))
        self.size += added
        if not self.dirty:
            self.dirty = True
            self.commits.touch(self)
        gathering = self.only
        if gathering is None:
            gathering = self.choose(topic, client_id)
        gathering.add_run(topic, payloads, flags_of(qos, retain), client_id, time)
        return 0 if self.early else self.commits.number

    def choose(self, topic: bytes, client_id: str) -> Gathering:
        """The gathering of the partition that a message belongs to."""
        return self.gatherings[self.partition_of(topic, client_id)]

    def partition_of(self, topic: bytes, client_id: str) -> int:
        """The number of the partition that a message belongs to."""
        depends_on = client_id if self.by_client else topic
        number = self.known.get(depends_on)
        if number is None:
            if len(self.known) >= MOST_KEYS:
                self.known.clear()
            number = self.keys.partition(self.keys.of(topic, client_id))
            self.known[depends_on] = number
        return number

    def reserve(self, _topic: bytes, _payload: bytes, _client_id: str) -> tuple[str, int] | None:
        """A dot by which the next message is taken once, whoever hands it in: none is known here."""
        return None

    def safe_of(self, topic: bytes, client_id: str) -> Durable:
        """How far the partition is safe that a message belongs to: up to which of the numbers that `append` returns."""
        return self.safe[self.partition_of(topic, client_id)]

    def place_of(self, topic: bytes, client_id: str) -> Partition:
        """The partition that a message belongs to."""
        return self.partitions[self.keys.partition(self.keys.of(topic, client_id))]

    @property
    def name(self) -> str:
        """The stream's."""
        return self.partitions[0].stream

    def way(self, _topic: bytes, _client_id: str) -> AppendWay:
        """Where a message goes."""
        return AppendWay.HERE

    def refuse(self, qos: int, count: int) -> int:
        """Counts messages that are not taken."""
        self.dropped += count
        if qos:
            self.refused += count
        return REFUSED

    def take(self) -> Iterator[Item]:
        """Hands over what is gathered, for a commit."""
        self.dirty = False
        self.size = 0
        self.room = STEP
        for number, gathering in enumerate(self.gatherings):
            if gathering.topics:
                self.messages += len(gathering.topics)
                self.gatherings[number] = Gathering()
                yield Item(self.partitions[number], gathering, self.keys, self.safe[number])
        self.only = self.gatherings[0] if len(self.gatherings) == 1 else None
