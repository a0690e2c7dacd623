"""Snapshots at an interval, over a real connection."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from vmq_graphite import GraphiteConfig, GraphitePlugin
from vmq_hooks.testing import FakeBroker, FakeCounter, Figure

from tests.plugins.vmq_graphite.test_sender import TIMEOUT, graphite
from vmq.testing.ports import lasting_port


async def test_figures_arrive_again_and_again(tmp_path: Path) -> None:
    async with graphite() as server, FakeBroker(tmp_path, node_name="n") as broker:
        broker.figures = [Figure("bytes_sent", 1)]
        config = GraphiteConfig("127.0.0.1", server.port, interval=0.001, prefix="key")
        GraphitePlugin().start(broker, config)
        for _ in range(2):
            sent, dropped = await server.next(2)
            assert sent.startswith("key.n.bytes.sent 1 ")
            assert dropped.startswith("key.n.graphite.dropped 0 ")


async def test_without_graphite_the_broker_goes_on(tmp_path: Path) -> None:
    dropped = asyncio.Event()

    class Counter(FakeCounter):
        def add(self, amount: int = 1) -> None:
            dropped.set()

    port = lasting_port()  # where nobody listens
    async with FakeBroker(tmp_path) as broker, asyncio.timeout(TIMEOUT):
        broker.counters["graphite_dropped"] = Counter("graphite_dropped", "")
        broker.figures = [Figure(f"x{index}", 1) for index in range(1000)]
        config = GraphiteConfig("127.0.0.1", port, interval=0.0001, buffer_bytes=65536)
        GraphitePlugin().start(broker, config)
        await dropped.wait()


@pytest.mark.parametrize(
    "options",
    [{"port": 0}, {"host": ""}, {"interval": 0}, {"prefix": "a b"}, {"buffer_bytes": 1}, {"x": 1}],
)
def test_options_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, GraphiteConfig)
