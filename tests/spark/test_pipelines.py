"""Pipelines in the shared session: what becomes of messages, and what of mistakes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.spark.support import Bridge, send
from tests.support.wire import Wire
from vmq.testing.ports import lasting_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from vmq_spark.driver import Driver

#: An hour ago, at the beginning of a minute.
BASE = int(time.time()) // 60 * 60 - 3600


@pytest.fixture
def session(bridge: Bridge) -> Iterator[SparkSession]:
    """As the driver has it: windows close without waiting for further messages."""
    session = bridge.spark.newSession()
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    yield session
    session.catalog.clearCache()


def driver(bridge: Bridge, folder: Path, source: Path, **given: Any) -> Driver:
    from vmq_spark.driver import Driver
    from vmq_spark.settings import Settings

    folder.mkdir(exist_ok=True)
    settings = Settings(
        **{
            "name": "test",
            "source": str(source),
            "connection": {"server": bridge.url},
            "master": "local",
            "folder": str(folder),
            "checkpoint": str(folder / "checkpoints"),
            "output": str(folder / "tables"),
            "trigger": "0 seconds",
            "is_once": True,
            **given,
        }
    )
    return Driver(settings, threading.Event())


def run(session: SparkSession, course: Driver) -> None:
    course.run_in(lambda: session, *course.load())


def rows(table: Path) -> list[dict[str, Any]]:
    from vmq_spark.tables import committed_files

    return [
        row
        for file in committed_files(table)
        for row in pq.read_table(file, partitioning=None).to_pylist()
    ]


def reading(device: str, second: float, value: object, **more: object) -> tuple[str, bytes]:
    payload = {"value": value, "time": BASE + second, **more}
    return f"sensors/north/{device}/temp", json.dumps(payload).encode()


def averages(table: Path) -> list[tuple[str, int, int, float]]:
    return sorted(
        (row["device"], int(row["start"].timestamp()) - BASE, row["readings"], row["average"])
        for row in rows(table)
    )


def test_sensors(bridge: Bridge, session: SparkSession, tmp_path: Path) -> None:
    from vmq_spark.pipeline import find

    def course() -> Driver:
        options = {"window": "1m", "watermark": "1m", "threshold": "30", "qos": "2"}
        return driver(bridge, tmp_path / "p", find("sensors"), options=options)

    tables = tmp_path / "p" / "tables"
    with Wire.connect_tcp(bridge.broker.tcp) as wire:
        wire.connect("watch", keep_alive=0)  # Spark may take long where others work
        wire.subscribe(("alerts/#", 2))
        at_fifteen = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BASE + 15))
        messages = [
            reading("cool", 0, 20),
            reading("cool", 10, 22),
            reading("hot", 5, 35),
            reading("hot", 0, 37, time=at_fifteen),
            # Left out: no number, none at all, out of bounds, not JSON.
            reading("cool", 1, "warm"),
            reading("cool", 2, None),
            reading("cool", 3, 1e6),
            reading("cool", 4, float("nan")),
            ("sensors/north/cool/temp", b"\xff{"),
            # Brings the watermark to second 90: the first window is closed.
            reading("cool", 150, 21),
        ]
        send(bridge.broker, messages)
        run(session, course())
        assert averages(tables / "averages") == [("cool", 0, 2, 21.0), ("hot", 0, 2, 36.0)]
        alert = wire.expect_publish()
        assert alert.topic == "alerts/north/hot"
        said = json.loads(alert.payload)
        assert (said["average"], said["threshold"], alert.qos) == (36.0, 30.0, 2)
        assert said["start"] == time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(BASE))

        # One that comes too late, one in time, and two whose clocks are wrong.
        send(
            bridge.broker,
            [
                reading("hot", 20, 99),
                reading("cool", 160, 23),
                reading("fast", 0, 25, time=time.time() + 86_400),
                reading("lost", 0, 26, time="yesterday"),
            ],
        )
        again = course()
        run(session, again)
        assert averages(tables / "averages")[1:] == [("cool", 120, 2, 22.0), ("hot", 0, 2, 36.0)]
        assert again.trackers["averages"].progress.late == 1
        assert again.trackers["readings"].progress.rows == 4
        assert again.trackers["readings"].progress.total_lag == 0
        wire.ping()
    found = rows(tables / "readings")
    assert sorted(row["value"] for row in found) == [20, 21, 22, 23, 25, 26, 35, 37, 99]
    assert len({(row["partition"], row["offset"]) for row in found}) == 9
    assert all(row["time"] <= row["received"] for row in found)
    wrong = {row["device"]: row for row in found if row["device"] in {"fast", "lost"}}
    assert all(row["time"] == row["received"] for row in wrong.values())


MODULE = '''\
"""Marks sites, by Python code that runs in the tasks."""

MARK = "!"


def marked(site):
    return site + MARK


def pipeline(flow, *, topic: str):
    from pyspark.sql import functions as f
    from pyspark_vmq import parse

    mark = f.udf(marked, useArrow=False)
    rows = parse(flow.messages(topic), "works/{site}/temp")
    flow.table("marked", rows.select(mark("site").alias("site")))
'''


def test_functions_of_a_module_run_in_tasks(
    bridge: Bridge, session: SparkSession, tmp_path: Path
) -> None:
    module = tmp_path / "marks.py"
    module.write_text(MODULE)
    send(bridge.broker, [("works/marked/temp", b"1")])
    run(session, driver(bridge, tmp_path / "p", module, options={"topic": "works/marked/+"}))
    assert rows(tmp_path / "p" / "tables" / "marked") == [{"site": "marked!"}]


README = Path(__file__).parents[2] / "plugins" / "vmq_spark" / "README.md"


@pytest.mark.skipif(not README.is_file(), reason="the README is part of the repository only")
def test_examples_of_the_readme_run(bridge: Bridge, session: SparkSession, tmp_path: Path) -> None:
    send(
        bridge.broker, [("works/cool/temp", b'{"value": 20}'), ("works/hot/temp", b'{"value": 40}')]
    )
    examples = dict(re.findall(r"```(python|sql)\n(.*?)```", README.read_text(), re.DOTALL))
    for name, text in (("counts.py", examples["python"]), ("hot.sql", examples["sql"])):
        path = tmp_path / name
        path.write_text(text.replace("plant/", "works/"))
        run(session, driver(bridge, tmp_path / path.stem, path))
    found = {row["site"]: row["value"] for row in rows(tmp_path / "counts" / "tables" / "rows")}
    assert (found["cool"], found["hot"]) == (20, 40)
    alerts = [bytes(row.payload) for row in bridge.load(topic="works/alerts").collect()]
    assert b"hot is hot" in alerts
    assert b"cool is hot" not in alerts


def test_readme_has_every_option_and_gauge() -> None:
    from vmq_spark import pipeline
    from vmq_spark.plugin import PIPELINE_FIGURES, QUERY_FIGURES
    from vmq_spark.sql import DIRECTIVES

    if not README.is_file():
        pytest.skip("the README is part of the repository only")
    text = README.read_text()
    for name in pipeline.load(pipeline.find("sensors")).options:
        assert f"`{name}`" in text, name
    for name in (*PIPELINE_FIGURES, *QUERY_FIGURES, "spark_query_lag"):
        assert f"_{name}`" in text, name
    for name in DIRECTIVES:
        assert f"--@ {name} " in text, name


#: By Spark's own words: what `flow.messages` is given is checked before.
READ = (
    "messages = flow.spark.readStream.format('vmq').options(**flow.connection); "
    "flow.table('t', messages.option({}).load())"
)


def built(lines: str) -> str:
    return "def pipeline(flow):\n" + "".join(f"    {line}\n" for line in lines.split("; "))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", built("pass"), "it declares no query"),
        ("b.py", built("1 / 0"), "cannot be built: ZeroDivisionError"),
        (
            "c.py",
            built("m = flow.messages(stream='sensors'); flow.table('a', m); flow.table('a', m)"),
            "two queries are named 'a'",
        ),
        (
            "d.py",
            built("flow.table('a/b', flow.messages(stream='sensors'))"),
            "cannot be named 'a/b'",
        ),
        ("e.sql", "--@ table t\nSELECT nope FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
    ],
)
def test_pipelines_that_cannot_run(
    bridge: Bridge, session: SparkSession, tmp_path: Path, name: str, text: str, said: str
) -> None:
    from vmq_spark.errors import PipelineError

    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(PipelineError, match=said):
        run(session, driver(bridge, tmp_path / "p", path))


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (READ.format("'topic', 'x/#/y'"), 2, "query t: option 'topic': 'x/#/y' is no"),
        (
            READ.format("'topic', 'x/#').option('retryTimeout', 0"),
            1,
            "query t: grpc://127.0.0.1:.*'server'",
        ),
    ],
)
def test_queries_that_fail_say_whether_to_try_again(
    bridge: Bridge, session: SparkSession, tmp_path: Path, text: str, code: int, said: str
) -> None:
    from vmq_spark.driver import QueryError

    path = tmp_path / "p.py"
    path.write_text(built(text))
    server = {"server": f"grpc://127.0.0.1:{lasting_port()}"}
    course = driver(bridge, tmp_path / "p", path, connection=server)
    with pytest.raises(QueryError, match=said) as caught:
        run(session, course)
    assert caught.value.code == code
