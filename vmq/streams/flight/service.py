"""The Arrow Flight server: streams are flights, their partitions endpoints, tickets ranges of offsets.

It runs in gRPC's threads beside the event loop and never enters it, but they share an interpreter. So in a
broker it stands behind a front (`vmq.streams.flight.front`), a process that reads for programs and asks here all else.
"""

import errno
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from vmq.config.values import is_loopback
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.extents import LOOK, Extents
from vmq.streams.far import Located, examine, locate, thinned
from vmq.streams.flight.access import (
    MIDDLEWARE,
    Access,
    Anybody,
    Authentication,
    Handshake,
    Tokens,
)
from vmq.streams.flight.answering import answers
from vmq.streams.flight.calls import CallPlaces, Slot, sent
from vmq.streams.flight.get import batches_of, typed_of
from vmq.streams.flight.groups import ACTIONS as GROUP_ACTIONS
from vmq.streams.flight.groups import ProgramGroups, group_answer
from vmq.streams.flight.put import Put
from vmq.streams.flight.sink import (
    BatchQuery,
    Sink,
    discard,
    is_staging,
    part_of,
    publish,
    stage,
    whole,
)
from vmq.streams.flight.statements import Statements, is_sql
from vmq.streams.flight.tickets import (
    BadTicketError,
    FileQuery,
    OffsetsQuery,
    Query,
    StreamsQuery,
    Ticket,
    TimeQuery,
    decode,
    encode,
)
from vmq.streams.log.checkpoint import boot_id
from vmq.streams.log.columns import Projection
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import (
    ElsewhereError,
    NotLocalError,
    RecreatedError,
    StreamError,
    UnknownStreamError,
)
from vmq.streams.log.partition import Partition
from vmq.streams.log.schema import projected
from vmq.streams.log.typed import typed_schema

log = logging.getLogger("vmq.streams")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

#: Gets and puts at a time; one more is told to try again.
MOST_CALLS: Final = 16
#: Calls that wait for rows, at a time.
MOST_WAITS: Final = 64
#: Seconds between two looks whether the server ends.
_SLICE: Final = 0.25

_ACTIONS: Final = {
    "streams": """The topic filters of each stream that the caller may read, or of which these topics. \
Body: {"filter": FILTER}, optional""",
    "ids": "The id of each of them: one made anew has another. Body: likewise",
    "publish": """Publishes staged messages once. \
Body: {"query": NAME, "batch": NUMBER, "parts": [[PART, ATTEMPT], ...]}""",
    "discard": 'Throws staged messages away. Body: {"query": NAME, "batch": NUMBER}',
    "earliest": """The first offset of each partition. Body: {"stream": NAME, "filter": FILTER}, the last optional: \
for who may read only these topics""",
    "latest": """The offset behind the last durable row of each partition. Body: {"stream": NAME, \
"after": {PARTITION: OFFSET}, "wait": SECONDS, "filter": FILTER}, the last three optional: wait until one is passed""",
    "by-timestamp": """The first offset of each partition whose timestamp is not before a time. \
Body: {"stream": NAME, "time": MICROSECONDS since 1970, "filter": FILTER}, the last optional""",
    "file": """The file that the rows of a ticket begin in, told to programs of the same machine. \
Body: a ticket, and "machine": the boot id, in 32 hexadecimal digits""",
    **GROUP_ACTIONS,
}
#: A front asks where the rows of a ticket lie; whoever is not one has no use for it.
LOCATE: Final = "locate"
#: A front has met damage at the first offset of a ticket: the broker looks itself, and tells.
EXAMINE: Final = "examine"


