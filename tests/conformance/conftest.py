"""Fixtures of the conformance tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.conformance.peers import Peers
from tests.support.wire import Wire
from vmq.testing.process import BrokerProcess

_numbers = count(1)


@pytest.fixture
def peers_at() -> Iterator[Callable[[BrokerProcess], Peers]]:
    """A factory of clients at a given broker."""
    with ExitStack() as stack:

        def make(broker: BrokerProcess) -> Peers:
            return Peers(broker, f"c{next(_numbers)}", stack)

        yield make


@pytest.fixture
def peers(broker: BrokerProcess, peers_at: Callable[[BrokerProcess], Peers]) -> Peers:
    return peers_at(broker)


@pytest.fixture
def topic(peers: Peers) -> str:
    return peers.topic("a")


@pytest.fixture
def watcher(peers: Peers) -> Wire:
    """A client that sees all that is published below the test's own level."""
    return peers.watcher()


@pytest.fixture
def raw(peers: Peers) -> Wire:
    """A connection on which nothing was sent yet."""
    return peers.raw()


@pytest.fixture
def wire(peers: Peers) -> Wire:
    """An accepted client."""
    return peers.client()


@pytest.fixture
def publisher(peers: Peers) -> Wire:
    """An accepted client that is not `wire`."""
    return peers.client()
