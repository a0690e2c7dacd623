"""What tests of links share."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.cluster.test_link import End


@pytest.fixture
async def ends() -> AsyncIterator[list[End]]:
    """Whatever a test puts in is stopped at its end."""
    found: list[End] = []
    yield found
    for end in found:
        await asyncio.wait_for(end.link.stop(), 10)