def location(host: str, port: int, tls: tuple[bytes, bytes] | None) -> str:
    """An address as Flight has it."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'grpc+tls' if tls else 'grpc'}://{shown}:{port}"


class StreamServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the streams of a catalog as soon as it is made; `close` ends it.

    Args:
        catalog: the streams.
        host: the address to listen on.
        port: the port; 0 = any free one, see `port`.
        access: who may do what; None = anybody everything, accepted on loopback only.
        tls: certificate and key (PEM); None = no TLS.
        most_calls: gets and puts at a time.
        sink: publishes staged messages; None = there is no broker.
        groups: takes programs as members of consumer groups; None = there is no broker.
        local_reads: programs of this machine may be told which files to read.
        socket: the path of a Unix socket to listen on instead, for a front (`vmq.streams.flight.front`).
        statements: who answers Flight SQL; None = nobody does.

    Raises:
        StreamError: the address is not on loopback, and there is no `access`.
        OSError: the address cannot be had.
    """

    def __init__(
        self,
        catalog: Catalog,
        host: str = "127.0.0.1",
        port: int = 0,
        access: Access | None = None,
        tls: tuple[bytes, bytes] | None = None,
        most_calls: int = MOST_CALLS,
        sink: Sink | None = None,
        local_reads: bool = True,
        socket: str = "",
        groups: ProgramGroups | None = None,
        statements: Statements | None = None,
    ) -> None:
        if access is None and not is_loopback(host):
            raise StreamError(
                f"refused: other machines could read every stream at {host!r}; accepted without "
                "access rules: an address on loopback (127.0.0.1, ::1, localhost)"
            )
        self.catalog = catalog
        self.sink = sink
        self.groups = groups
        self.statements = statements
        self.access: Access = access or Anybody()
        self.extents = Extents(catalog)
        self.calls = CallPlaces(most_calls)
        self.waits = CallPlaces(MOST_WAITS)
        self.stopping = threading.Event()
        machine = boot_id()
        #: What callers of `file` have to know; empty = nobody does.
        self.machine = machine.hex() if local_reads and any(machine) else ""
        self.is_inner = bool(socket)
        try:
            super().__init__(
                f"grpc+unix://{socket}" if socket else location(host, port, tls),
                auth_handler=Handshake(),
                tls_certificates=[tls] if tls else None,
                middleware={MIDDLEWARE: Authentication(self.access, Tokens())},
            )
        except pa.ArrowException as error:
            # gRPC keeps the reason to itself.
            text = "cannot listen there: the port is in use, or the address not of this machine"
            raise OSError(errno.EADDRINUSE, text) from error

    def close(self, patience: float = 5.0) -> None:
        """Ends the server; clients that take nothing more are given up after `patience` seconds.

        Blocks: not for the event loop.
        """
        self.stopping.set()
        # Without a deadline of its own it would wait for a client that never reads on.
        ending = threading.Thread(target=self.shutdown, name="vmq-flight-end", daemon=True)
        ending.start()
        ending.join(patience)

    # What Flight calls

    @answers
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The streams that the caller may read; `criteria`: how their names begin."""
        user = user_of(context)
        streams = [
            each
            for name, each in sorted(self.catalog.streams.items())
            if name.encode().startswith(criteria) and self.access.sees(user, each.options.filters)
        ]
        return (self.info(each, Query(stream=each.name)) for each in streams)

    @answers
    def get_flight_info(self, context: Any, descriptor: Any) -> flight.FlightInfo:
        """One stream, with an endpoint for each partition; or what a statement of Flight SQL brings."""
        if is_sql(descriptor.command):
            return self.sql().info(user_of(context), descriptor)
        query = query_of(descriptor)
        stream = self.readable(context, query.stream, query.filter)
        return self.info(stream, query)

    @answers
    def get_schema(self, context: Any, descriptor: Any) -> flight.SchemaResult:
        """The columns of a stream, or of what a statement brings."""
        if is_sql(descriptor.command):
            return flight.SchemaResult(self.sql().columns(user_of(context), descriptor))
        query = query_of(descriptor)
        stream = self.readable(context, query.stream, query.filter)
        return flight.SchemaResult(self.info(stream, query).schema)

    @answers
    def do_get(self, context: Any, ticket: Any) -> flight.FlightDataStream:
        """What a ticket asks for; each batch comes with {"next": OFFSET}, where to read on."""
        if is_sql(ticket.ticket):
            return flight.RecordBatchStream(self.sql().rows(user_of(context), ticket.ticket))
        wanted = decode(ticket.ticket, Ticket, "ticket")
        partition, start = self.begin(context, wanted)
        typed = typed_of(wanted, partition.options.schema)
        reader = LogReader(
            partition, wanted.columns, wanted.filter, typed=typed, where=wanted.where
        )
        return sent(batches_of(reader, wanted, start), Slot(self.calls, "reads"), self.stopping)

    @answers
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Appends rows to a stream; each batch is answered with {"rows": N} once it is durable."""
        if is_sql(descriptor.command):
            raise BadTicketError(
                "streams are read only by SQL, and its statements have no parameters"
            )
        if is_staging(descriptor):
            part = part_of(descriptor.command)
            slot = Slot(self.calls, "writes")
            try:
                rows = whole(slot.each(reader), context)
                stage(self.sink_of(), self.access, user_of(context), part, rows)
            finally:
                slot.free()
            return
        query = query_of(descriptor)
        stream = self.catalog.get(query.stream)
        slot = Slot(self.calls, "writes")
        try:
            put = Put(
                stream,
                self.catalog.commits.writer,
                self.access,
                user_of(context),
                self.catalog.places,
            )
            for chunk in slot.each(reader):
                put.append(chunk.data)
                writer.write(pa.py_buffer(json.dumps({"rows": chunk.data.num_rows}).encode()))
        finally:
            slot.free()

    @answers
    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Offsets by partition, as JSON."""
        body = action.body.to_pybytes() if action.body is not None else b""
        if action.type in {"earliest", "latest"}:
            query = decode(body, OffsetsQuery, f"body of {action.type}")
            stream = self.readable(context, query.stream, query.filter)
            if action.type == "latest" and query.after and query.wait:
                self.wait(stream, query.after, query.wait)
            extents = self.extents.of_all(stream)
            offsets = [each.earliest if action.type == "earliest" else each.end for each in extents]
        elif action.type == "by-timestamp":
            asked = decode(body, TimeQuery, "body of by-timestamp")
            stream = self.readable(context, asked.stream, asked.filter)
            offsets = self.extents.at_time(stream, asked.time)
        elif action.type in {"streams", "ids"}:
            topics = decode(body or b"{}", StreamsQuery, f"body of {action.type}").filter
            user, wants_ids = user_of(context), action.type == "ids"
            readable = {
                name: each.stream_id if wants_ids else each.options.filters
                for name, each in list(self.catalog.streams.items())
                if self.access.sees(user, each.filters_of(topics))
            }
            return [json.dumps(readable).encode()]
        elif action.type == LOCATE and self.is_inner:
            partition, start = self.begin(context, decode(body, Ticket, "ticket"))
            found = locate(partition, start)
            found = msgspec.structs.replace(found, schema=partition.options.schema)
            return [msgspec.json.encode(found)]
        elif action.type == EXAMINE and self.is_inner:
            partition, start = self.begin(context, decode(body, Ticket, "ticket"))
            examine(partition, start)
            return []
        elif action.type == "file":
            spots = self.file(context, decode(body, FileQuery, "body of file"))
            return [msgspec.json.encode(spots)]
        elif action.type in GROUP_ACTIONS:
            if self.groups is None:
                raise StreamError("this server has no groups: no broker is behind it")
            user = user_of(context)
            who = self.groups, self.access, user
            answer = group_answer(*who, action.type, body, self.stopping)
            return [msgspec.json.encode(answer)]
        elif action.type in {"publish", "discard"}:
            return [json.dumps(self.settle(user_of(context), action.type, body)).encode()]
        else:
            user, sql = user_of(context), self.statements
            acted = None if sql is None else sql.act(user, action.type, body)
            if acted is not None:
                return acted
            known = ", ".join(name for name, _ in self.list_actions(context))
            raise BadTicketError(f"there is no action {action.type!r:.80}; accepted: {known}")
        return [json.dumps({str(number): each for number, each in enumerate(offsets)}).encode()]

    def list_actions(self, _context: Any) -> list[tuple[str, str]]:
        return [*_ACTIONS.items(), *(self.statements.actions() if self.statements else ())]

    # How

    def sql(self) -> Statements:
        """Who answers Flight SQL."""
        if self.statements is None:
            raise StreamError("this server answers no SQL: no broker is behind it")
        return self.statements

    def sink_of(self) -> Sink:
        """What publishes; a server without one only serves streams."""
        if self.sink is None:
            raise StreamError("this server publishes nothing: no broker is behind it")
        return self.sink

    def settle(self, user: str | None, action: str, body: bytes) -> dict[str, int]:
        """Publishes a staged batch of a user, or throws it away."""
        wanted = decode(body, BatchQuery, f"body of {action}")
        if action == "publish":
            return {"published": publish(self.sink_of(), user, wanted)}
        discard(self.sink_of(), user, wanted)
        return {}

    def readable(self, context: Any, name: str, topics: str | None = None) -> Stream:
        """A stream that the caller may read, or those of its rows that a filter of topics names.

        Whoever may not is not told whether it exists.
        """
        user = user_of(context)
        stream = self.catalog.streams.get(name)
        if stream is None and self.access.may_read(user, ["#"]):
            raise UnknownStreamError(name, list(self.catalog.streams))
        if stream is None or not self.access.may_read(user, stream.filters_of(topics)):
            raise flight.FlightUnauthorizedError(
                f"{'anonymous callers' if user is None else repr(user)} may not read stream {name!r}, if there is one: "
                "that takes permission to subscribe to each of its filters, or to the filter that is asked for",
                b'{"code": "no_permission"}',
            )
        return stream

    def begin(self, context: Any, wanted: Ticket) -> tuple[Partition, int]:
        """The partition of a ticket and the offset where it begins; waits for rows if it says so."""
        # Who reads a file itself reads all that is in it.
        topics = None if isinstance(wanted, FileQuery) else wanted.filter
        stream = self.readable(context, wanted.stream, topics)
        if wanted.stream_id not in {"", stream.stream_id} and stream.stream_id:
            raise RecreatedError(wanted.stream)
        partition = stream.partition(wanted.partition)
        self.refuse_elsewhere(wanted.stream, wanted.partition)
        start = wanted.start
        if not isinstance(start, int):
            start = partition.earliest if start == "earliest" else partition.end
        if start == partition.end and wanted.wait:
            self.wait(stream, {wanted.partition: start}, wanted.wait)
        return partition, start

    def file(self, context: Any, asked: FileQuery) -> Located:
        """Where the rows of a ticket lie, for a caller that opens the files itself.

        It has to run on this machine, and the files' permissions have the last word.
        """
        partition, start = self.begin(context, asked)
        if asked.machine != self.machine:
            raise NotLocalError("files are read here by programs of this machine, if at all")
        projection = Projection(asked.columns, asked.filter)  # refuses what a get would refuse
        until = partition.end if asked.end is None else asked.end
        slot = Slot(self.calls, "reads")
        try:
            return thinned(locate(partition, start, until), projection, until)
        finally:
            slot.free()

    def info(self, stream: Stream, query: Query) -> flight.FlightInfo:
        """What is to be known of a stream: a ticket for all that each partition has now."""
        # Refuses what a get would refuse.
        Projection(query.columns, query.filter, stream.options.typed, query.where)
        endpoints = []
        rows = size = 0
        for number, found in self.extents.known(stream).items():
            ticket = Ticket(
                stream=query.stream,
                stream_id=stream.stream_id,
                columns=query.columns,
                filter=query.filter,
                where=query.where,
                limit=query.limit,
                partition=number,
                start="earliest" if found is None else found.earliest,
                end=None if found is None else found.end,
            )
            if found is None or rows < 0:
                rows = size = -1
            else:
                rows += found.messages
                size += found.size
            endpoints.append(flight.FlightEndpoint(encode(ticket), self.locations(stream, number)))
        schema = projected(query.columns, typed_schema(stream.options.typed))
        path = flight.FlightDescriptor.for_path(stream.name)
        return flight.FlightInfo(schema, path, endpoints, rows, size)

    def locations(self, stream: Stream, number: int) -> list[str]:
        """Where a partition is to be read: none, which is this server, or the owner's."""
        places = self.catalog.places
        owner = None if places is None else places.owner(stream.name, number)
        location = "" if places is None or owner is None else places.location(owner)
        return [location] if location else []

    def refuse_elsewhere(self, stream: str, number: int) -> None:
        """Only the owner serves a partition.

        Raises:
            ElsewhereError: this is another node.
        """
        places = self.catalog.places
        owner = None if places is None else places.owner(stream, number)
        if places is not None and owner is not None:
            raise ElsewhereError(stream, number, owner, places.location(owner))

    def wait(self, stream: Stream, after: dict[int, int], seconds: float) -> None:
        """Waits until one of some partitions ends behind its offset, or time is up."""
        places = self.catalog.places
        ours = {
            number: offset
            for number, offset in after.items()
            if places is None or places.owner(stream.name, number) is None
        }
        theirs = {number: offset for number, offset in after.items() if number not in ours}
        pairs = [(stream.partition(number), offset) for number, offset in ours.items()]
        slot = Slot(self.waits, "waiting calls")
        until = time.monotonic() + seconds
        longest = LOOK if theirs else _SLICE
        try:
            while not self.stopping.is_set():
                if theirs and self.extents.have_passed(stream, theirs):
                    return
                left = until - time.monotonic()
                if left <= 0 or stream.wait(pairs, min(left, longest)):
                    return
        finally:
            slot.free()


def user_of(context: Any) -> str | None:
    """Who calls."""
    user: str | None = context.get_middleware(MIDDLEWARE).user
    return user


def query_of(descriptor: Any) -> Query:
    """What a descriptor names: a path of the stream's name, or a command.

    Raises:
        BadTicketError: neither.
    """
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        path = [each.decode(errors="replace") for each in descriptor.path]
        if len(path) != 1:
            raise BadTicketError(f"a path of {len(path)} parts; accepted: the name of a stream")
        return Query(stream=path[0])
    return decode(descriptor.command or b"", Query, "command")
