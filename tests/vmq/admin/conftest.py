"""A broker inside the test's process, to look into."""

from collections.abc import AsyncIterator

import pytest

from vmq.broker import Broker
from vmq.config.options import Config


@pytest.fixture
async def node(config: Config) -> AsyncIterator[Broker]:
    async with Broker(config) as broker:
        yield broker
