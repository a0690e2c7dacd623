"""What tests of jobs share: a broker that serves them, and who talks with it."""

import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.vmq.jobs.serving import TCP, client_of, config_of
from tests.vmq.sockets import Peer, peer_of, session_of
from vmq.broker import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """With a listener for jobs, and one for MQTT."""
    async with Broker(config_of(tmp_path)) as broker:
        yield broker


@pytest.fixture
async def redis(broker: Broker) -> AsyncIterator[Any]:
    """A client of the listener for jobs."""
    async with client_of(broker) as client:
        yield client


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[Peer]:
    async with peer_of(broker, TCP) as peer:
        yield peer


@pytest.fixture
async def device(broker: Broker) -> AsyncIterator[Peer]:
    """The client "c", connected."""
    async with session_of(broker, listener=TCP) as peer:
        yield peer


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were synced while they had these, in threads: the event loop does not wait for a disk."""
    found: list[str] = []
    sync = os.fsync

    def fsync(fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            found.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return found
