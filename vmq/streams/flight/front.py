"""The process that programs talk to by Flight: it reads the streams' files, and asks the broker all else.

A batch that is read costs no time of the broker's interpreter, in which the event loop of MQTT runs, and the
process ranks below the broker with the scheduler. It decides nothing. Every call goes on, with the caller's
credentials, to the server in the broker (`vmq.streams.flight.service`), by a Unix socket; a get asks
there where its rows lie, once a segment, and reads them here.

The broker starts it, says what to do in one line of JSON on its standard input (`Orders`), and hears
lines of JSON from its standard output (`News`). Where the input ends the broker is gone, or wants the end.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from vmq.streams.far import LOCATED_FORM, FarCursor, FarLog, Located
from vmq.streams.flight.access import MIDDLEWARE, Handshake, basic_credentials
from vmq.streams.flight.answering import answers
from vmq.streams.flight.calls import CallPlaces, Slot, sent
from vmq.streams.flight.get import batches_of, typed_of
from vmq.streams.flight.service import (
    EXAMINE,
    LOCATE,
    MOST_CALLS,
    location,
)
from vmq.streams.flight.sink import BROKEN_OFF, is_staging
from vmq.streams.flight.statements import is_sql
from vmq.streams.flight.tickets import BadTicketError, Ticket, decode, encode
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import DamagedError

log = logging.getLogger("vmq.streams")

#: Steps behind the broker: it gets about ten times the share where both want the same processor.
NICENESS: Final = 10
#: Seconds that calls under way have to end.
PATIENCE: Final = 3.0


class Orders(msgspec.Struct, frozen=True):
    """What the broker says: where it is to be asked, where to listen, and certificate and key (PEM)."""

    inner: str
    host: str
    port: int
    tls: tuple[bytes, bytes] | None = None


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process says: the port that it serves, why it cannot, or a line for the log."""

    port: int = 0
    failure: str = ""
    level: int = 0
    text: str = ""


class FrontCaller(flight.ServerMiddleware):  # type: ignore[misc]
    """The credentials of one call; a handshake's answer carries the token."""

    def __init__(self, header: str | None, token: dict[str, str]) -> None:
        headers = [] if header is None else [(b"authorization", header.encode())]
        self.options = flight.FlightCallOptions(headers=headers)
        self.token = token

    def sending_headers(self) -> dict[str, str]:
        return self.token


