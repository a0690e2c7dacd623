import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.until import until
from tests.vmq.streamed import config_in, streams_of
from tests.vmq.streams.support import options
from vmq.admin import streams
from vmq.admin.errors import AdminError, RefusedError
from vmq.broker import Broker
from vmq.config.options import LimitOptions
from vmq.streams import catalog as streams_catalog
from vmq.streams import leaving as streams_leaving
from vmq.streams.admin import create_stream, delete_stream, show_stream
from vmq.streams.catalog import Catalog
from vmq.streams.log.commits import Commits
from vmq.streams.log.errors import StreamError, UnknownStreamError


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    declared = {"temp": options(filters=["a", "b"], partitions=2)}
    catalog = Catalog(tmp_path, declared, Commits(asyncio.get_running_loop()))
    catalog.start()
    yield catalog
    await catalog.close()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "streams.made: Object missing required field `filters`"),
        ({"filters": ["a"], "acks": "all"}, r"streams\.made: Invalid enum value 'all'"),
        ({"filters": ["a"], "replicas": 3}, r"replicas = 3: there is no cluster; accepted: 1"),
        ({"filters": ["a/#/b"]}, r"streams\.made\.filters: misplaced # in filter"),
        ({"filters": ["a"], "size": 5}, "unknown field `size`"),
    ],
)
async def test_wrong_options_are_named(
    catalog: Catalog, given: dict[str, object], text: str
) -> None:
    with pytest.raises(StreamError, match=text):
        await create_stream(catalog, "made", given)
    assert len(catalog.streams) == 1


async def test_a_broker_alone_has_no_more_partitions_than_it_takes(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        config_in(tmp_path, s="s/#"), limits=LimitOptions(max_partitions=4)
    )
    async with Broker(config) as broker:
        create = {"filters": ["t/#"], "partitions": 2}
        assert (await streams.create_stream(broker, "t", create)).partitions == 2
        with pytest.raises(AdminError, match="no room for 2 partitions: there are 3 of 4"):
            await streams.create_stream(broker, "u", {**create, "filters": ["u/#"]})
        with pytest.raises(RefusedError, match="no room for 2 partitions: there are 3 of 4"):
            await streams.alter_stream(broker, "t", {"partitions": 4})
        assert (await streams.alter_stream(broker, "t", {"partitions": 3})).partitions == 3
        await broker.publish("t/1", b"p", qos=1)
        with pytest.raises(RefusedError, match="has 3 partitions, and none goes"):
            await streams.alter_stream(broker, "t", {"partitions": 2})


async def test_new_partitions_of_a_broker_alone_take_rows_and_outlive_it(tmp_path: Path) -> None:
    made = {"filters": ["t/#"], "key": "topic"}
    for count in (1, 3):
        async with Broker(config_in(tmp_path)) as broker:
            if count == 1:
                await streams.create_stream(broker, "t", made)
                assert (await streams.alter_stream(broker, "t", {"partitions": 3})).partitions == 3
            for number in range(32):
                await broker.publish(f"t/{number}", b"p", qos=1)
            found = (await streams.show_stream(broker, "t")).partitions
            rows = [each.end for each in found]
            assert all(rows)
            assert (len(rows), sum(each or 0 for each in rows)) == (3, 32 if count == 1 else 64)


async def test_a_stream_that_is_deleted_has_no_files_when_that_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be there again after a crash. Nobody waits for the files but who asks."""
    may_go, rmtree = threading.Event(), shutil.rmtree
    synced: list[Path] = []
    monkeypatch.setattr(streams_leaving, "sync_folder", synced.append)

    def slow(folder: Path) -> None:
        may_go.wait()
        rmtree(folder)

    monkeypatch.setattr(shutil, "rmtree", slow)
    async with Broker(config_in(tmp_path)) as broker:
        for _ in range(2):
            await streams.create_stream(broker, "t", {"filters": ["t/#"]})
            await broker.publish("t/1", b"p", qos=1)
            await streams_of(broker).commits.wait()
            deleting = asyncio.create_task(streams.delete_stream(broker, "t"))
            await asyncio.wait([deleting], timeout=0.05)
            assert not deleting.done()
            assert len(left(tmp_path)) > 0
        may_go.set()
        assert (await deleting).stream == "t"
        assert synced == [tmp_path / "data" / "streams"] * 2
        await until(lambda: left(tmp_path) == [])
        # The disk fails.
        await streams.create_stream(broker, "u", {"filters": ["u/#"]})
        monkeypatch.setattr(streams_catalog, "set_aside", fail)
        with pytest.raises(RefusedError, match="cannot delete the stream's files: Input/output"):
            await streams.delete_stream(broker, "u")


def left(folder: Path) -> list[Path]:
    """What there is of streams with a t in their names."""
    return list(folder.glob("data/streams/*t*"))


def fail(_folder: Path, _close: Callable[[], None]) -> Path:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_what_cannot_be_done_is_said(catalog: Catalog) -> None:
    for ask in (show_stream, delete_stream):
        with pytest.raises(UnknownStreamError, match="there is no stream 'x'; there are: temp"):
            ask(catalog, "x")
    with pytest.raises(StreamError, match=r"the configuration; take \[streams.temp\] out"):
        delete_stream(catalog, "temp")
    with pytest.raises(StreamError, match="there is a stream 'temp' already"):
        await create_stream(catalog, "temp", {"filters": ["a"]})
