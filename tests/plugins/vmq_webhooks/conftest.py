from collections.abc import AsyncIterator

import pytest

from tests.plugins.vmq_webhooks.server import Hooks, web_server


@pytest.fixture
async def server() -> AsyncIterator[Hooks]:
    async with web_server() as hooks:
        yield hooks
