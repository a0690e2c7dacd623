"""Fixtures that several test folders use."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from vmq.cli.memory import collect_rarely
from vmq.testing.forks import fork_helpers
from vmq.testing.process import BrokerProcess

pytest_plugins = ["tests.support.forking"]

# On a bare checkout the programs that tests start find the packages of the shelves as the tests do.
_SHELVES = [Path(__file__).parents[1] / name for name in ("hooks", "cluster")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [*(str(each) for each in _SHELVES if each.is_dir()), os.environ.get("PYTHONPATH")])
)


# What tests write is gone after them: where there is enough memory, no broker of theirs waits for a disk.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


# A suite that a shell runs in its background has SIGINT ignored, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectstart() -> None:
    """Until all tests are collected, little of what is made is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Ten thousand tests are a million objects, which the collector would look through for each test anew.

    What of them is garbage stays, too: to find it takes each process a second.
    """
    gc.freeze()
    gc.enable()
    collect_rarely()  # as `vmq start` does
    if "vmq.streams.serving.process" in sys.modules:
        fork_helpers()


class BrokerFactory(Protocol):
    """Starts a broker that ends with the test, whatever the test does with it."""

    def __call__(
        self,
        listen: Sequence[str] = ("tcp://127.0.0.1:0",),
        data_dir: Path | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = ("--allow-anonymous",),
    ) -> BrokerProcess: ...


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """The one broker of ordinary tests, on TCP and WebSocket, with default options.

    Only the limits on the levels of a topic and on CONNECT are off, since the standard has none, and the log has all
    lines, however many tests close their connections at once.

    It is shared: a test uses client ids and topics of its own.
    """
    listen = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt")
    env = {
        "VMQ_LIMITS__TOPIC_MAX_DEPTH": "0",
        "VMQ_SESSION__MAX_CONNECT_SIZE": "327699",
        "VMQ_LOG__FLOOD_LIMIT": "0",
    }
    with BrokerProcess.start(listen=listen, env=env, args=("--allow-anonymous",)) as process:
        yield process


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port of 127.0.0.1 where nobody listens, nor can as long as the test goes on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def fresh_broker() -> Iterator[BrokerFactory]:
    """A factory of brokers for tests that need options, a restart or an empty broker.

    Options travel as environment variables, e.g. `env={"VMQ_QUEUE__MAX_INFLIGHT_MESSAGES": "1"}`.
    Starting twice with the same `data_dir` (the first one ended) is a restart.
    """
    with ExitStack() as stack:

        def start(
            listen: Sequence[str] = ("tcp://127.0.0.1:0",),
            data_dir: Path | None = None,
            env: Mapping[str, str] | None = None,
            args: Sequence[str] = ("--allow-anonymous",),
        ) -> BrokerProcess:
            return stack.enter_context(BrokerProcess.start(listen, data_dir, env, args))

        yield start
