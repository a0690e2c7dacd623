"""A broker for the tests of a file, and clients of it."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.wire import Wire
from vmq.testing.process import BrokerProcess

Connect = Callable[..., Wire]


@pytest.fixture(scope="module")
def shared() -> Iterator[BrokerProcess]:
    """A broker for the tests of this file; each uses client ids, topics and queues of its own."""
    with BrokerProcess.start(args=("--allow-anonymous",)) as process:
        yield process


@pytest.fixture
def connect(shared: BrokerProcess) -> Iterator[Connect]:
    wires: list[Wire] = []

    def connected(client_id: str, *, clean: bool = True, broker: BrokerProcess = shared) -> Wire:
        wire = Wire.connect_tcp(broker.tcp)
        wires.append(wire)
        wire.connect(client_id, clean=clean)
        return wire

    yield connected
    for wire in wires:
        wire.stream.close()
