"""The connection of a program to the Flight listeners of a broker, or of the nodes of a cluster."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import flight

from vmq.streams.client.errors import BrokerAwayError, GroupError

T = TypeVar("T")

#: Seconds between two tries, at first and at most.
_FIRST: Final = 0.05
_LONGEST: Final = 1.0
#: Seconds that one call may take; what waits for rows waits for less.
_CALL: Final = 40.0
#: Bytes after which rows of one get are enough.
_ENOUGH: Final = 16 << 20
#: Rows of a batch that is staged.
_STAGED_ROWS: Final = 16_384


class Server(NamedTuple):
    """Where to ask, and as whom."""

    urls: Sequence[str]
    username: str = ""
    password: str = ""
    #: Files (PEM): who signed the broker's certificate; and an own certificate with its key.
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    #: Seconds for which a broker that cannot be reached is tried again.
    patience: float = 60.0


class FlightConnection:
    """Talks to the first of some nodes that answers. May be used by several threads.

    Args:
        server: the nodes.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.patience = server.patience
        self._lock = threading.Lock()
        self._at = 0
        self._client: flight.FlightClient | None = None
        self._options: flight.FlightCallOptions | None = None
        #: The nodes that have partitions, by their addresses.
        self._others: dict[str, FlightConnection] = {}
        self._owners: dict[int, str] = {}

    def ask(
        self, action: str, body: Mapping[str, Any], patience: float | None = None
    ) -> dict[str, Any]:
        """The answer to an action, which may be repeated until some seconds are over.

        Raises:
            BrokerAwayError: nobody answers.
            GroupError: the broker refuses.
        """
        sent = flight.Action(action, json.dumps(body).encode())

        def call(client: flight.FlightClient, options: flight.FlightCallOptions) -> dict[str, Any]:
            (result,) = client.do_action(sent, options)
            found: dict[str, Any] = json.loads(result.body.to_pybytes())
            return found

        return self.patiently(call, self.server.patience if patience is None else patience)

    def stage(self, command: Mapping[str, Any], messages: pa.Table) -> None:
        """Lays messages down at the broker, which publishes them when it is told to.

        Raises:
            BrokerAwayError: it does not answer.
            GroupError: it refuses.
        """
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())

        def call(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
            writer, _ = client.do_put(descriptor, messages.schema, options)
            with writer:
                writer.write_table(messages, _STAGED_ROWS)

        self.patiently(call, 0.0)

    def read(self, ticket: Mapping[str, Any]) -> tuple[pa.Table, int]:
        """Rows of a ticket, some MiB at most, and the offset behind them; from the node that has the partition.

        Raises:
            BrokerAwayError: it does not answer.
            GroupError: the broker refuses.
        """
        partition: int = ticket["partition"]
        place = self._owners.get(partition)
        other = self if place is None else self._other(place)
        try:
            return other.patiently(lambda client, options: _rows(client, options, ticket), 0.0)
        except BrokerAwayError:
            self._owners.pop(partition, None)
            raise
        except GroupError as error:
            if error.code != "elsewhere":
                raise
            self._owners[partition] = str(error.extra.get("location", ""))
            if not self._owners[partition]:
                del self._owners[partition]
            raise BrokerAwayError(str(error), error.code) from None

    def _other(self, url: str) -> "FlightConnection":
        found = self._others.get(url)
        if found is None:
            found = self._others[url] = FlightConnection(self.server._replace(urls=[url]))
        return found

    def patiently(
        self,
        call: Callable[[flight.FlightClient, flight.FlightCallOptions], T],
        patience: float,
    ) -> T:
        """Makes a call until it is answered."""
        until = time.monotonic() + patience
        delay = _FIRST
        while True:
            options = None
            try:
                client, options = self._connected()
                return call(client, options)
            except flight.FlightError as error:
                found = translated(error, self.server.urls[self._at])
                is_token = isinstance(error, flight.FlightUnauthenticatedError) and options
                if not is_token and not isinstance(found, BrokerAwayError):
                    raise found from None
                self._forget(options, go_on=not is_token)
                if time.monotonic() + delay > until:
                    raise found from None
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST)

    def close(self) -> None:
        """Ends it."""
        with self._lock:
            client, self._client = self._client, None
            others, self._others = self._others, {}
        if client is not None:
            client.close()
        for each in others.values():
            each.close()

    def _connected(self) -> tuple[flight.FlightClient, flight.FlightCallOptions]:
        with self._lock:
            if self._client is None or self._options is None:
                server = self.server
                client = flight.FlightClient(server.urls[self._at], **_files(server))
                headers = []
                if server.username:
                    name = server.username, server.password
                    headers = [client.authenticate_basic_token(*name)]
                self._client = client
                self._options = flight.FlightCallOptions(timeout=_CALL, headers=headers)
            return self._client, self._options

    def _forget(self, options: flight.FlightCallOptions | None, *, go_on: bool) -> None:
        """Connects anew the next time, unless another thread has done so; to the next node, perhaps."""
        with self._lock:
            if options is None or options is self._options:
                self._client = self._options = None
                if go_on:
                    self._at = (self._at + 1) % len(self.server.urls)


def _files(server: Server) -> dict[str, bytes]:
    named = {
        "tls_root_certs": server.cafile,
        "cert_chain": server.certfile,
        "private_key": server.keyfile,
    }
    return {name: Path(path).read_bytes() for name, path in named.items() if path}


def _rows(
    client: flight.FlightClient, options: flight.FlightCallOptions, ticket: Mapping[str, Any]
) -> tuple[pa.Table, int]:
    reader = client.do_get(flight.Ticket(json.dumps(ticket).encode()), options)
    found: list[pa.RecordBatch] = []
    size, following = 0, int(ticket["start"])
    try:
        for chunk in reader:
            if chunk.data.num_rows:
                found.append(chunk.data)
            size += chunk.data.nbytes
            following = json.loads(chunk.app_metadata.to_pybytes())["next"]
            if size >= _ENOUGH:
                reader.cancel()
                break
    except flight.FlightError:
        if not found:
            raise  # else whoever reads on behind these rows meets it
    return pa.Table.from_batches(found, reader.schema), following


def translated(error: flight.FlightError, url: str) -> GroupError:
    """An error of Flight's in the broker's words."""
    text = str(error)
    for tail in (". Detail:", ". gRPC client debug context:", " Detail:"):
        text = text.split(tail, maxsplit=1)[0]
    try:
        extra = dict(json.loads(error.extra_info))
    except (ValueError, TypeError):
        extra = {}
    code = str(extra.get("code", ""))
    if isinstance(error, flight.FlightUnauthenticatedError):
        return GroupError(f"{url}: {text}", "unauthenticated")
    # Each answer of the broker's has a code. Without one it was away, whatever gRPC calls that.
    if isinstance(error, flight.FlightUnavailableError) or not code:
        return BrokerAwayError(f"{url}: {text}", code)
    return GroupError(f"{url}: {text}", code, extra)
