"""`vmq sql` of a real broker, and of the folder that it leaves."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.wire import PUBACK, Wire, publish_packet
from vmq.cli.data import sql
from vmq.cli.main import main
from vmq.cli.terminal.console import FAILURE, USAGE
from vmq.testing.process import BrokerProcess

CONFIG = """
[streams.s]
filters = ["s/#"]
partitions = 2
key = "topic"

[streams.s.schema]
temp = "double"
device = "string level:2"
"""
QUERY = "select device, avg(temp) as mean from s group by device order by device"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = tmp_path / "vmq.toml"
    config.write_text(CONFIG)
    data_dir = tmp_path / "data"
    with BrokerProcess.start(data_dir=data_dir, args=["--config", str(config)]) as broker:
        with Wire.connected(broker.tcp, "c") as wire:
            for number in range(12):
                payload = b'{"temp": %d}' % number
                wire.ask(publish_packet(f"s/{number % 3}", payload, qos=1, packet_id=1), PUBACK)
        yield broker


def ask(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess, *arguments: object
) -> tuple[int, str, str]:
    code = main(["sql", *map(str, arguments), "--data-dir", str(broker.data_dir)])
    out, err = capsys.readouterr()
    return code, out, err


def check(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    """What is the same for a broker that runs and for one that does not."""
    code, out, err = ask(capsys, broker, QUERY)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["device", "mean"], ["0", "4.5"], ["1", "5.5"], ["2", "6.5"]
    ]  # fmt: skip
    code, out, err = ask(capsys, broker, "select * from nothing")
    assert (code, out) in {(USAGE, ""), (FAILURE, "")}
    assert "there is no stream 'nothing'; there are: " in err
    assert all(line.removeprefix("vmq: error:").strip() for line in err.splitlines())
    code, _, err = ask(capsys, broker, "select * from '/etc/passwd'")
    assert code != 0


def test_a_broker_that_runs_and_one_that_does_not(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(capsys, broker)
    _, out, _ = ask(capsys, broker, QUERY, "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"device": str(at), "mean": 4.5 + at} for at in range(3)
    ]
    _, out, _ = ask(
        capsys, broker, "select topic, payload, null as n from s where temp = 7", "--csv"
    )
    found = list(csv.reader(io.StringIO(out)))
    assert found == [["topic", "payload", "n"], ["s/1", '{"temp": 7}', ""]]
    target = tmp_path / "found.parquet"
    code, out, _ = ask(capsys, broker, "select * from s", "--parquet", target)
    assert (code, out) == (0, f"12 rows in {target}\n")
    assert pq.read_table(target).column("temp").to_pylist().count(None) == 0
    code, _, err = ask(capsys, broker, "select 1 as a, 2 as a", "--json")
    assert (code, "two columns are called 'a'" in err) == (USAGE, True)
    path = tmp_path / "never.parquet"
    code, _, err = ask(capsys, broker, "select interval 1 day as i", "--parquet", path)
    assert (code, "Parquet cannot have this" in err, path.exists()) == (FAILURE, True, False)
    code, _, err = ask(capsys, broker, QUERY, "--json", "--csv")
    assert code == USAGE
    assert "one of them" in err
    broker.terminate()
    check(capsys, broker)
    command = [sys.executable, "-m", "vmq", "sql", QUERY, "--data-dir", str(broker.data_dir)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stderr == b"", "of the processes that it starts"


def test_what_json_has_no_word_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The output is JSON, whatever values there are; a parser that is strict takes it."""
    query = """
        select 'nan'::double as n, ['inf'::float, 1.5, '-inf'::float] as l, {'x': 'nan'::double} as s,
        interval '-1 month 3 days' as i, [interval 90 minutes] as li, interval 0 seconds as z,
        interval (-3) milliseconds as f, map {'a': 'inf'::double} as m, 'infinity'::timestamp is null as t,
        timestamp_ns '2020-01-01 00:00:00.123456789' as ns, 2.5 as d
    """
    with duckdb.connect() as connection:
        found: Any = connection.sql(query).to_arrow_table()
        endless: Any = connection.sql("select 'infinity'::timestamp as t").to_arrow_table()
    sql.write_json(found)
    (line,) = capsys.readouterr().out.splitlines()
    strict = json.JSONDecoder(parse_constant=refused)
    assert strict.decode(line) == {
        "n": None,
        "l": [None, 1.5, None],
        "s": {"x": None},
        "i": "P-1M3D",
        "li": ["PT5400S"],
        "z": "PT0S",
        "f": "PT-0.003S",
        "m": [["a", None]],
        "t": False,
        "ns": "2020-01-01 00:00:00.123456789",
        "d": "2.5",
    }
    sql.write_csv(found)
    header, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert dict(zip(header, row, strict=True))["l"] == "[null, 1.5, null]"
    sql.write_json(endless)
    assert strict.decode(capsys.readouterr().out)["t"], "which Python's datetime has no room for"


def refused(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize(
    ("is_terminal", "lines"),
    [
        (False, ["a\x1b", "\x1b]0;x\a", '"two', 'lines"', '""', ""]),
        (True, ["a\\x1b", "\\x1b]0;x\\x07", "two\\nlines", '""', ""]),
    ],
)
def test_csv_is_exact_but_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    lines: list[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    sql.write_csv(pa.table({"a\x1b": ["\x1b]0;x\a", "two\nlines", None]}))
    assert capsys.readouterr().out.split("\n") == lines


def test_without_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess.start(data_dir=tmp_path / "data") as broker:
        code, _, err = ask(capsys, broker, "select 1")
        assert code != 0
        assert "there are no streams" in err
