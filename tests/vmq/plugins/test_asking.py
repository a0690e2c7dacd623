"""What a plugin asks of its handle besides messages: gauges, and streams that the broker keeps."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from vmq_hooks import Broker, Plugin

from tests.vmq.plugins.support import TIMEOUT, serving

pytest.importorskip("pyarrow")


class Keeper(Plugin):
    """Keeps a stream, and tells two figures."""

    def __init__(self, filters: list[str], name: str = "kept") -> None:
        self.options: Mapping[str, Any] = {"filters": filters}
        self.name = name
        self.broken = False

    async def start(self, broker: Broker, config: Any) -> None:
        broker.gauge("lag", "How far behind.", self.read)
        await broker.declare_stream(self.name, self.options)

    def read(self) -> Iterator[tuple[Mapping[str, str], float]]:
        yield {"pipeline": "a"}, 1
        if self.broken:
            raise LookupError("broken")
        yield {"pipeline": "b"}, 2.5


async def test_a_plugins_stream_takes_messages(tmp_path: Path) -> None:
    async with serving(tmp_path, {"keeper": Keeper(["a/#"])}) as broker:
        port = int(broker.addresses[0].rpartition(":")[2])
        async with aiomqtt.Client("127.0.0.1", port, timeout=TIMEOUT) as client:
            await client.publish("a/b", b"1", qos=1)
            await client.publish("b", b"2", qos=1)
        taken = [each for each in broker.metrics.families() if each.name == "stream_messages"]
        assert taken[0].samples == (((("stream", "kept"),), 1),)


async def test_gauges_are_figures_while_the_plugin_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(["a"])
    async with serving(tmp_path, {"keeper": keeper}) as broker:

        def found() -> list[tuple[dict[str, str], float]]:
            families = [each for each in broker.metrics.families() if each.name == "vmq_plugin_lag"]
            return [(dict(one.labels), one.value) for each in families for one in each.samples]

        assert found() == [
            ({"plugin": "keeper", "pipeline": "a"}, 1),
            ({"plugin": "keeper", "pipeline": "b"}, 2.5),
        ]
        keeper.broken = True
        assert found() == []
        assert "its gauge lag cannot be read" in caplog.text
        caplog.clear()
        keeper.broken = False
        await broker.plugins.disable("keeper")
        assert found() == []


@pytest.mark.parametrize(
    ("name", "filters", "said"),
    [
        ("No", ["a"], "no name for a stream"),
        ("kept", ["a/#/b"], r"streams\.kept\.filters"),
        ("kept", [], "filters"),
    ],
)
async def test_a_stream_that_cannot_be_keeps_the_plugin_from_starting(
    tmp_path: Path, name: str, filters: list[str], said: str
) -> None:
    from vmq.broker import StartError

    with pytest.raises(StartError, match=said):
        async with serving(tmp_path, {"keeper": Keeper(filters, name)}):
            pass
