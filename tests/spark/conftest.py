"""One Spark session and one broker for the whole run; a test has streams of its own in it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.sessions import QUICK_JAVA, local_session
from tests.spark.support import (
    SHORT,
    STREAMS,
    TWICE,
    Bridge,
    executors_environment,
    stream_environment,
)
from tests.support.tools import missing, require_tool
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTEN = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
#: Seconds that a test may take. The first one of a run starts the JVM, which takes long on a busy machine; and one that
#: is interrupted while it waits for the JVM leaves all that follow without one.
LIMIT = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/spark/") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session. A task may fail three times, as in a cluster: local[2] alone repeats none."""
    require_tool("java")
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        missing("pyspark")
    # Spark's loggers of errors do not propagate, so pytest gives them its own handler; theirs would make it write JSON,
    # in the tests that follow too.
    setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)  # noqa: B010 - mypy takes no method for another
    before = dict(os.environ)
    os.environ.update(executors_environment() | QUICK_JAVA)
    session = local_session(
        "local[2,4]",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def stage() -> Iterator[BrokerProcess]:
    """The broker of most tests."""
    with BrokerProcess.start(
        LISTEN, env=stream_environment(STREAMS) | TWICE | SHORT, args=("--allow-anonymous",)
    ) as process:
        yield process


@pytest.fixture(scope="session")
def bridge(spark: SparkSession, stage: BrokerProcess) -> Bridge:
    return Bridge(spark, stage)


@pytest.fixture
def own_broker(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Bridge]]:
    """Starts brokers of a test's own; with the same `port` again, that is a restart."""
    running: list[BrokerProcess] = []

    def start(
        *,
        listen: tuple[str, ...] = LISTEN,
        args: tuple[str, ...] = ("--allow-anonymous",),
        **env: str,
    ) -> Bridge:
        process = BrokerProcess.start(listen, tmp_path / "broker", env=env, args=args)
        running.append(process)
        return Bridge(spark, process)

    yield start
    for process in running:
        process.close()
