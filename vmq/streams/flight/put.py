"""Rows that a Flight client appends to a stream."""

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

from vmq.streams.catalog import Stream
from vmq.streams.flight.access import Access
from vmq.streams.log.errors import StreamError
from vmq.streams.log.gathering import from_buffer, zeros
from vmq.streams.log.schema import HEADERS, STORED
from vmq.streams.log.writer import Commit, Item, PartitionWriter
from vmq.streams.places import PartitionPlaces

#: Bytes of one batch, in memory.
LARGEST: Final = 64 << 20
LONGEST_TOPIC: Final = 65_535

#: Seconds that a put waits for the disk.
PATIENCE: Final = 60.0

_ACCEPTED: Final = "topic (string), payload (binary), qos, retain, client_id and headers (optional)"


class BadPutError(StreamError):
    """Rows that cannot be appended."""


class Put:
    """One put of a user to a stream. Rows get the time of their arrival, and the stream's key."""

    def __init__(
        self,
        stream: Stream,
        writer: PartitionWriter,
        access: Access,
        user: str | None,
        places: PartitionPlaces | None = None,
    ) -> None:
        self.stream = stream
        self.places = places
        self.writer = writer
        self.access = access
        self.user = user
        self.allowed: set[str] = set()

    def append(self, batch: pa.RecordBatch) -> None:
        """Appends rows, and waits until they are as durable as the stream's acks ask.

        Raises:
            BadPutError: the rows cannot be used; none of them is appended.
            StreamError: one belongs to a partition that is damaged; likewise.
            FlightUnauthorizedError: the user may not publish to one of the topics.
            FlightUnavailableError: the disk does not take them; whether it will later is not known.
        """
        if not batch.num_rows:
            return
        now = time.time_ns() // 1000
        rows = self.rows(batch, now)
        done: Future[None] = Future()
        items = []
        elsewhere: list[Future[bool]] = []
        places, name = self.places, self.stream.name
        parts = self.parts(rows)
        for number, _ in parts:
            self.check_partition(number)
        with self.stream.writing:
            for number, part in parts:
                if places is not None and (
                    places.replicates(name) or places.owner(name, number) is not None
                ):
                    elsewhere.append(places.append(name, number, part))
                else:
                    where = self.stream.partitions[number]
                    items.append(Item(where, part, self.stream.appender.keys))
            for item in items:
                item.newest = now
            self.writer.submit(Commit(items, lambda: done.set_result(None)))
        until = time.monotonic() + PATIENCE
        try:
            done.result(PATIENCE)
            taken = [each.result(max(0.0, until - time.monotonic())) for each in elsewhere]
        except FutureTimeoutError:
            raise flight.FlightUnavailableError("the disk does not take the rows") from None
        if not all(taken):
            raise flight.FlightUnavailableError("another node does not take its rows")

    def check_partition(self, number: int) -> None:
        """Looks whether a partition takes rows, wherever it is.

        Raises:
            StreamError: it is damaged.
        """
        places, name = self.places, self.stream.name
        if places is not None and places.owner(name, number) is not None:
            places.check(name, number)
        elif (damage := self.stream.partitions[number].damage) is not None:
            raise damage

    def rows(self, batch: pa.RecordBatch, now: int) -> pa.RecordBatch:
        """The rows with every stored column, checked."""
        unknown = set(batch.schema.names) - set(STORED.names)
        if unknown or not {"topic", "payload"} <= set(batch.schema.names):
            names = ", ".join(batch.schema.names)
            raise BadPutError(f"the columns are {names:.200}; accepted: {_ACCEPTED}")
        if batch.nbytes > LARGEST:
            raise BadPutError(f"a batch of {batch.nbytes} bytes; accepted: at most {LARGEST}")
        count = batch.num_rows
        topics = column(batch, "topic", "")
        self.check_topics(topics)
        clients = column(batch, "client_id", self.user or "")
        qos = column(batch, "qos", 0)
        if pc.any(pc.or_(pc.less(qos, 0), pc.greater(qos, 2))).as_py():
            raise BadPutError("a qos that is none; accepted: 0, 1, 2")
        times = pa.repeat(pa.scalar(now, pa.int64()), count).cast(STORED.field("timestamp").type)
        if "headers" in batch.schema.names:
            headers = column(batch, "headers", None)
        else:
            offsets = from_buffer(pa.int32(), zeros(4 * count + 4), count + 1)
            headers = pa.ListArray.from_arrays(
                offsets, pa.array([], HEADERS.value_type), type=HEADERS
            )
        keys = self.stream.appender.keys.column(topics, clients)
        payloads, retain = column(batch, "payload", b""), column(batch, "retain", False)
        check_payloads(payloads, self.access)
        columns = [topics, payloads, qos, retain, times, clients, keys, headers]
        return pa.RecordBatch.from_arrays(columns, schema=STORED)

    def check_topics(self, topics: pa.StringArray) -> None:
        """Refuses what is no topic, not of this stream, or not the user's to publish to."""
        for topic in topics.unique().to_pylist():
            if topic in self.allowed:
                continue
            check_topic(topic, self.access, self.user)
            if not self.stream.matches(topic):
                filters = ", ".join(self.stream.options.filters)
                raise BadPutError(
                    f"topic {topic!r:.120} is not of stream {self.stream.name!r}; accepted: {filters:.500}"
                )
            if len(self.allowed) < LONGEST_TOPIC:
                self.allowed.add(topic)

    def parts(self, rows: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each partition."""
        count = len(self.stream.partitions)
        if count == 1:
            return [(0, rows)]
        encoded = rows.column("key").dictionary_encode()
        keys = self.stream.appender.keys
        numbers = pa.array([keys.partition(key) for key in encoded.dictionary.to_pylist()])
        numbers = pc.take(numbers, encoded.indices)
        parts = ((number, rows.filter(pc.equal(numbers, number))) for number in range(count))
        return [(number, part) for number, part in parts if part.num_rows]


def check_topic(topic: str, access: Access, user: str | None) -> None:
    """Whether this is a topic, and the user may publish to it.

    Raises:
        BadPutError: it is no topic name.
        FlightUnauthorizedError: the user may not.
    """
    if not topic or any(each in topic for each in "+#\0"):
        raise BadPutError(f"{topic!r:.120} is no topic name; accepted: one without + and #")
    if len(topic.encode()) > LONGEST_TOPIC:
        raise BadPutError(f"a topic is too long; accepted: {LONGEST_TOPIC} bytes")
    if not access.may_write(user, topic):
        raise flight.FlightUnauthorizedError(
            f"{'anonymous callers' if user is None else repr(user)} may not publish to {topic!r:.120}",
            b'{"code": "no_permission"}',
        )


def check_payloads(payloads: pa.Array, access: Access) -> None:
    """Refuses rows of which one has a larger payload than a PUBLISH may have (`limits.max_message_size`)."""
    limit = access.longest_payload()
    if limit and len(payloads) and pc.max(pc.binary_length(payloads)).as_py() > limit:
        raise BadPutError(
            f"a payload is above max_message_size; accepted: at most {limit} bytes (limits.max_message_size)"
        )


def column(batch: pa.RecordBatch, name: str, default: Any) -> pa.Array:
    """A column of a put in the type that is stored; missing values are the default."""
    kind = STORED.field(name).type
    if name not in batch.schema.names:
        return pa.repeat(pa.scalar(default, kind), batch.num_rows)
    try:
        found = batch.column(name).cast(kind)
        found.validate(full=True)
    except pa.ArrowException as error:
        raise BadPutError(f"column {name}: {error}; accepted: {kind}") from None
    if default is None:
        return found
    return found.fill_null(pa.scalar(default, kind)) if found.null_count else found
