"""What tests of the core and of the configuration share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.vmq.sockets import config_in
from tests.vmq.support import Client, House, stored_house
from vmq.broker import Broker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test's configuration file is written."""
    return tmp_path / "test.toml"


@pytest.fixture
def house() -> House:
    """A house without a store."""
    return House()


@pytest.fixture
def client(house: House) -> Client:
    """The client "c" of that house."""
    return house.client("c")


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[House]:
    """A house with a store."""
    with stored_house(tmp_path) as house:
        yield house


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker in this process with one TCP listener."""
    async with Broker(config_in(tmp_path)) as broker:
        yield broker
