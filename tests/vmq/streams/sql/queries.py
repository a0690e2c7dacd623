"""Queries on streams in this process: without one of their own, which takes longer to begin than most queries do."""

import warnings
from collections.abc import Sequence

import duckdb
import pyarrow as pa
from pyarrow import ipc

from tests.vmq.streams.flight_support import Running
from vmq.streams.log.errors import StreamError
from vmq.streams.sql import engine
from vmq.streams.sql.running import (
    MEMORY,
    SqlError,
    SqlRunner,
    SqlSource,
    answer_to,
    seen,
    sources_of,
)
from vmq.streams.sql.talk import FAIL, SqlAsk, SqlOrders


class BrokerHere(engine.AskingBroker):
    """The broker of a query as the query's process has it, with nothing between them."""

    def __init__(self, sources: Sequence[SqlSource]) -> None:
        self.sources = sources
        self.found: pa.Table | None = None

    def say(self, _kind: bytes, data: bytes) -> None:
        with ipc.open_stream(data) as reader:
            self.found = reader.read_all()

    def ask(self, asked: SqlAsk) -> tuple[bytes, bytes]:
        kind, data = answer_to(asked, self.sources[asked.stream])
        if kind == FAIL:
            raise StreamError(data.decode())
        return kind, data


def answer(text: str, sources: Sequence[SqlSource], *, describe: bool = False) -> pa.Table:
    """As `SqlRunner.run`, by the same engine.

    Raises:
        SqlError: as there.
    """
    streams = [seen(each) for each in sources]
    orders = SqlOrders(
        query=text,
        streams=streams,
        memory=MEMORY,
        threads=1,
        rows=1 << 20,
        size=1 << 26,
        describe=describe,
    )
    broker = BrokerHere(sources)
    try:
        with warnings.catch_warnings(action="ignore"):
            engine.run(orders, broker)
    except (ValueError, StreamError, duckdb.Error, pa.ArrowException) as error:
        raise SqlError(engine.reason_of(error, orders)) from None
    return broker.found


def query_all(running: Running, text: str) -> pa.Table:
    return answer(text, sources_of(running.catalog, lambda _stream: True))


class RunnerHere(SqlRunner):
    """Runs queries without processes."""

    def run(self, query: str, sources: Sequence[SqlSource], *, describe: bool = False) -> pa.Table:
        return answer(query, sources, describe=describe)
