"""What tests of streams share."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.vmq.streams.support import OPENED, Opener
from vmq.config.streams import StreamOptions
from vmq.streams.catalog import Catalog
from vmq.streams.log.commits import Commits


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    OPENED.clear()  # other folders have tests that open some, and close them
    yield
    while OPENED:
        if not (partition := OPENED.pop()).closed:
            partition.close()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opener]:
    """Makes catalogs of the same folder, which are closed when the test ends."""
    catalogs: list[Catalog] = []

    def open_one(**declared: StreamOptions) -> Catalog:
        catalog = Catalog(tmp_path / "streams", declared, Commits(asyncio.get_running_loop()))
        catalog.start()
        catalogs.append(catalog)
        return catalog

    yield open_one
    for catalog in catalogs:
        if catalog.janitor.thread.is_alive():
            await catalog.close()
