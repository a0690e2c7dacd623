"""Figures are published at an interval, whatever went wrong before."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest
from vmq_hooks.testing import FakeBroker, Figure, Published
from vmq_systree import SystreeConfig, SystreePlugin


class Broker(FakeBroker):
    """Tells of each round of figures."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, node_name="n")
        self.rounds: asyncio.Queue[None] = asyncio.Queue()
        self.figures = [Figure("bytes_sent", 1), Figure("socket_open", 2)]

    def metrics(self) -> list[Figure]:
        self.rounds.put_nowait(None)
        return [each for each in self.figures if isinstance(each, Figure)]


def start(broker: FakeBroker, **options: object) -> None:
    config = msgspec.convert({"interval": 0.001, **options}, SystreeConfig)
    SystreePlugin().start(broker, config)


async def test_all_figures_again_and_again(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, asyncio.timeout(10):
        start(broker)
        for _ in range(3):
            await broker.rounds.get()
        expected = [Published("$SYS/n/bytes/sent", b"1"), Published("$SYS/n/socket/open", b"2")]
        assert broker.published[:4] == expected * 2


async def test_as_the_options_have_it(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, asyncio.timeout(10):
        start(broker, prefix="figures", qos=1, retain=True, mountpoint="site")
        for _ in range(2):
            await broker.rounds.get()
        assert broker.published[0] == Published("figures/n/bytes/sent", b"1", 1, True, "site")


async def test_a_failure_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with Broker(tmp_path) as broker, asyncio.timeout(10):
        broker.publish_error = RuntimeError("the store is full")
        start(broker)
        for _ in range(3):
            await broker.rounds.get()
        told = [each.message for each in caplog.records if each.name.startswith("vmq.")]
        assert told == ["the figures were not published: the store is full"]
        broker.publish_error = None
        for _ in range(2):
            await broker.rounds.get()
        assert broker.published


@pytest.mark.parametrize(
    "options",
    [
        {"interval": 0},
        {"prefix": ""},
        {"prefix": "a/#"},
        {"prefix": "+"},
        {"qos": 3},
        {"topic": "x"},
    ],
)
def test_options_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, SystreeConfig)
