"""The connection to the broker's Arrow Flight server.

A client is made where it is used and kept by its process: gRPC does not survive a fork, so nothing
of it may exist when Spark forks its workers.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from pyspark_vmq.errors import (
    DataLossError,
    Elsewhere,
    RecreatedError,
    ServerError,
    Unauthenticated,
    Unavailable,
    UnderWayError,
)
from pyspark_vmq.options import Connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import flight

log = logging.getLogger("pyspark_vmq")

T = TypeVar("T")

#: Seconds until the first repetition of a call that found no broker; doubles up to the second.
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0

#: Seconds after which a call that is not answered is made again, and a get taken up where it was: a node may hang, a
#: machine be gone without a word. A broker takes half a minute at most, to fetch rows from an archive, and says of a
#: batch after that time that it is still at it.
CALL: Final = 40.0

#: Nodes that a read follows, one naming the next: a partition may move meanwhile.
MOST_HOPS: Final = 4

#: How a broker says that it names no files to this process: by itself, or because it knows no such question.
NO_FILES: Final = frozenset({"not_local", "bad_ticket"})


class Client:
    """Talks to one broker as one user, to another node of its cluster when that is away and the options name some.

    All calls but `read` repeat while there is none.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client = connect(connection)
        #: Who the user is, for each call to say: none for nobody; None while there is no token.
        self.headers: list[tuple[bytes, bytes]] | None = None
        #: The nodes of a cluster that have partitions which this one does not have, as it said.
        self.owners: dict[tuple[str, int], Client] = {}
        #: Whether its files may be had; not asked again once they may not.
        self.has_files = True
        #: What questions say of a reader of some topics: a right to these is enough.
        self.narrowed = {"filter": connection.topics} if connection.topics else {}

    def options(self, seconds: float) -> "flight.FlightCallOptions":
        """What a call is made with that may take so long. Gets a token first where there is none."""
        from pyarrow import flight

        if self.headers is None:
            self.headers = self.authenticate()
        return flight.FlightCallOptions(timeout=seconds, headers=self.headers)

    def authenticate(self) -> list[tuple[bytes, bytes]]:
        """Shows user and password, if there are any, for a token that further calls carry."""
        from pyarrow import flight

        connection = self.connection
        if not connection.username:
            return []
        within = flight.FlightCallOptions(timeout=CALL)
        try:
            return [
                self.client.authenticate_basic_token(
                    connection.username, connection.password, within
                )
            ]
        except flight.FlightInternalError:
            # Why a handshake broke off, Flight says of any other call only: that fails likewise.
            with suppress(flight.FlightUnauthenticatedError):
                list(self.client.do_action(flight.Action("streams", b"{}"), within))
            raise

    def streams(self) -> dict[str, list[str]]:
        """The streams that the user may read, all of them or the topics, with their filters."""
        found: dict[str, list[str]] = self.ask("streams", self.narrowed)
        return found

    def ids(self) -> dict[str, str]:
        """The id of each of them: one that was made anew has another. A broker of before there were ids gives none."""
        try:
            found: dict[str, str] = self.ask("ids", self.narrowed)
        except ServerError as error:
            if error.code != "bad_ticket":
                raise
            return {}
        return found

    def schema(self, stream: str) -> "pa.Schema":
        """The columns that a stream has."""
        from pyarrow import flight

        command = json.dumps({"stream": stream, **self.narrowed}).encode()
        descriptor = flight.FlightDescriptor.for_command(command)
        info = self.patiently(lambda: self.client.get_flight_info(descriptor, self.options(CALL)))
        return info.schema

    def earliest(self, stream: str) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets("earliest", {"stream": stream})

    def latest(self, stream: str) -> dict[int, int]:
        """The offset behind the last durable message of each partition."""
        return self._offsets("latest", {"stream": stream})

    def at_time(self, stream: str, milliseconds: int) -> dict[int, int]:
        """The first offset of each partition that is not older than a time since 1970."""
        return self._offsets("by-timestamp", {"stream": stream, "time": milliseconds * 1000})

    def wait(self, stream: str, known: Mapping[int, int], seconds: float) -> dict[int, int]:
        """The latest offsets, as soon as one has passed what is known, or after some seconds."""
        after = {str(number): offset for number, offset in known.items()}
        return self._offsets("latest", {"stream": stream, "after": after, "wait": seconds})

    def _offsets(self, action: str, body: Mapping[str, Any]) -> dict[int, int]:
        return {
            int(number): int(offset)
            for number, offset in self.ask(action, {**body, **self.narrowed}).items()
        }

    def read(self, ticket: Mapping[str, Any]) -> "Iterator[tuple[pa.RecordBatch, dict[str, int]]]":
        """What a ticket names, batch by batch, each with `next`, the offset to read on from.

        Each partition of a cluster's stream is read at the node that has it.
        """
        yield from self._at_owner(ticket, Client.read_here)

    def file(self, ticket: Mapping[str, Any]) -> "Iterator[tuple[Client, dict[str, Any]]]":
        """Where the rows of a ticket lie, as the node says that has them: once, or never if it tells nobody."""
        yield from self._at_owner(ticket, Client.file_here)

    def _at_owner(
        self,
        ticket: Mapping[str, Any],
        call: "Callable[[Client, Mapping[str, Any]], Iterator[T]]",
    ) -> Iterator[T]:
        """Makes a call where the partition of a ticket is."""
        key = (str(ticket["stream"]), int(ticket.get("partition", 0)))
        owner = self.owners.get(key, self)
        for _ in range(MOST_HOPS):
            try:
                yield from call(owner, ticket)
            except Elsewhere as error:
                if not error.location:
                    # Its node may be coming up, and has not told yet where it serves.
                    raise Unavailable(str(error)) from None
                owner = client_of(replace(self.connection, server=error.location, others=()))
                self.owners[key] = owner
            except (Unavailable, Unauthenticated):
                # It may be another node's by now, or a token has ended there.
                if self.owners.pop(key, None) is not None:
                    _clients.pop((os.getpid(), owner.connection), None)
                raise
            else:
                return
        raise Unavailable(f"vmq: {self.connection.server}: {key} is on its way between nodes")

    def read_here(
        self, ticket: Mapping[str, Any]
    ) -> "Iterator[tuple[pa.RecordBatch, dict[str, int]]]":
        """What `read` gives, of a partition that this very node has."""
        from pyarrow import flight

        with translated(self.connection):
            reader = self.client.do_get(
                flight.Ticket(json.dumps(ticket).encode()), self.options(CALL)
            )
            for chunk in reader:
                yield chunk.data, json.loads(chunk.app_metadata.to_pybytes())

    def file_here(self, ticket: Mapping[str, Any]) -> "Iterator[tuple[Client, dict[str, Any]]]":
        """What `file` gives, of a partition that this very node has."""
        if not self.has_files:
            return
        try:
            with translated(self.connection):
                found = self._act("file", ticket)
        except ServerError as error:
            if error.code in NO_FILES:
                self.has_files = False
            raise
        yield self, found

    def stage(self, part: Mapping[str, Any], batches: "Sequence[pa.RecordBatch]") -> int:
        """Lays messages down at the broker, which publishes them when they are committed; returns which attempt did.

        Each is one of its own: what is left of a put that broke off, and arrives late, replaces nothing.
        """

        def put() -> int:
            attempt = uuid4().int >> 66
            self._put({**part, "attempt": attempt}, batches)
            return attempt

        return self.patiently(put)

    def _put(self, part: Mapping[str, Any], batches: "Sequence[pa.RecordBatch]") -> None:
        from pyarrow import flight

        descriptor = flight.FlightDescriptor.for_command(json.dumps(part).encode())
        writer, _ = self.client.do_put(descriptor, batches[0].schema, self.options(CALL))
        for batch in batches:
            writer.write_batch(batch)
        writer.close()

    def publish(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> None:
        """Has a batch published, for as long as that takes: the broker says now and then that it is at it."""
        body = {"query": query, "batch": batch, "parts": parts}
        while True:
            try:
                self.ask("publish", body)
            except UnderWayError as error:
                log.warning("%s", error)
            else:
                return

    def ask(self, action: str, body: Mapping[str, Any]) -> Any:
        """One action with a JSON body and a JSON answer, repeated while the broker is away."""
        return self.patiently(lambda: self._act(action, body))

    def _act(self, action: str, body: Mapping[str, Any]) -> Any:
        from pyarrow import flight

        asked = flight.Action(action, json.dumps(body).encode())
        results = self.client.do_action(asked, self.options(CALL))
        text = b"".join(result.body.to_pybytes() for result in results)
        return json.loads(text) if text else None

    def patiently(self, call: Callable[[], T]) -> T:
        """Makes a call that may be repeated, until the broker answers or time is up."""
        patience = Patience(self.connection.retry_timeout)
        while True:
            try:
                with translated(self.connection):
                    return call()
            except Unauthenticated as error:
                # A token ends after a while, and with the broker that gave it; what a password gets is final.
                if not self.headers:
                    raise
                self.headers = None
                patience.wait(error)
            except Unavailable as error:
                self.turn()
                patience.wait(error)

    def turn(self) -> None:
        """Asks another node from now on, if there is one."""
        was = self.connection
        if was.others:
            server, *others = was.others
            self.connection = replace(was, server=server, others=(*others, was.server))
            self.client = connect(self.connection)
            self.headers = None
            self.has_files = True


class Patience:
    """How long one thing is tried again, and with which delays.

    Args:
        seconds: after which it is given up.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.delay = FIRST_DELAY

    def wait(self, error: ServerError) -> None:
        """Waits before the next time; raises the error if there is none."""
        if time.monotonic() + self.delay > self.deadline:
            raise error
        time.sleep(self.delay)
        self.delay = min(self.delay * 2, LONGEST_DELAY)


_clients: dict[tuple[int, Connection], Client] = {}


def client_of(connection: Connection) -> Client:
    """This process' client for a connection; made when first asked for."""
    key = (os.getpid(), connection)
    client = _clients.get(key)
    if client is None:
        _clients[key] = client = Client(connection)
    return client


@contextmanager
def translated(connection: Connection) -> Iterator[None]:
    """Turns Flight's errors into ours, which name the server and what to do."""
    from pyarrow import flight

    try:
        yield
    except flight.FlightUnauthenticatedError as error:
        raise Unauthenticated(
            f"vmq: {connection.server} refuses user '{connection.username}' (options 'username' "
            f"and 'password'): {said(error)}"
        ) from None
    except flight.FlightError as error:
        code = code_of(error)
        if code == "under_way":
            raise UnderWayError(f"vmq: {connection.server}: {said(error)}") from None
        # Each answer of the broker's has a code. Without one it was away before it could answer, or ended meanwhile:
        # gRPC calls that unavailable, cancelled, internal or unknown, by the moment.
        if isinstance(error, flight.FlightUnavailableError) or not code:
            hint = "" if code else "; check the address, and option 'cafile' for grpc+tls"
            raise Unavailable(
                f"vmq: {connection.server} (option 'server'): {said(error)}{hint}"
            ) from None
        if code == "elsewhere":
            location = str(json.loads(error.extra_info)["location"])
            raise Elsewhere(f"vmq: {connection.server}: {said(error)}", location) from None
        text = f"vmq: {connection.server}: {said(error)}"
        if code == "offset_out_of_range":
            raise DataLossError(text) from None
        if code == "recreated":
            raise RecreatedError(text) from None
        refused = ServerError(text)
        refused.code = code
        raise refused from None


def code_of(error: "flight.FlightError") -> str:
    """What an error says to programs; empty if it is not of the broker's making."""
    try:
        return str(json.loads(error.extra_info)["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def said(error: Exception) -> str:
    """The broker's own words in one of Flight's errors, without what is wrapped around them."""
    text = str(error).split(" error, with message: ", maxsplit=1)[-1]
    for tail in (". Detail:", ". gRPC client debug context:", " Detail:"):
        text = text.split(tail, maxsplit=1)[0]
    return text


def _read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def connect(connection: Connection) -> "flight.FlightClient":
    """A client of the server; nothing is sent yet."""
    from pyarrow import flight

    kept: dict[str, Any] = {}
    if connection.cafile:
        kept["tls_root_certs"] = _read_file(connection.cafile)
    if connection.certfile:
        kept["cert_chain"] = _read_file(connection.certfile)
        kept["private_key"] = _read_file(connection.keyfile)
    return flight.FlightClient(connection.server, **kept)
