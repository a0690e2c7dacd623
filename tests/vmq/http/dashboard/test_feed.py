import asyncio
import json
import logging
from typing import Any

import pytest

from tests.support.peer import Peer
from tests.vmq.support import Clock
from vmq.admin.errors import RefusedError
from vmq.broker import Broker
from vmq.http.dashboard import feed as module
from vmq.http.dashboard.feed import Feed, OpenPage, ReasonTimes
from vmq.http.dashboard.reading import BrokerReader
from vmq.runtime.health import Health


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def reader(broker: Broker, clock: Clock) -> BrokerReader:
    return BrokerReader(broker, clock)


@pytest.fixture
def feed(reader: BrokerReader, clock: Clock) -> Feed:
    return Feed(reader, clock)


async def told(page: OpenPage) -> dict[str, Any]:
    """What a page is told, by kind."""
    text = (await page.take()).decode()
    found = {}
    for each in text.strip().split("\n\n"):
        kind, data = each.split("\n")
        found[kind.removeprefix("event: ")] = json.loads(data.removeprefix("data: "))
    return found


async def test_a_second_is_encoded_once_for_a_hundred_pages(feed: Feed, clock: Clock) -> None:
    pages = [feed.join() for _ in range(100)]
    feed.tick()
    for page in pages:
        await page.take()
    before = feed.encodings
    sizes = []
    for _ in range(60):
        clock.now += 1
        feed.tick()
        for page in pages:
            sizes.append(len(await page.take()))
    assert feed.encodings == before + 60
    assert max(sizes) < 1000, "bytes a second for one page"


async def test_without_a_page_nothing_is_encoded_and_all_is_kept(feed: Feed, clock: Clock) -> None:
    for _ in range(5):
        feed.tick()
        clock.now += 1
    assert feed.encodings == 0
    assert len(feed.history) == 5


async def test_a_page_is_told_what_there_is(feed: Feed, broker: Broker) -> None:
    Peer(broker.registry(), "me").publish("a")
    page = feed.join()
    feed.tick()
    found = (await told(page))["tick"]
    assert found["time"] == 1000
    assert found["status"] == "ok"
    assert found["reasons"] == []
    assert len(found["values"]) == len(feed.history.names)


async def test_who_comes_later_is_told_what_was_told_last(feed: Feed, reader: BrokerReader) -> None:
    feed.join()
    await reader.walk()
    feed.tick()
    assert set(await told(feed.join())) == {"tick", "warnings", "worst"}


async def test_a_slow_page_is_left_out_and_holds_nothing_up(feed: Feed, clock: Clock) -> None:
    page = feed.join()
    for _ in range(1000):
        clock.now += 1
        feed.tick()
    found = await told(page)
    assert found["tick"]["time"] == 2000
    assert set(found) == {"tick", "warnings"}


async def test_pages_are_bounded(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PAGES", 2)
    pages = [feed.join(), feed.join()]
    with pytest.raises(RefusedError, match="2 pages are open already"):
        feed.join()
    feed.leave(pages[0])
    feed.join()


async def test_the_end_is_told_to_all_pages(feed: Feed) -> None:
    page = feed.join()
    feed.close()
    assert await page.take() == b""
    assert page.is_closed
    assert not feed.pages


async def test_warnings_are_told_when_there_are_new_ones(feed: Feed, reader: BrokerReader) -> None:
    page = feed.join()
    feed.tick()
    await page.take()
    reader.log.handle(logging.makeLogRecord({"msg": "<b>", "levelno": 30, "levelname": "WARNING"}))
    feed.tick()
    found = await told(page)
    assert [row["text"] for row in found["warnings"]] == ["<b>"]
    assert found["tick"]["warnings"] == 1
    feed.tick()
    assert set(await told(page)) == {"tick"}


async def test_it_runs_by_itself(broker: Broker) -> None:
    reader = BrokerReader(broker)
    feed = Feed(reader)
    task = asyncio.create_task(feed.run())
    page = feed.join()
    kinds: set[str] = set()
    while kinds < {"tick", "worst", "warnings"}:
        kinds |= set(await told(page))
    assert reader.walks
    task.cancel()
    await asyncio.wait([task])
    assert reader.log not in logging.getLogger("vmq").handlers


def test_a_reason_is_the_same_while_its_figures_change() -> None:
    times = ReasonTimes()
    first = times.see(Health([], ["the event loop was 1.2 s late"]), 10.0)
    second = times.see(Health(["the store cannot write"], ["the event loop was 3.4 s late"]), 20.0)
    assert [(each.since, each.failing) for each in first] == [(10.0, False)]
    assert [(each.since, each.failing) for each in second] == [(20.0, True), (10.0, False)]
    assert times.see(Health([], []), 30.0) == []
    assert times.see(Health([], ["the event loop was 1.2 s late"]), 40.0)[0].since == 40.0
