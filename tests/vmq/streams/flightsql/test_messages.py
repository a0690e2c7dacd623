"""Flight SQL, message by message: answers have the columns that the protocol names, and wrong messages end nothing."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.vmq.streams.flight_support import Running, serving
from tests.vmq.streams.sql.queries import RunnerHere
from tests.vmq.streams.support import options
from vmq.streams.flight.access import Anybody
from vmq.streams.flightsql.messages import BadMessageError, make, parse
from vmq.streams.flightsql.metadata import COLUMNS
from vmq.streams.flightsql.statements import FlightSql

TYPE = b"type.googleapis.com/arrow.flight.protocol.sql."


@pytest.fixture(scope="module", params=["server", "front"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[flight.FlightClient]:
    running = Running(tmp_path_factory.mktemp("sql"), sensors=options(filters=["sensors/#"]))
    with closing(running), closing(RunnerHere()) as runner:
        sql = FlightSql(running.catalog, Anybody(), runner)
        with serving(request.param, running, statements=sql) as server:
            yield flight.connect(f"grpc://127.0.0.1:{server.port}")


def ask(client: flight.FlightClient, kind: str, **fields: Any) -> pa.Table:
    info = client.get_flight_info(flight.FlightDescriptor.for_command(make(kind, **fields)))
    found = client.do_get(info.endpoints[0].ticket).read_all()
    assert found.schema == info.schema
    return found


@pytest.mark.parametrize("kind", COLUMNS)
def test_questions_have_the_columns_of_the_protocol(client: flight.FlightClient, kind: str) -> None:
    found = ask(client, kind)
    assert found.schema == COLUMNS[kind]
    assert len(found) == 0 if "Key" in kind or "Cross" in kind else len(found) > 0


def test_abilities_have_values_of_their_types(client: flight.FlightClient) -> None:
    found = ask(client, "CommandGetSqlInfo", info=[0, 3, 8, 504, 9999]).to_pydict()
    seen = dict(zip(found["info_name"], found["value"], strict=True))
    assert seen == {0: "vmq", 3: True, 8: 0, 504: '"'}


def test_tables_are_found_by_what_is_asked(client: flight.FlightClient) -> None:
    def names(**fields: Any) -> list[str]:
        found: list[str] = (
            ask(client, "CommandGetTables", **fields).column("table_name").to_pylist()
        )
        return found

    assert names() == names(catalog="vmq", table_types=["TABLE"]) == ["sensors"]
    assert names(table_name_filter_pattern="s%r_") == ["sensors"]
    for each in (
        {"catalog": ""},
        {"table_types": ["VIEW"]},
        {"db_schema_filter_pattern": "x%"},
        {"table_name_filter_pattern": "sensor"},
        {"table_name_filter_pattern": "%" * 2000},
    ):
        assert names(**each) == []


def test_columns_without_rows(client: flight.FlightClient) -> None:
    command = make("CommandStatementQuery", query="select topic, 1 as one from sensors")
    found = client.get_schema(flight.FlightDescriptor.for_command(command)).schema
    assert found.names == ["topic", "one"]
    plain = client.get_schema(flight.FlightDescriptor.for_path("sensors")).schema
    assert "payload" in plain.names


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\x35" + TYPE + b"Nothing", "there is no"),
        (make("CommandGetTables")[:-1] + b"\xff", "no message"),
        (make("CommandStatementQuery", query="select 1", transaction_id=b"1"), "no transactions"),
        (make("ActionClosePreparedStatementRequest"), "asks for no rows"),
        (make("CommandPreparedStatementQuery", prepared_statement_handle=b"\xff"), "UTF-8"),
    ],
)
def test_a_wrong_message_says_what_is_wrong(
    client: flight.FlightClient, data: bytes, why: str
) -> None:
    with pytest.raises(flight.FlightError, match=why):
        client.get_flight_info(flight.FlightDescriptor.for_command(data))
    with pytest.raises(flight.FlightError):
        client.do_get(flight.Ticket(data)).read_all()
    assert len(ask(client, "CommandGetCatalogs")) == 1


def test_what_writes_is_refused(client: flight.FlightClient) -> None:
    update = flight.FlightDescriptor.for_command(b"\x0a\x43" + TYPE + b"CommandStatementUpdate")
    writer, _ = client.do_put(update, pa.schema([]))
    with pytest.raises(flight.FlightError, match="read only"):
        writer.close()


def test_a_message_is_what_it_was() -> None:
    kind, found = parse(make("CommandGetTables", catalog="", table_types=["A", "B"]))
    assert (kind, found.catalog, list(found.table_types)) == ("CommandGetTables", "", ["A", "B"])
    assert found.HasField("catalog")
    assert not found.HasField("table_name_filter_pattern")
    with pytest.raises(BadMessageError):
        parse(b"\xff")
