"""The sink of the Flight server: parts of a batch are put, and then published by one action, once."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Annotated, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct
from pyarrow import flight

from vmq.config.mappings import target_flaw
from vmq.mqtt.special import canonical, is_served
from vmq.streams.flight.access import Access
from vmq.streams.flight.put import BadPutError, check_payloads, check_topic
from vmq.streams.flight.tickets import decode, understand
from vmq.streams.staging.parts import MEMBERS, MESSAGE, Staging
from vmq.streams.staging.state import StagingError

#: Seconds that `publish` may take before the caller is told to ask again; the work goes on. Programs take a broker that
#: says nothing for 40 seconds for one that is gone.
PATIENCE: Final = 20.0

#: What the process in front of the broker sends behind the rows of a put that its caller has broken off: to whoever
#: reads it, that ends like one that is whole.
BROKEN_OFF: Final = b"broken off"

#: Topics of one put that are remembered as checked.
MOST_TOPICS: Final = 65_536

_Query = Annotated[str, Meta(min_length=1, max_length=100)]
_Number = Annotated[int, Meta(ge=0, le=1 << 62)]


class PartQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The command of a put that stages messages: which part of which batch they are."""

    query: _Query
    batch: _Number
    part: _Number
    attempt: _Number


class MemberPartQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The command of a put that stages messages which a member of a group publishes with a commit."""

    member: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    batch: _Number
    part: _Number
    attempt: _Number


class BatchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of the actions `publish` and `discard`: parts as [part, attempt]."""

    query: _Query
    batch: _Number
    parts: Annotated[list[tuple[_Number, _Number]], Meta(max_length=100_000)] = []


understand(PartQuery, MemberPartQuery, BatchQuery)


class Sink(Protocol):
    """What the broker does with staged messages."""

    @property
    def staging(self) -> Staging: ...

    def publish(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> "Future[int]":
        """Publishes a batch once; how many messages that were (0: it was published before)."""


def is_staging(descriptor: Any) -> bool:
    """Whether a put stages messages; else it appends rows to a stream."""
    command: bytes = descriptor.command or b""
    return b'"query"' in command or b'"member"' in command


def part_of(command: bytes) -> PartQuery | MemberPartQuery:
    """What such a put says.

    Raises:
        BadTicketError: it cannot be understood.
    """
    if b'"member"' in command:
        return decode(command, MemberPartQuery, "command")
    return decode(command, PartQuery, "command")


def whole(chunks: Iterable[Any], context: Any) -> Iterator[Any]:
    """What a put sends, which is all that it is to.

    Raises:
        StagingError: the caller has broken it off.
    """
    for chunk in chunks:
        said = chunk.app_metadata
        if said is not None and said.to_pybytes() == BROKEN_OFF:
            break
        yield chunk
    else:
        if not context.is_cancelled():
            return
    raise StagingError("the put was broken off")


def stage(
    sink: Sink,
    access: Access,
    user: str | None,
    wanted: PartQuery | MemberPartQuery,
    reader: Any,
) -> int:
    """Keeps the messages of a put until their batch is published; returns how many.

    Which member it is nobody else knows, so it is not asked whose.

    Raises:
        BadPutError: rows that are no messages.
        FlightUnauthorizedError: the user may not publish to one of the topics.
        StagingError: no room.
    """
    allowed: set[str] = set()
    if isinstance(wanted, MemberPartQuery):
        query = member_query(wanted.member)
    else:
        query = owned(wanted.query, user)
    part = sink.staging.part(query, wanted.batch, wanted.part, wanted.attempt)
    count = 0
    try:
        for chunk in reader:
            check(chunk.data, access, user, allowed)
            part.write(chunk.data)
            count += chunk.data.num_rows
        part.close()
    except BaseException:
        part.drop()
        raise
    return count


def check(batch: pa.RecordBatch, access: Access, user: str | None, allowed: set[str]) -> None:
    """Whether rows are messages that this user may publish."""
    if not batch.schema.equals(MESSAGE):
        raise BadPutError(
            f"the columns are {', '.join(f'{f.name} {f.type}' for f in batch.schema):.300}; accepted: "
            + ", ".join(f"{f.name} {f.type}" for f in MESSAGE)
        )
    for name in MESSAGE.names:
        if batch.column(name).null_count:
            raise BadPutError(f"column {name} has nulls; accepted: a value in every row")
    qos = batch.column("qos")
    if pc.any(pc.or_(pc.less(qos, 0), pc.greater(qos, 2))).as_py():
        raise BadPutError("a qos that is none; accepted: 0, 1, 2")
    check_payloads(batch.column("payload"), access)
    for topic in batch.column("topic").unique().to_pylist():
        if topic not in allowed:
            check_target(topic, access, user)
            if len(allowed) < MOST_TOPICS:
                allowed.add(topic)


def check_target(topic: str, access: Access, user: str | None) -> None:
    """Whether messages go there, or jobs, and the user may send them.

    Raises:
        BadPutError: it is no topic, or none that is published to.
        FlightUnauthorizedError: the user may not.
    """
    if is_served(topic):
        flaw = target_flaw(topic)
        if flaw:
            raise BadPutError(f"{topic!r:.120} is no topic to publish to: {flaw}")
        topic = canonical(topic)
    check_topic(topic, access, user)


def owned(query: str, user: str | None) -> str:
    """The name of a user's query among those of all users: nobody reaches another's.

    Users' names are of any length and signs, so a digest of theirs stands in front.
    """
    who = "anyone" if user is None else hashlib.sha256(user.encode()).hexdigest()[:24]
    return f"{who}.{query}"


def member_query(member: str) -> str:
    """The name of the query that is what a member of a group publishes; no user's is of this form."""
    return MEMBERS + member


def discard(sink: Sink, user: str | None, wanted: BatchQuery) -> None:
    """Throws the staged parts of a batch away."""
    sink.staging.discard(owned(wanted.query, user), wanted.batch)


def publish(sink: Sink, user: str | None, wanted: BatchQuery) -> int:
    """Publishes a batch; see `Sink.publish`."""
    future = sink.publish(owned(wanted.query, user), wanted.batch, wanted.parts)
    try:
        return future.result(PATIENCE)
    except FutureTimeoutError:
        raise flight.FlightUnavailableError(
            "the batch is still being published: ask again", b'{"code": "under_way"}'
        ) from None
