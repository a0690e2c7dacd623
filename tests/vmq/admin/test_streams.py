"""Streams of many partitions are listed and shown while clients are served."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vmq.streamed import config_in, streams_of
from tests.vmq.streams.support import options
from vmq.admin.streams import ColumnRow, create_stream, list_streams, show_stream
from vmq.broker import Broker
from vmq.streams import admin
from vmq.streams.serving import opening

PARTITIONS = 200


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    streams = {
        name: options(filters=[f"{name}/#"], partitions=PARTITIONS, durability="memory")
        for name in "abcd"
    }
    async with Broker(config_in(tmp_path, **streams)) as broker:
        yield broker


async def passes_during(asked: Awaitable[object], told: Callable[[int], None]) -> int:
    """How many passes of the loop others have until an answer is there; each is told."""
    answer = asyncio.ensure_future(asked)
    passes = 0
    while not answer.done():
        passes += 1
        told(passes)
        await asyncio.sleep(0)
    return passes


async def test_streams_are_listed_some_partitions_at_a_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, looked_at = 0, dict[str, int]()
    row = admin.row

    def noted(stream: Any) -> dict[str, Any]:
        looked_at[stream.name] = passes
        return row(stream)

    def told(now: int) -> None:
        nonlocal passes
        passes = now

    monkeypatch.setattr(admin, "row", noted)
    await passes_during(list_streams(broker).rows(), told)
    assert [*looked_at] == [*"abcd"]
    assert looked_at["a"] < looked_at["d"]
    rows = await list_streams(broker).rows()
    assert [(each.stream, each.partitions) for each in rows] == [(n, PARTITIONS) for n in "abcd"]


async def test_the_libraries_of_the_first_stream_are_loaded_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading: list[bool] = []
    check = opening.check_libraries

    def noted() -> None:
        loading.append(threading.current_thread() is threading.main_thread())
        check()

    monkeypatch.setattr(opening, "check_libraries", noted)
    async with Broker(config_in(tmp_path)) as broker:
        assert (await create_stream(broker, "s", {"filters": ["s/#"]})).stream == "s"
    assert not loading[0], "they take half a second"


async def test_a_stream_is_shown_some_partitions_at_a_time(broker: Broker) -> None:
    assert await passes_during(show_stream(broker, "b"), lambda _: None) >= 3
    shown = await show_stream(broker, "b")
    assert [row.partition for row in shown.partitions] == [*range(PARTITIONS)]


async def test_what_does_not_fit_is_shown_of_a_stream_that_is_small(tmp_path: Path) -> None:
    declared = options(filters=["s/#"], partitions=2, schema={"temp": "double", "n": "int64"})
    async with Broker(config_in(tmp_path, s=declared)) as broker:
        streams = streams_of(broker)
        appender = streams.catalog.streams["s"].appender
        for payload in (b'{"temp": "warm", "n": 1}', b'{"temp": 1}', b"broken"):
            appender.append(b"s/1", payload, 0, False, "c", 1)
        await streams.commits.wait()
        shown = await show_stream(broker, "s")
        assert shown.columns == [ColumnRow("temp", 3, 1, 1), ColumnRow("n", 3, 2, 0)]
        assert shown.invalid == 1
