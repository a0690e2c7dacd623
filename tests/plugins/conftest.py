"""Fixtures for tests of plugins by themselves."""

import asyncio
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def heard() -> Iterator[asyncio.Queue[str]]:
    """What the plugin logs, as it comes."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    handler = logging.Handler()
    handler.emit = lambda record: lines.put_nowait(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("vmq.plugins.test")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(handler)
    log.setLevel(level)
