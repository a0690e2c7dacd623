"""A page stays small, however much there is to see."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.live_page import LivePage
from tests.support.peer import Peer
from tests.support.wire import publish_packet
from vmq.http.dashboard.dashboard import dashboard_of
from vmq.http.dashboard.links import links_of
from vmq.http.dashboard.reading import BrokerReader
from vmq.testing import BrokerThread

CLIENTS = 10_000
TOPICS = 100_000
BRANCHES = 100
MOST_NODES = 2000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    """A broker in the test's process, with many clients and topics; clients are connections without a socket."""
    listen = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
    with BrokerThread(folder=tmp_path, listen=listen) as broker:

        async def fill() -> None:
            registry = broker.broker.registry()
            for number in range(CLIENTS):
                Peer(registry, f"client-{number}").subscribe((f"to/{number}", 0))
            publisher = Peer(registry, "publisher")
            for first in range(0, TOPICS, 500):
                topics = (f"t/{each % BRANCHES}/{each}" for each in range(first, first + 500))
                publisher.send(b"".join(publish_packet(topic, b"x") for topic in topics))

        broker.run(fill())
        yield broker


def test_many_clients_and_topics_are_few_elements(page: LivePage, broker: BrokerThread) -> None:
    async def link() -> str:
        return links_of(dashboard_of(broker.broker))[0]

    page.enter(broker.run(link()))
    page.watch_long_tasks()
    page.go("clients")
    page.says("The first 200; there are more")
    assert page.value("document.querySelectorAll('tbody tr').length") == 200
    assert page.nodes() <= MOST_NODES
    page.go("topics")
    page.until("document.querySelector('[data-path=t]')")
    assert " k" in page.value("document.querySelector('[data-path=t]').innerText")
    page.run("() => { document.querySelector('[data-path=t]').click(); }")
    page.until(f"document.querySelectorAll('[data-path]').length === {BRANCHES + 1}")
    closed = "document.querySelector('[data-path^=\"t/\"][aria-expanded=false]')"
    for _ in range(12):  # beyond what fits, branches make room for those that are opened
        page.until(closed)
        path = page.run(f"() => {{ const row = {closed}; row.click(); return row.dataset.path; }}")
        opened = f"document.querySelector('[data-path={json.dumps(path)}][aria-expanded=true]')"
        page.until(f"{opened} || !document.querySelector('[data-path={json.dumps(path)}]')")
    page.until("document.body.innerText.includes('more')")
    assert page.value("document.querySelectorAll('[data-path]').length") <= 500
    assert page.nodes() <= MOST_NODES

    async def cost() -> tuple[int, int, int]:
        dashboard = dashboard_of(broker.broker)
        reader = dashboard.source.figures
        assert isinstance(reader, BrokerReader)
        return dashboard.feed.encodings, len(dashboard.feed.history), reader.walks

    before = broker.run(cost())
    page.go("now")
    page.until("document.querySelectorAll('.u-wrap canvas').length === 10")
    after = broker.run(cost())
    page.long_tasks("bounds")
    ticks, walks = after[1] - before[1], after[2] - before[2]
    assert after[0] - before[0] <= 2 * ticks + walks, "encoded once a tick, and for new warnings"
