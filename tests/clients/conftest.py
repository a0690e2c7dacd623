"""Fixtures: the client programs, and a factory of clients that are gone when the test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.factory import ClientFactory, unique
from tests.clients.program import Program
from tests.support.node import installed_modules
from vmq.testing.process import BrokerProcess


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """MQTT.js, installed as the lock file says unless it is there."""
    return installed_modules()


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Program]]:
    """The running program of a name; it is started when first asked for, and shared by all tests."""
    running: dict[str, Program] = {}

    def program(name: str) -> Program:
        if name not in running:
            if name == "mqttjs":
                request.getfixturevalue("node_modules")
            running[name] = Program(name)
        return running[name]

    yield program
    for started in running.values():
        started.close()


@pytest.fixture(scope="session")
def roomy_broker() -> Iterator[BrokerProcess]:
    """A broker whose queues have no limit: a client slower than its publisher loses nothing."""
    listen = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt")
    env = {"VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1", "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1"}
    with BrokerProcess.start(listen=listen, env=env, args=("--allow-anonymous",)) as process:
        yield process


@pytest.fixture
def clients(broker: BrokerProcess, programs: Callable[[str], Program]) -> Iterator[ClientFactory]:
    """Makes clients of the broker with default options."""
    factory = ClientFactory(broker, programs)
    yield factory
    factory.close()


@pytest.fixture
def roomy_clients(
    roomy_broker: BrokerProcess, programs: Callable[[str], Program]
) -> Iterator[ClientFactory]:
    """Makes clients of the broker whose queues have no limit."""
    factory = ClientFactory(roomy_broker, programs)
    yield factory
    factory.close()


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses; hang further levels below it."""
    return f"clients/{unique()}"
