"""A broker inside the test's process, to look into."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from vmq.broker import Broker
from vmq.config.options import (
    BrokerOptions,
    Config,
    ListenerOptions,
    StoreOptions,
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    # "memory": acknowledgements do not wait for the next commit, so that everything happens within the call.
    return Config(
        broker=BrokerOptions(data_dir=str(tmp_path / "data")),
        listeners={"tcp": ListenerOptions(url="tcp://127.0.0.1:0")},
        store=StoreOptions(durability="memory"),
    )


@pytest.fixture
async def node(config: Config) -> AsyncIterator[Broker]:
    async with Broker(config) as broker:
        yield broker
