"""What tests of the dashboard share."""

from collections.abc import AsyncIterator

import pytest

from vmq.broker import Broker
from vmq.config.options import Config


@pytest.fixture
async def broker(config: Config) -> AsyncIterator[Broker]:
    async with Broker(config) as found:
        yield found
