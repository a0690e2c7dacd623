"""The section's streams, of a real broker; and the gauges of pipelines."""

import os
from pathlib import Path

import aiomqtt
import msgspec
import pytest
from vmq_hooks.testing import FakeBroker
from vmq_hooks.testing.running import running_broker
from vmq_spark import SparkConfig, SparkPlugin, status
from vmq_spark.locks import take_lock
from vmq_spark.status import Progress, QueryProgress, RunnerStatus

from tests.support.present import present
from tests.support.until import until
from vmq.config.streams import from_plain


async def test_each_table_becomes_a_stream_that_the_broker_accepts(tmp_path: Path) -> None:
    section = {"streams": {"a": {"filters": ["a/#"]}, "b": {"filters": ["b"], "partitions": 1}}}
    async with FakeBroker(tmp_path) as broker:
        await SparkPlugin().start(broker, msgspec.convert(section, SparkConfig))
        found = {name: from_plain(name, options) for name, options in broker.streams.items()}
    assert {name: each.filters for name, each in found.items()} == {"a": ["a/#"], "b": ["b"]}
    assert [each.partitions for each in found.values()] == [4, 1]
    assert all(each.durability == "os" and each.key == "client_id" for each in found.values())


async def test_messages_flow_into_the_streams(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    options = {"vmq_spark": {"streams": {"sensors": {"filters": ["sensors/#"]}}}}
    async with running_broker(
        tmp_path, {"vmq_spark": SparkPlugin()}, options=options, allow_anonymous=True
    ) as running:
        async with aiomqtt.Client(running.host, running.port, timeout=10) as client:
            await client.publish("sensors/a/temp", b"1", qos=1)
            await client.publish("others", b"2", qos=1)
        figures = {
            (family.name, sample.labels): sample.value
            for family in running.broker.metrics.families()
            for sample in family.samples
        }
    assert figures["stream_messages", (("stream", "sensors"),)] == 1


@pytest.mark.parametrize(
    "stream", [{}, {"filters": []}, {"filters": ["a"], "partitions": 0}, {"filters": ["a"], "x": 1}]
)
def test_options_that_cannot_be(stream: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"streams": {"s": stream}}, SparkConfig)


async def test_pipelines_become_gauges(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "pipelines" / "sensors"
    folder.mkdir(parents=True)
    status.write(folder, RunnerStatus(state="running", restarts=3))
    query = QueryProgress(
        batch=4,
        rows=50,
        rows_per_second=2.5,
        batch_seconds=1.5,
        late=6,
        lag={"s": {"0": 7, "1": 8}},
    )
    status.write(folder, Progress({"averages": query, "alerts": QueryProgress()}))
    plugin = SparkPlugin()
    async with FakeBroker(tmp_path) as broker:
        assert broker.data_dir == tmp_path / "data"
        with os.fdopen(present(take_lock(folder))):
            await plugin.start(broker, msgspec.convert({"interval": 0.1}, SparkConfig))
            up = {name: list(read()) for name, read in broker.gauges.items()}
        await until(lambda: not plugin.statuses[0].is_running)
        gone = {name: list(read()) for name, read in broker.gauges.items()}
    of_query = {"pipeline": "sensors", "query": "averages"}
    assert up["spark_pipeline_up"] == [({"pipeline": "sensors"}, 1)]
    assert up["spark_query_lag"] == [
        ({**of_query, "stream": "s", "partition": "0"}, 7),
        ({**of_query, "stream": "s", "partition": "1"}, 8),
    ]
    figures = {name: samples[0] for name, samples in up.items() if name.startswith("spark_query")}
    assert {name: value for name, (labels, value) in figures.items() if labels == of_query} == {
        "spark_query_batch": 4,
        "spark_query_batch_seconds": 1.5,
        "spark_query_late": 6,
        "spark_query_rows": 50,
        "spark_query_rows_per_second": 2.5,
    }
    assert gone.pop("spark_pipeline_up") == [({"pipeline": "sensors"}, 0)]
    assert gone.pop("spark_pipeline_restarts") == [({"pipeline": "sensors"}, 3)]
    assert set(map(len, gone.values())) == {0}