class Credentials(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Takes credentials along to the broker, which judges them with each call."""

    def __init__(self, client: flight.FlightClient) -> None:
        self.client = client

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> FrontCaller:
        """Called for every call."""
        given = next((each for key, each in headers.items() if key.lower() == "authorization"), [])
        header = str(given[0]) if given else None
        token: dict[str, str] = {}
        if header is not None and info.method == flight.FlightMethod.HANDSHAKE:
            token = self.token(header)
        return FrontCaller(header, token)

    def token(self, header: str) -> dict[str, str]:
        """The header that stands for user and password from now on."""
        scheme, _, value = header.partition(" ")
        if scheme.lower() != "basic":
            return {}
        with passing_on():
            name, token = self.client.authenticate_basic_token(*basic_credentials(value))
        return {name.decode(): token.decode()}


class Front(flight.FlightServerBase):  # type: ignore[misc]
    """Serves what a broker has as soon as it is made; `close` ends it.

    Raises:
        pa.ArrowException: the address cannot be had.
    """

    def __init__(self, orders: Orders, most_calls: int = MOST_CALLS) -> None:
        self.client = flight.connect(f"grpc+unix://{orders.inner}")
        self.calls = CallPlaces(most_calls)
        self.stopping = threading.Event()
        super().__init__(
            location(orders.host, orders.port, orders.tls),
            auth_handler=Handshake(),
            tls_certificates=[orders.tls] if orders.tls else None,
            middleware={MIDDLEWARE: Credentials(self.client)},
        )

    def close(self) -> None:
        """Ends the server; calls under way are given up after a moment."""
        self.stopping.set()
        ending = threading.Thread(target=self.shutdown, daemon=True)
        ending.start()
        ending.join(PATIENCE)

    @answers
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        with passing_on():
            return iter(list(self.client.list_flights(criteria, options_of(context))))

    @answers
    def get_flight_info(self, context: Any, descriptor: Any) -> flight.FlightInfo:
        with passing_on():
            return self.client.get_flight_info(descriptor, options_of(context))

    @answers
    def get_schema(self, context: Any, descriptor: Any) -> flight.SchemaResult:
        with passing_on():
            return self.client.get_schema(descriptor, options_of(context))

    @answers
    def do_action(self, context: Any, action: Any) -> list[flight.Result]:
        if action.type in {LOCATE, EXAMINE}:
            # Where files lie is nobody's business.
            raise BadTicketError(
                f"there is no action {action.type!r}; accepted: those of list_actions"
            )
        with passing_on():
            return list(self.client.do_action(action, options_of(context)))

    @answers
    def list_actions(self, context: Any) -> list[Any]:
        with passing_on():
            return list(self.client.list_actions(options_of(context)))

    @answers
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Rows on their way to the broker; its answer to each batch goes back."""
        answered = not is_staging(descriptor)
        out, back = self.client.do_put(descriptor, reader.schema, options_of(context))
        with passing_on(), out:  # whose end raises what the broker has against it
            for chunk in reader:
                out.write_batch(chunk.data)
                if answered:
                    answer = back.read()
                    if answer is None:
                        return
                    writer.write(answer)
            if not answered and context.is_cancelled():
                out.write_metadata(BROKEN_OFF)

    @answers
    def do_get(self, context: Any, ticket: Any) -> flight.FlightDataStream:
        """What a ticket asks for, read here; what a statement of Flight SQL brings comes from the broker."""
        if is_sql(ticket.ticket):
            with passing_on():
                return flight.RecordBatchStream(
                    self.client.do_get(ticket, options_of(context)).to_reader()
                )
        wanted = decode(ticket.ticket, Ticket, "ticket")
        options = options_of(context)
        found = self.locate(wanted, options)

        def ask(offset: int) -> Located:
            further = Ticket(
                stream=wanted.stream,
                stream_id=wanted.stream_id,
                partition=wanted.partition,
                start=offset,
                filter=wanted.filter,
            )
            return self.locate(further, options)

        def look(damage: DamagedError) -> None:
            hurt = Ticket(
                stream=wanted.stream,
                partition=wanted.partition,
                start=damage.offset,
                filter=wanted.filter,
            )
            # It answers with what it finds, which our reader says already.
            with suppress(flight.FlightError):
                list(self.client.do_action(flight.Action(EXAMINE, encode(hurt)), options))

        partition = FarLog(wanted.stream, wanted.partition, found, ask, look)
        typed = typed_of(wanted, found.schema)
        reader = LogReader(partition, wanted.columns, wanted.filter, FarCursor, typed, wanted.where)
        return sent(
            batches_of(reader, wanted, found.start), Slot(self.calls, "reads"), self.stopping
        )

    def locate(self, wanted: Ticket, options: Any) -> Located:
        """Where the rows of a ticket begin; the broker looks whether the caller may read them, each time."""
        with passing_on():
            (answer,) = self.client.do_action(flight.Action(LOCATE, encode(wanted)), options)
        return LOCATED_FORM.decode(answer.body.to_pybytes())


def options_of(context: Any) -> flight.FlightCallOptions:
    """What a call carries on to the broker."""
    return context.get_middleware(MIDDLEWARE).options


@contextmanager
def passing_on() -> Iterator[None]:
    """Raises what the broker's server said, without what gRPC wraps around it."""
    try:
        yield
    except flight.FlightError as error:
        text = str(error).partition(". gRPC client debug context:")[0]
        said, mark, _ = text.rpartition(". Detail: ")
        raise type(error)(said if mark else text, error.extra_info) from None


class ToBroker(logging.Handler):
    """Log lines, as news."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(News(level=record.levelno, text=self.format(record)))


def tell(news: News) -> None:
    """Says something to the broker; if that is gone, nobody listens."""
    try:
        os.write(sys.stdout.fileno(), msgspec.json.encode(news) + b"\n")
    except OSError:
        pass


def step_back() -> None:
    """Has the broker go first: what is read can wait a little, a message on its way should not.

    The idle policy (SCHED_IDLE) would have others go first without any delay, but leaves readers three thousandths
    of a processor that somebody else is busy on.
    """
    with suppress(OSError, AttributeError):  # a container may forbid it, another system lack it
        os.nice(NICENESS)
        # A batch that becomes ready interrupts nobody.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """The process."""
    # Whoever stops the broker, or a terminal's Ctrl-C, tells the whole group: the broker says when.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    step_back()
    logging.basicConfig(handlers=[ToBroker()], format="%(message)s")
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    try:
        front = Front(orders)
    except pa.ArrowException:
        # gRPC keeps the reason to itself.
        tell(News(failure="the port is in use, or the address not of this machine"))
        return
    tell(News(port=front.port))
    sys.stdin.buffer.read()
    front.close()
    # Threads of gRPC that wait for a client may not keep it.
    os._exit(0)


if __name__ == "__main__":
    main()
