"""Queries on streams: what they see, and that they see and take nothing else."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.support.until import reach
from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.sql.queries import query_all
from tests.vmq.streams.support import options
from vmq.streams.log.errors import PassingError
from vmq.streams.sql import running as module
from vmq.streams.sql.running import SqlError, SqlRunner, sources_of

SCHEMA = {"temp": "double", "device": "string level:2"}
DAY = 86_400_000_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sql")
    found = Running(
        folder / "streams",
        sensors=options(filters=["sensors/#"], partitions=3, key="topic", schema=SCHEMA),
        **{"with-dash": options(filters=["other/#"])},
    )
    for number in range(30):
        found.append(f"sensors/d{number % 5}", b'{"temp": %d}' % number)
    found.append("sensors/d0", b"broken", at=time.time_ns() // 1000 - DAY)
    found.append("other/x", b"\xff\x00")
    yield found
    found.close()


def ask(running: Running, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query_all(running, query).to_pylist()
    return rows


def table(running: Running, query: str, **fields: Any) -> pa.Table:
    with closing(SqlRunner(**fields)) as runner:
        return runner.run(query, sources_of(running.catalog, lambda _stream: True))


def test_all_that_is_there(running: Running) -> None:
    """Also by a process of the query's own."""
    counts = "select count(*) as n, count(temp) as t from sensors"
    assert ask(running, counts) == table(running, counts).to_pylist() == [{"n": 31, "t": 30}]
    found = ask(
        running,
        "select device, avg(temp) as mean, min(topic) as topic from sensors group by device order by device",
    )
    assert found == [
        {"device": f"d{at}", "mean": sum(range(at, 30, 5)) / 6, "topic": f"sensors/d{at}"}
        for at in range(5)
    ]
    assert ask(running, 'select payload, qos, retain, partition, "offset" from "with-dash"') == [
        {"payload": b"\xff\x00", "qos": 1, "retain": False, "partition": 0, "offset": 0}
    ]


def test_filters_times_and_joins(running: Running) -> None:
    recent = "where timestamp > now() - interval 1 hour"
    assert ask(running, f"select count(*) as n from sensors {recent}") == [{"n": 30}]
    assert ask(running, "select temp from sensors where temp > 27 and device = 'd3'") == [
        {"temp": 28.0}
    ]
    assert ask(running, "select count(*) as n from sensors where topic = 'sensors/d1'") == [
        {"n": 6}
    ]
    joined = (
        "select count(*) as n from sensors a join sensors b using (device) where a.temp < b.temp"
    )
    assert ask(running, joined) == [{"n": 5 * 15}]
    parsed = (
        "select sum((decode(payload)::json->>'temp')::int) as s from sensors where temp is not null"
    )
    assert ask(running, parsed) == [{"s": sum(range(30))}]
    assert len(ask(running, "explain select * from sensors")) == 1


def test_each_stream_is_listed_once_and_has_all_its_names(running: Running) -> None:
    assert ask(running, "show tables") == [{"name": "sensors"}, {"name": "with-dash"}]
    what = "table_catalog || '.' || table_schema || '.' || table_name as name"
    listed = ask(running, f"select {what} from information_schema.tables order by name")
    assert listed == [{"name": "vmq.main.sensors"}, {"name": "vmq.main.with-dash"}]
    columns = "select count(*) as n from information_schema.columns where column_name = 'temp'"
    assert ask(running, columns) == [{"n": 1}]
    for name in ("sensors", "vmq.sensors", "main.sensors", 'vmq.main."sensors"'):
        assert ask(running, f"select count(*) as n from {name}") == [{"n": 31}]


def test_it_agrees_with_duckdb_on_the_same_rows(running: Running) -> None:
    rows = query_all(running, "from sensors")
    assert rows.schema.names[:2] == ["topic", "payload"]
    what = "device, retain, count(*) as n, max(temp) as top, min(timestamp) as first"
    query = f"select {what} from {{}} group by all order by all"
    with duckdb.connect() as connection:
        connection.register("given", rows)
        connection.execute("set TimeZone = 'UTC'")
        wanted: Any = connection.sql(query.format("given")).to_arrow_table()
    assert ask(running, query.format("sensors")) == wanted.to_pylist()


