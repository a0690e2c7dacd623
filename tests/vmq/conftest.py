"""What tests of the core and of the configuration share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.vmq.sockets import config_in
from tests.vmq.support import Client, House, stored_house
from vmq.broker import Broker
from vmq.config.options import BrokerOptions, Config, ListenerOptions, StoreOptions


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test's configuration file is written."""
    return tmp_path / "test.toml"


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    return house.client("c")


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[House]:
    with stored_house(tmp_path) as house:
        yield house


@pytest.fixture
def config(tmp_path: Path) -> Config:
    # "memory": acknowledgements do not wait for the next commit, so that everything happens within the call.
    return Config(
        broker=BrokerOptions(data_dir=str(tmp_path / "data")),
        listeners={"tcp": ListenerOptions(url="tcp://127.0.0.1:0")},
        store=StoreOptions(durability="memory"),
    )


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker in this process with one TCP listener."""
    async with Broker(config_in(tmp_path)) as broker:
        yield broker
