"""The section's streams, of a real broker."""

from __future__ import annotations

from pathlib import Path

import aiomqtt
import msgspec
import pytest
from vmq_hooks.testing import FakeBroker
from vmq_hooks.testing.running import running_broker
from vmq_spark import SparkConfig, SparkPlugin

from vmq.config_streams import from_plain


async def test_each_table_becomes_a_stream_that_the_broker_accepts(tmp_path: Path) -> None:
    section = {"streams": {"a": {"filters": ["a/#"]}, "b": {"filters": ["b"], "partitions": 1}}}
    async with FakeBroker(tmp_path) as broker:
        await SparkPlugin().start(broker, msgspec.convert(section, SparkConfig))
        found = {name: from_plain(name, options) for name, options in broker.streams.items()}
    assert {name: each.filters for name, each in found.items()} == {"a": ["a/#"], "b": ["b"]}
    assert [each.partitions for each in found.values()] == [4, 1]
    assert all(each.acks == "os" and each.key == "client_id" for each in found.values())


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
    "stream",
    [{}, {"filters": []}, {"filters": ["a"], "partitions": 0}, {"filters": ["a"], "x": 1}],
)
def test_options_that_cannot_be(stream: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"streams": {"s": stream}}, SparkConfig)
