"""The connection to the broker's Arrow Flight server.

A client is made where it is used and kept by its process: gRPC does not survive a fork, so nothing
of it may exist when Spark forks its workers.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark_vmq.errors import DataLossError, ServerError
from pyspark_vmq.offsets import Offsets
from pyspark_vmq.options import Connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import flight

T = TypeVar("T")

#: Seconds until the first repetition of a call that found no broker; doubles up to the second.
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0


class Client:
    """Talks to one broker as one user. All calls but `read` repeat while the broker is away."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client: flight.FlightClient
        self.call_options: flight.FlightCallOptions
        self.client, self.call_options = self.patiently(lambda: connect(connection))

    def streams_of(self, topic: str) -> list[str]:
        """The streams that keep every message which a topic filter matches."""
        found = self.ask("find", {"topic": topic})
        return [str(name) for name in found]

    def offsets(self, stream: str, at: str | int) -> dict[int, int]:
        """The offset of each partition at "earliest", "latest" or a time in milliseconds."""
        found = self.ask("offsets", {"stream": stream, "at": at})
        return {int(number): int(offset) for number, offset in found.items()}

    def wait(self, known: Offsets, seconds: float) -> None:
        """Returns when a stream has more than is known, or after some seconds."""
        self.ask("wait", {"offsets": known, "seconds": seconds})

    def read(self, ticket: Mapping[str, Any]) -> "Iterator[pa.RecordBatch]":
        """The messages that a ticket names, as record batches."""
        from pyarrow import flight

        with translated(self.connection):
            reader = self.client.do_get(
                flight.Ticket(json.dumps(ticket).encode()), self.call_options
            )
            for chunk in reader:
                if chunk.data is not None and chunk.data.num_rows:
                    yield chunk.data

    def stage(self, part: Mapping[str, Any], batches: "Iterable[pa.RecordBatch]") -> None:
        """Lays messages down at the broker, which publishes them when they are committed."""
        from pyarrow import flight

        with translated(self.connection):
            writer = None
            for batch in batches:
                if writer is None:
                    descriptor = flight.FlightDescriptor.for_command(json.dumps(part).encode())
                    writer, _ = self.client.do_put(descriptor, batch.schema, self.call_options)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()

    def ask(self, action: str, body: Mapping[str, Any]) -> Any:
        """One action with a JSON body and a JSON answer, repeated while the broker is away."""
        from pyarrow import flight

        def call() -> Any:
            results = self.client.do_action(
                flight.Action(action, json.dumps(body).encode()), self.call_options
            )
            text = b"".join(result.body.to_pybytes() for result in results)
            return json.loads(text) if text else None

        return self.patiently(call)

    def patiently(self, call: Callable[[], T]) -> T:
        """Makes a call that may be repeated, until the broker answers or time is up."""
        from pyarrow import flight

        deadline = time.monotonic() + self.connection.retry_timeout
        delay = FIRST_DELAY
        while True:
            with translated(self.connection):
                try:
                    return call()
                except flight.FlightUnavailableError:
                    if time.monotonic() + delay > deadline:
                        raise
            time.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)


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
    import pyarrow as pa
    from pyarrow import flight

    try:
        yield
    except flight.FlightUnauthenticatedError as error:
        raise ServerError(
            f"vmq: {connection.server} does not know the user '{connection.username}', or the "
            f"password is wrong (options 'username' and 'password'): {said(error)}"
        ) from None
    except flight.FlightUnauthorizedError as error:
        raise ServerError(
            f"vmq: {connection.server}: user '{connection.username}' may not: {said(error)}"
        ) from None
    except pa.ArrowKeyError as error:
        raise ServerError(f"vmq: {connection.server}: {said(error)}") from None
    except pa.ArrowIndexError as error:
        raise DataLossError(f"vmq: {connection.server}: {said(error)}") from None
    except pa.ArrowInvalid as error:
        raise ServerError(f"vmq: {connection.server}: {said(error)}") from None


def said(error: Exception) -> str:
    """The broker's own words in one of Flight's errors, without what gRPC wraps around them."""
    return str(error).split(". Detail:")[0].split(". gRPC client debug context:")[0]


def _read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def connect(connection: Connection) -> "tuple[flight.FlightClient, flight.FlightCallOptions]":
    """A connected client, and what each of its calls carries."""
    from pyarrow import flight

    kept: dict[str, Any] = {}
    if connection.cafile:
        kept["tls_root_certs"] = _read_file(connection.cafile)
    if connection.certfile:
        kept["cert_chain"] = _read_file(connection.certfile)
        kept["private_key"] = _read_file(connection.keyfile)
    client = flight.FlightClient(connection.server, **kept)
    headers: list[tuple[bytes, bytes]] = []
    if connection.username:
        headers.append(client.authenticate_basic_token(connection.username, connection.password))
    return client, flight.FlightCallOptions(headers=headers)