def test_only_what_may_be_read(running: Running) -> None:
    sources = sources_of(running.catalog, lambda stream: stream.name != "sensors")
    there_is = r"\Athere is no stream 'sensors'; there are: with-dash\nLINE 1: from sensors"
    with closing(SqlRunner()) as runner, pytest.raises(SqlError, match=there_is):
        runner.run("from sensors", sources)


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from read_csv('/etc/passwd')",
        "from read_blob('/proc/self/environ')",
        "select * from glob('/*')",
        "copy (select 1) to '/tmp/vmq-sql-was-here'",
        "copy sensors to '/tmp/vmq-sql-was-here' (format parquet)",
        "attach '/tmp/vmq-sql-was-here' as x",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "set memory_limit = '100GB'",
        "create table t as select 1",
        "drop view sensors",
        "select 1; select 2",
        "",
        "-- nothing",
        "select * from orders",
        "select * from os",
        "select * from broker",
        "select getenv('PATH')",
        "pragma database_list",
        "call pragma_version()",
        "export database '/tmp/vmq-sql-was-here'",
        "select * from parquet_scan('/tmp/*.parquet')",
        "select * from 'http://127.0.0.1/x.csv'",
    ],
)
def test_it_can_read_and_do_nothing_else(running: Running, query: str) -> None:
    with pytest.raises(SqlError):
        query_all(running, query)
    assert not Path("/tmp/vmq-sql-was-here").exists()


def test_one_that_takes_too_long_is_ended(running: Running) -> None:
    endless = (
        "select count(*) from range(1000000) a, range(1000000) b where a.range % 7 = b.range % 5"
    )
    with pytest.raises(SqlError, match=r"took more than 1 s, .*limits\.max_query_seconds"):
        table(running, endless, seconds=1)


def test_one_that_takes_too_much_memory(running: Running) -> None:
    """What helps is told: DuckDB's own advice is of settings that are locked."""
    big = "select list(repeat(range::varchar, 100)) as x from range(10000000)"
    with pytest.raises(SqlError, match=r"more than 32 MiB of memory.*limits\.max_query_memory\Z"):
        table(running, big, memory=32 << 20)


def test_advice_to_change_what_is_locked_is_left_out(running: Running) -> None:
    deep = f"select {'(' * 1100}1{')' * 1100}"
    with pytest.raises(SqlError, match=r"Max expression depth limit of \d+ exceeded\.\Z"):
        query_all(running, deep)


@pytest.mark.parametrize(
    ("query", "help_"),
    [
        ("select payload::varchar::json->>'temp' from sensors", "decode(payload) is its text"),
        ("select avg(payload) from sensors", "decode(payload) is its text"),
        ("select topic, offset from sensors", 'the column is "offset", in quotes'),
    ],
)
def test_what_its_words_do_not_tell_of_our_columns_is_added(
    running: Running, query: str, help_: str
) -> None:
    with pytest.raises(SqlError) as refused:
        query_all(running, query)
    assert help_ in str(refused.value).splitlines()[-1]


def test_a_result_has_its_limits(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RESULT_ROWS", 100)
    assert len(table(running, "from range(100)")) == 100
    with pytest.raises(SqlError, match="more than 100 rows or 64 MiB"):
        table(running, "from range(101)")
    monkeypatch.setattr(module, "_RESULT_BYTES", 1 << 20)
    with pytest.raises(SqlError, match="more than 100 rows or 1 MiB"):
        table(running, "select repeat('x', 100000) from range(50)")


def test_so_many_at_a_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN", 0.01)
    with closing(SqlRunner()) as runner:
        for _ in range(module.MOST):
            assert runner.turns.acquire(blocking=False)
        with pytest.raises(PassingError, match="2 queries run already"):
            runner.run("select 1", [])
        runner.turns.release()
        assert runner.run("select 1 as one", []).to_pylist() == [{"one": 1}]


def test_a_process_waits_for_the_next_query(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqlRunner()) as runner:
        waited = [runner.spare.waiting]
        for number in range(3):
            assert runner.run(f"select {number} as n", []).to_pylist() == [{"n": number}]
            runner.changes.submit(lambda: None).result()
            waited.append(runner.spare.waiting)
        first, *pids = [None if each is None else each.pid for each in waited]
        assert (first, len(set(pids))) == (None, 3)  # each process is for one query
        last = waited[-1]
        assert last is not None
        os.kill(last.pid, signal.SIGKILL)
        reach(lambda: not last.is_alive, "it lives on")
        assert runner.run("select 4 as n", []).to_pylist() == [{"n": 4}]
        monkeypatch.setattr(runner.spare, "idle", 0.01)
        runner.run("select 5 as n", [])
        runner.changes.submit(lambda: None).result()
        reach(lambda: runner.spare.waiting is None, "it waits for ever")
    assert runner.spare.waiting is None


def test_a_process_that_says_nonsense(running: Running) -> None:
    for said in ("print('x' * 100)", "pass", "import time; time.sleep(60)"):
        with pytest.raises(SqlError):
            table(running, "select 1", seconds=1, command=(sys.executable, "-c", said))


def test_a_query_is_not_too_long(running: Running) -> None:
    with pytest.raises(SqlError, match="at most 65536 bytes"):
        table(running, "select 1 --" + "x" * 65_536)
