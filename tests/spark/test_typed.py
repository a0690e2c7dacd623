"""Typed columns in Spark, by `.schema(...)` and as views, and what docs/readers.md shows of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.support import Bridge, fails, send
from tests.support.pages import blocks, ran
from vmq.testing.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "readers.md"
MANY = 40


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with the streams of the page, and readings of four devices."""
    folder = tmp_path_factory.mktemp("typed")
    config = folder / "vmq.toml"
    config.write_text(blocks(PAGE, "toml")[0].replace(":8815", ":0"))
    args = ("--config", str(config), "--allow-anonymous")
    listen = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
    with BrokerProcess.start(listen, folder / "data", args=args) as broker:
        payloads = [(f"sensors/d{at % 4}", b'{"temp": %d}' % at) for at in range(MANY)]
        send(broker, [*payloads, ("sensors/d0", b"broken")])
        yield next(each for each in broker.urls if each.startswith("grpc"))


@pytest.mark.skipif(not PAGE.is_file(), reason="the page is in the repository only")
def test_views_by_one_line(bridge: Bridge, typed: str) -> None:
    found = ran(PAGE, "register_streams")["means"](bridge.spark, typed).collect()
    assert [(row.device, row.mean, row.n) for row in found] == [
        (f"d{at}", sum(range(at, MANY, 4)) / 10, 10 + (at == 0)) for at in range(4)
    ]
    view = bridge.spark.table("sensors")
    assert view.columns[-3:] == ["offset", "device", "temp"]
    assert view.where("temp is null").select("payload").collect()[0].payload == b"broken"


def test_columns_that_are_asked_for(bridge: Bridge, typed: str, tmp_path: Path) -> None:
    options = {"server": typed, "stream": "sensors"}
    schema = "temp double, device string, offset bigint"
    batch = bridge.spark.read.format("vmq").options(**options).schema(schema).load()
    assert sorted(row.temp for row in batch.where("temp >= 30").collect()) == list(range(30, MANY))
    stream = bridge.spark.readStream.format("vmq").options(**options, startingOffsets="earliest")
    target = tmp_path / "out"
    bridge.collect(stream.schema(schema).load(), target, tmp_path / "checkpoint")
    found = bridge.spark.read.parquet(str(target))
    assert found.count() == MANY + 1
    assert found.where("device = 'd1'").selectExpr("sum(temp)").collect()[0][0] == sum(
        range(1, MANY, 4)
    )


def test_a_column_of_another_type(bridge: Bridge, typed: str, tmp_path: Path) -> None:
    """It is refused at the start, whatever its values are."""
    options = {"server": typed, "stream": "sensors"}
    for given in ("string", "bigint", "int"):
        schema = f"device string, temp {given}"
        said = f"column 'temp' of stream 'sensors' is double, not {given}"
        with fails("option 'schema'", said):
            bridge.spark.read.format("vmq").options(**options).schema(schema).load().collect()
    stream = bridge.spark.readStream.format("vmq").options(**options)
    with fails("option 'schema'", "column 'device' of stream 'sensors' is string, not int"):
        frame = stream.schema("device int").load()
        bridge.collect(frame, tmp_path / "out", tmp_path / "checkpoint")


def test_conditions_that_the_broker_looks_at(bridge: Bridge, typed: str, tmp_path: Path) -> None:
    """What comes is what Spark's own filter leaves, of a batch and of a stream."""
    options = {"server": typed, "stream": "sensors"}
    schema = "topic string, temp double, device string, offset bigint, key binary"
    plain = bridge.spark.read.format("vmq").options(**options).schema(schema).load().cache()
    for said, where in (
        (
            '[["temp", ">=", 30], ["device", "in", ["d1", "d2"]]]',
            "temp >= 30 and device in ('d1', 'd2')",
        ),
        ('[["temp", "null"]]', "temp is null"),
        ('[["key", "=", "ZDE="], ["offset", ">", 3]]', "key = cast('d1' as binary) and offset > 3"),
    ):
        found = bridge.spark.read.format("vmq").options(**options, where=said).schema(schema).load()
        wanted = sorted(map(str, plain.where(where).collect()))
        assert sorted(map(str, found.collect())) == wanted
        assert wanted
    stream = bridge.spark.readStream.format("vmq").options(
        **options, startingOffsets="earliest", where='[["temp", ">", 37]]'
    )
    target = tmp_path / "out"
    bridge.collect(stream.schema(schema).load(), target, tmp_path / "checkpoint")
    seen = sorted(row.temp for row in bridge.spark.read.parquet(str(target)).collect())
    assert seen == [38.0, 39.0]
    reader = bridge.spark.read.format("vmq").options(**options, where='[["wind", "=", 1]]')
    with fails("where: there is no column 'wind'"):
        reader.schema(schema).load().collect()
