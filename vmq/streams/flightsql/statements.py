"""What a Flight server answers to Flight SQL."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from vmq.config.columns import read_columns
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.flight.access import Access
from vmq.streams.flight.statements import Statements
from vmq.streams.flight.tickets import BadTicketError
from vmq.streams.flightsql.messages import BadMessageError, make, parse
from vmq.streams.flightsql.metadata import COLUMNS, StreamTableInfo, answer, columns_of
from vmq.streams.log.schema import projected
from vmq.streams.log.typed import typed_schema
from vmq.streams.sql.running import SqlRunner, sources_of

_CREATE: Final = "CreatePreparedStatement"
_CLOSE: Final = "ClosePreparedStatement"


class FlightSql(Statements):
    """Answers by the streams of a catalog, as far as the caller may read them. Calls block.

    Args:
        catalog: the streams.
        access: who may read what.
        runner: runs the statements.
    """

    def __init__(self, catalog: Catalog, access: Access, runner: SqlRunner) -> None:
        self._catalog = catalog
        self._access = access
        self._runner = runner

    def info(self, user: str | None, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Where the rows of a question or a statement are to be had: here, by a ticket that says it all.

        Raises:
            BadTicketError: it is no message of Flight SQL, or one that has no meaning here.
            StreamError: the statement cannot be answered.
        """
        kind, question = _read(descriptor.command)
        schema = self._columns(user, kind, question)
        ticket = descriptor.command
        if kind not in COLUMNS:
            ticket = make("TicketStatementQuery", statement_handle=_statement(kind, question))
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def columns(self, user: str | None, descriptor: flight.FlightDescriptor) -> pa.Schema:
        """The columns of an answer."""
        return self._columns(user, *_read(descriptor.command))

    def rows(self, user: str | None, ticket: bytes) -> pa.Table:
        """The answer."""
        kind, question = _read(ticket)
        if kind in COLUMNS:
            return answer(kind, question, self._tables(user))
        return self._run(user, _statement(kind, question))

    def act(self, user: str | None, action: str, body: bytes) -> list[bytes] | None:
        """Prepares a statement, or forgets one; None: it is no action of Flight SQL."""
        if action == _CREATE:
            kind, question = _read(body)
            if kind != "ActionCreatePreparedStatementRequest":
                raise BadTicketError(f"{action} is not asked by {kind}")
            query = question.query.encode()
            schema = self._run(user, query, describe=True).schema
            made = make(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=query,
                dataset_schema=schema.serialize().to_pybytes(),
                parameter_schema=pa.schema([]).serialize().to_pybytes(),
            )
            return [made]
        return [] if action == _CLOSE else None

    def actions(self) -> list[tuple[str, str]]:
        return [
            (_CREATE, "Flight SQL: the columns of a statement, and its handle"),
            (_CLOSE, "Flight SQL: forgets a statement; there is nothing to forget"),
        ]

    def _columns(self, user: str | None, kind: str, question: Any) -> pa.Schema:
        if kind in COLUMNS:
            return columns_of(kind, question)
        return self._run(user, _statement(kind, question), describe=True).schema

    def _run(self, user: str | None, query: bytes, *, describe: bool = False) -> pa.Table:
        try:
            text = query.decode()
        except UnicodeDecodeError:
            raise BadTicketError("a statement is UTF-8") from None
        sources = sources_of(self._catalog, self._seen_by(user))
        return self._runner.run(text, sources, describe=describe)

    def _tables(self, user: str | None) -> list[StreamTableInfo]:
        seen = self._seen_by(user)
        return [
            StreamTableInfo(name, projected(None, typed_schema(read_columns(each.options.schema))))
            for name, each in sorted(self._catalog.streams.items())
            if seen(each)
        ]

    def _seen_by(self, user: str | None) -> Callable[[Stream], bool]:
        return lambda stream: self._access.sees(user, stream.options.filters)


def _read(data: bytes) -> tuple[str, Any]:
    try:
        return parse(data)
    except BadMessageError as error:
        raise BadTicketError(str(error)) from None


def _statement(kind: str, question: Any) -> bytes:
    """The statement that a message stands for.

    Raises:
        BadTicketError: it stands for none.
    """
    if kind == "CommandStatementQuery":
        if question.transaction_id:
            raise BadTicketError("there are no transactions: a statement sees what is committed")
        query: str = question.query
        return query.encode()
    if kind == "CommandPreparedStatementQuery":
        handle: bytes = question.prepared_statement_handle
        return handle
    if kind == "TicketStatementQuery":
        found: bytes = question.statement_handle
        return found
    raise BadTicketError(f"{kind} asks for no rows")
