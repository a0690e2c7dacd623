"""`/health` and what is below it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.support.present import present
from tests.vmq.http.conftest import get
from vmq import Broker
from vmq.config.options import BrokerOptions, Config, ListenerOptions
from vmq.listeners.listener import Listener
from vmq.testing.process import BrokerProcess

HEALTH = ("/health", "/health/live", "/health/ready", "/health/ping", "/health/listeners")


def test_a_broker_in_order_is_well(web_broker: BrokerProcess) -> None:
    for path in HEALTH:
        answer = get(web_broker.http, path)
        assert answer.status == 200
        assert answer.json()["status"] == "ok"
        assert answer.json()["reasons"] == []
        assert answer.headers["Cache-Control"] == "no-store"


def test_listeners_are_shown_with_their_real_addresses(web_broker: BrokerProcess) -> None:
    listeners = get(web_broker.http, "/health/listeners").json()["listeners"]
    assert [each["url"] for each in listeners.values()] == web_broker.urls
    assert all(each["accepting"] for each in listeners.values())


@pytest.fixture
async def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    # A machine that is busy with others makes the loop late; which is a reason in one test and in no other.
    monkeypatch.setattr("vmq.runtime.health.UNWELL_LAG", 60.0)
    config = Config(
        broker=BrokerOptions(data_dir=str(tmp_path)),
        listeners={
            "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
            "http": ListenerOptions(url="http://127.0.0.1:0"),
        },
    )
    async with Broker(config) as broker:
        yield broker


async def health_of(broker: Broker, path: str = "/health") -> tuple[int, list[str]]:
    async with ClientSession() as session, session.get(broker.addresses[1] + path) as answer:
        body = await answer.json()
        expected = "failing" if answer.status == 503 else "degraded" if body["reasons"] else "ok"
        assert body["status"] == expected
        return answer.status, body["reasons"]


async def test_a_listener_that_stopped_accepting_is_named(embedded: Broker) -> None:
    embedded.listeners["tcp"].close()
    url = embedded.addresses[0]
    reasons = [f"listener tcp ({url}) does not accept connections"]
    assert await health_of(embedded) == (503, reasons)
    assert await health_of(embedded, "/health/listeners") == (503, reasons)
    assert await health_of(embedded, "/health/ready") == (503, reasons)
    assert await health_of(embedded, "/health/live") == (200, [])
    assert await health_of(embedded, "/health/ping") == (200, [])


async def test_a_listener_that_has_clients_wait_for_files_keeps_them_out(embedded: Broker) -> None:
    listener = embedded.listeners["tcp"]
    assert isinstance(listener, Listener)
    present(listener._acceptor).pause_for_want(OSError())
    for path in ("/health", "/health/ready", "/health/listeners"):
        status, (reason,) = await health_of(embedded, path)
        assert status == 503
        assert "tcp://127.0.0.1" in reason
        assert "has clients wait: no more files may be open (ulimit -n)" in reason
    assert await health_of(embedded, "/health/live") == (200, [])


async def test_a_store_that_cannot_write_is_a_reason(embedded: Broker) -> None:
    store = embedded.parts.core.store
    assert store is not None
    store.failing = True
    assert await health_of(embedded) == (503, ["the store cannot write"])
    assert await health_of(embedded, "/health/ready") == (503, ["the store cannot write"])
    assert await health_of(embedded, "/health/live") == (200, [])
    store.failing = False
    assert await health_of(embedded) == (200, [])


async def test_a_loop_that_is_late_is_a_reason(embedded: Broker) -> None:
    embedded.monitor.look(61.2)
    reasons = ["the event loop was 61.2 s late in the last seconds"]
    assert await health_of(embedded) == (200, reasons)
    assert await health_of(embedded, "/health/ready") == (200, [])


async def test_memory_that_is_high_keeps_new_clients_out(embedded: Broker) -> None:
    embedded.parts.core.memory_is_high = True
    status, (reason,) = await health_of(embedded, "/health/ready")
    assert (status, reason.partition(":")[0]) == (503, "memory is high")
    assert await health_of(embedded, "/health/live") == (200, [])
