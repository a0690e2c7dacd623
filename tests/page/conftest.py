"""A broker with its page, and a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.listeners.browser import Page, chromium
from tests.page.live_page import LivePage
from tests.support.node import installed_modules
from vmq.testing.process import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")

PageBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser, for all tests of a module."""
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(window: Page) -> Iterator[LivePage]:
    """The browser's page, of 1280 by 800, with nothing of the test before."""
    live = LivePage(window)
    live.resize(1280, 800)
    live.page.call("Storage.clearDataForOrigin", origin="*", storageTypes="all")
    yield live
    live.page.open("about:blank")


@pytest.fixture
def start_page(tmp_path: Path) -> Iterator[PageBroker]:
    """Starts brokers with a page; they end with the test."""
    started: list[BrokerProcess] = []

    def start(
        config: str = "", name: str = "data", listen: tuple[str, ...] = LISTEN
    ) -> BrokerProcess:
        arguments: list[str] = []
        if config:
            file = tmp_path / f"{name}.toml"
            file.write_text(config)
            arguments = ["--config", str(file)]
        broker = BrokerProcess.start(listen, data_dir=tmp_path / name, args=arguments)
        started.append(broker)
        return broker

    yield start
    for each in started:
        each.close()


@pytest.fixture(scope="session")
def axe() -> str:
    return (installed_modules() / "axe-core" / "axe.min.js").read_text()
