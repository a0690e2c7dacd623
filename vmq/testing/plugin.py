"""The fixtures, as a plugin that pytest finds by itself (entry point `pytest11`).

It is loaded in every suite of an environment that has vmq, so it imports nothing but pytest before a fixture is used.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from vmq_hooks.testing import StartedPlugin

    from vmq.testing.client import AsyncMqttClient, MqttClient
    from vmq.testing.process import BrokerProcess
    from vmq.testing.spark import SparkStream
    from vmq.testing.thread import BrokerThread


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line(
        "markers",
        "vmq(**options): the broker of vmq_broker, vmq_process or vmq_spark_stream gets these keywords of vmq.Broker",
    )


@pytest.fixture
def vmq_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The keywords of `vmq.Broker` for this test's broker; a suite may define its own.

    By itself those of the marks `@pytest.mark.vmq(...)` on the module, the class and the test; the nearest wins.
    """
    marks = list(request.node.iter_markers("vmq"))
    options: dict[str, Any] = {}
    for mark in reversed(marks):
        if mark.args:
            raise TypeError(f"@pytest.mark.vmq has {mark.args[0]!r}; accepted: keywords")
        options.update(mark.kwargs)
    return options


@pytest.fixture
def vmq_broker(vmq_options: dict[str, Any], tmp_path: Path) -> "Iterator[BrokerThread]":
    """A broker in the test's process, at a free port (`vmq.testing.BrokerThread`)."""
    from vmq.testing.thread import BrokerThread

    with BrokerThread(folder=tmp_path / "vmq", **vmq_options) as broker:
        yield broker


@pytest.fixture
def vmq_process(vmq_options: dict[str, Any], tmp_path: Path) -> "Iterator[BrokerProcess]":
    """A broker as a process of its own, that can be killed (`vmq.testing.BrokerProcess`)."""
    from vmq.testing.process import BrokerProcess

    folder = tmp_path / "vmq"
    with BrokerProcess.configured(data_dir=folder, **vmq_options) as broker:
        yield broker


@pytest.fixture
def vmq_spark_stream(vmq_options: dict[str, Any], tmp_path: Path) -> "Iterator[SparkStream]":
    """A broker with one stream, to be read with Arrow, DuckDB or Spark (`vmq.testing.SparkStream`)."""
    from vmq.testing.spark import SparkStream

    with SparkStream(folder=tmp_path / "vmq", **vmq_options) as stream:
        yield stream


@pytest.fixture
def vmq_client(request: pytest.FixtureRequest) -> "Iterator[Callable[..., MqttClient]]":
    """Connects clients of the test, by client id, user name and more; they end with it.

    They connect to the broker of `vmq_process` if the test has that fixture, else of `vmq_broker`; `url` names another.
    """
    from vmq.testing.client import MqttClient

    broker = _broker_of(request)
    with ExitStack() as stack:

        def connect(client_id: str = "", *, url: str = "", **options: Any) -> MqttClient:
            client = MqttClient(url or broker().url, client_id, **_trusting(broker, url, options))
            return stack.enter_context(client)

        yield connect


@pytest.fixture
def vmq_async_client(request: pytest.FixtureRequest) -> "Callable[..., AsyncMqttClient]":
    """Makes clients for tests that are coroutines; `async with` connects one."""
    from vmq.testing.client import AsyncMqttClient

    broker = _broker_of(request)

    def make(client_id: str = "", *, url: str = "", **options: Any) -> AsyncMqttClient:
        return AsyncMqttClient(url or broker().url, client_id, **_trusting(broker, url, options))

    return make


@pytest.fixture
def vmq_hooks(tmp_path: Path) -> "Callable[..., AbstractContextManager[StartedPlugin]]":
    """Starts plugins and stops them at the end of a `with`, beside a broker that remembers what they asked for.

    See `vmq_hooks.testing.started`; the folder is the test's tmp_path.
    """
    from vmq_hooks.testing import started

    return partial(started, folder=tmp_path)


def _broker_of(request: pytest.FixtureRequest) -> "Callable[[], BrokerThread | BrokerProcess]":
    """Finds the broker that the test's clients connect to when the first of them does."""
    named = [each for each in _BROKERS if each in request.fixturenames]

    def find() -> Any:
        return request.getfixturevalue(named[0] if named else _BROKERS[-1])

    return find


_BROKERS = ("vmq_process", "vmq_spark_stream", "vmq_broker")


def _trusting(broker: Callable[[], Any], url: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a client, which trusts the certificate of the test's own broker."""
    context = None if url else getattr(broker(), "context", None)
    return options if context is None else {"context": context, **options}
