"""A client of Flight SQL that is not ours: ADBC's, as its users call it."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from adbc_driver_manager import Error

from tests.vmq.streams.flight_support import Running, serving
from tests.vmq.streams.sql.queries import RunnerHere
from tests.vmq.streams.support import options
from vmq.streams.flight.access import Anybody
from vmq.streams.flightsql.statements import FlightSql

PASSWORDS = {"ann": b"secret", "bob": b"hidden"}


class Rules(Anybody):
    """Ann may read all; Bob what is below `other`."""

    def authenticate(self, user: str | None, password: bytes) -> bool:
        return user is not None and PASSWORDS.get(user) == password

    def may_read(self, user: str | None, filters: Sequence[str], group: str = "") -> bool:
        return user == "ann" or all(each.startswith("other/") for each in filters)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("flightsql")
    running = Running(
        folder / "streams",
        sensors=options(filters=["sensors/#"], schema={"temp": "double"}),
        **{"with-dash": options(filters=["other/#"])},
    )
    with closing(running), closing(RunnerHere()) as runner:
        for number in range(30):
            running.append(f"sensors/d{number % 5}", b'{"temp": %d}' % number)
        running.append("other/x", b"1")
        rules = Rules()
        sql = FlightSql(running.catalog, rules, runner)
        with serving("front", running, access=rules, statements=sql) as server:
            yield f"grpc://127.0.0.1:{server.port}"


def connect(url: str, user: str) -> Any:
    known = {"username": user, "password": PASSWORDS[user].decode()}
    return closing(adbc.connect(url, db_kwargs=known, autocommit=True))


@pytest.fixture(scope="module")
def ann(url: str) -> Iterator[Any]:
    with connect(url, "ann") as connection:
        yield connection


def rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


@pytest.mark.parametrize("name", ["sensors", "vmq.sensors", 'vmq.main."sensors"'])
def test_a_statement(ann: Any, name: str) -> None:
    query = f"select topic, avg(temp) as mean from {name} group by topic order by topic"
    assert rows(ann, query) == [(f"sensors/d{at}", sum(range(at, 30, 5)) / 6) for at in range(5)]


def test_columns_of_one_name_are_called_as_the_statement_has_them(ann: Any) -> None:
    """When the statement is prepared, before it runs, and in its result."""
    for query, names in (
        ("select 1 as x, 2 as x, 'a' as X", ["x", "x", "X"]),
        ("select a.temp, b.temp from sensors a join sensors b using (topic)", ["temp", "temp"]),
        ("explain select 1 as x, 2 as x", ["explain_key", "explain_value"]),
    ):
        with ann.cursor() as cursor:
            assert cursor.adbc_execute_schema(query).names == names
            cursor.execute(query)
            assert cursor.fetch_arrow_table().schema.names == names


def test_a_prepared_statement_knows_its_columns(ann: Any) -> None:
    with ann.cursor() as cursor:
        parameters = cursor.adbc_prepare('select count(*) as n from "with-dash"')
        assert parameters is None or len(parameters) == 0
        cursor.execute('select count(*) as n from "with-dash"')
        assert cursor.fetch_arrow_table().to_pydict() == {"n": [1]}


def test_catalogs_tables_and_columns(ann: Any) -> None:
    found = ann.adbc_get_objects(depth="all").read_all().to_pylist()
    assert [each["catalog_name"] for each in found] == ["vmq"]
    (schema,) = found[0]["catalog_db_schemas"]
    assert schema["db_schema_name"] == "main"
    tables = {each["table_name"]: each for each in schema["db_schema_tables"]}
    assert set(tables) == {"sensors", "with-dash"}
    names = [each["column_name"] for each in tables["sensors"]["table_columns"]]
    assert {"topic", "payload", "timestamp", "temp"} <= set(names)
    columns = ann.adbc_get_table_schema("sensors")
    assert columns.field("temp").type == pa.float64()
    assert ann.adbc_get_table_types() == ["TABLE"]


def test_names_are_found_by_pattern(ann: Any) -> None:
    found = ann.adbc_get_objects(depth="tables", table_name_filter="with_d%").read_all().to_pylist()
    (table,) = found[0]["catalog_db_schemas"][0]["db_schema_tables"]
    assert table["table_name"] == "with-dash"


def test_what_the_server_is(ann: Any) -> None:
    info = ann.adbc_get_info()
    assert info["vendor_name"] == "vmq"


def test_a_stream_is_there_for_who_may_subscribe_to_it(url: str) -> None:
    with connect(url, "bob") as bob:
        assert rows(bob, 'select count(*) from "with-dash"') == [(1,)]
        found = bob.adbc_get_objects(depth="tables").read_all().to_pylist()
        (table,) = found[0]["catalog_db_schemas"][0]["db_schema_tables"]
        assert table["table_name"] == "with-dash"
        with pytest.raises(Error, match="sensors"):
            rows(bob, "select * from sensors")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("selec 1", "syntax error"),
        ("select * from nothing", "nothing"),
        ("drop view sensors", "one statement that reads"),
        ("select 1; select 2", "one statement that reads"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select * from range(2000000)", "add a limit"),
    ],
)
def test_what_cannot_be_answered_says_why(ann: Any, query: str, why: str) -> None:
    with pytest.raises(Error, match=why):
        rows(ann, query)
    assert rows(ann, "select 1") == [(1,)]


def test_a_wrong_password_is_refused(url: str) -> None:
    known = {"username": "ann", "password": "wrong"}
    with pytest.raises(Error, match="wrong user name or password"):
        adbc.connect(url, db_kwargs=known, autocommit=True)


def test_parameters_and_writes_are_refused(ann: Any) -> None:
    with ann.cursor() as cursor, pytest.raises(Error):
        cursor.execute("select * from sensors where temp > ?", (3,))
    with ann.cursor() as cursor, pytest.raises(Error):
        cursor.adbc_ingest("sensors", pa.table({"a": [1]}), mode="append")
    assert rows(ann, "select count(*) from sensors") == [(30,)]
