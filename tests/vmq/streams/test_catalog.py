import asyncio
import errno
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import PATIENCE, until
from tests.vmq.streams.support import Opener, options, payloads
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.damaged import open_partition
from vmq.streams.growing import grow
from vmq.streams.log.commits import Commits
from vmq.streams.log.errors import StreamError, UnknownPartitionError, UnknownStreamError
from vmq.streams.log.partition import Partition


async def append(catalog: Catalog, topic: str, payload: bytes) -> int:
    appenders = catalog.appenders(topic)
    for appender in appenders:
        appender.append(topic.encode(), payload, 1, False, "c", int(time.time() * 1e6))
    await catalog.commits.wait()
    return len(appenders)


async def test_messages_flow_into_the_streams_whose_filters_match(opened: Opener) -> None:
    catalog = opened(
        temp=options(filters=["+/temp", "x/#"]), everything=options(filters=["#"]), two=options()
    )
    assert await append(catalog, "a/temp", b"1") == 3
    assert await append(catalog, "a/b", b"2") == 2
    assert await append(catalog, "$SYS/x", b"3") == 0
    assert payloads(catalog.get("temp").partitions[0]) == [b"1"]
    assert payloads(catalog.get("everything").partitions[0]) == [b"1", b"2"]


async def test_streams_survive_a_restart_with_their_options(opened: Opener) -> None:
    catalog = opened(temp=options(filters=["a"]))
    await catalog.create("made", options(filters=["a"], key="topic"))
    await append(catalog, "a", b"1")
    assert await catalog.close()
    catalog = opened(temp=options(filters=["a", "b"], partitions=2))
    assert catalog.get("made").options == options(filters=["a"], key="topic")
    assert len(catalog.get("temp").partitions) == 2
    assert await append(catalog, "a", b"2") == 2
    assert await append(catalog, "b", b"3") == 1
    assert payloads(catalog.get("made").partitions[0]) == [b"1", b"2"]


async def test_a_stream_that_left_the_configuration_is_kept_and_fed_no_more(opened: Opener) -> None:
    catalog = opened(temp=options(filters=["a"]))
    await append(catalog, "a", b"1")
    await catalog.close()
    catalog = opened()
    assert await append(catalog, "a", b"2") == 0
    assert payloads(catalog.get("temp").partitions[0]) == [b"1"]
    await catalog.close()
    catalog = opened(temp=options(filters=["a"]))
    assert await append(catalog, "a", b"3") == 1
    assert payloads(catalog.get("temp").partitions[0]) == [b"1", b"3"]


async def test_a_deleted_stream_is_gone_with_what_was_gathered(
    opened: Opener, tmp_path: Path
) -> None:
    catalog = opened()
    changes: list[int] = []
    catalog.on_change = lambda: changes.append(1)
    stream = await catalog.create("made", options(filters=["a"]))
    await append(catalog, "a", b"1")
    stream.appender.append(b"a", b"2", 1, False, "c", 1)
    await asyncio.wrap_future(catalog.delete("made"))
    assert changes == [1, 1]
    assert catalog.appenders("a") == []
    with pytest.raises(StreamError, match="stream 'made' is closed or deleted"):
        payloads(stream.partitions[0])
    assert [path.name for path in (tmp_path / "streams").iterdir()] == ["LOCK"]
    with pytest.raises(UnknownStreamError, match="there is no stream 'made'; there are: none"):
        catalog.get("made")
    await catalog.commits.wait()


async def test_waiting_ends_when_a_row_comes(opened: Opener) -> None:
    stream = opened(temp=options(partitions=2)).get("temp")
    pairs = [(partition, 0) for partition in stream.partitions]
    assert not stream.wait(pairs, 0.0)
    waiting = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> bool:
        loop.call_soon_threadsafe(waiting.set)
        return stream.wait(pairs, 30)

    thread = asyncio.create_task(asyncio.to_thread(wait))
    await waiting.wait()
    stream.appender.append(b"a", b"1", 1, False, "c", int(time.time() * 1e6))
    assert await thread
    assert stream.watchers == 0


async def test_a_deletion_that_was_interrupted_is_finished(opened: Opener, tmp_path: Path) -> None:
    catalog = opened()
    await catalog.create("made", options())
    await catalog.close()
    (tmp_path / "streams" / "made").rename(tmp_path / "streams" / ".deleted-made")
    catalog = opened()
    assert catalog.streams == {}
    await until(lambda: not (tmp_path / "streams" / ".deleted-made").exists())


async def test_what_cannot_be_is_refused(opened: Opener, tmp_path: Path) -> None:
    catalog = opened(temp=options(partitions=3))
    with pytest.raises(StreamError, match="there is a stream 'temp' already"):
        await catalog.create("temp", options())
    for name in ("../x", "A", "", "a" * 101):
        with pytest.raises(StreamError, match="is no name for a stream; accepted"):
            await catalog.create(name, options())
    with pytest.raises(StreamError, match="stands in the configuration"):
        catalog.delete("temp")
    with pytest.raises(UnknownPartitionError, match=r"no partition 3; accepted: 0 to 2"):
        catalog.get("temp").partition(3)
    with pytest.raises(StreamError, match="is in use by another process"):
        opened()
    await catalog.close()
    with pytest.raises(StreamError, match=r"streams.temp.partitions = 2: there are 3"):
        opened(temp=options(partitions=2))


async def test_a_stream_has_an_id_and_one_that_is_made_anew_another(
    opened: Opener, tmp_path: Path
) -> None:
    """Whatever its options are, and whoever makes it."""
    catalog = opened(kept=options())
    made = (await catalog.create("made", options())).stream_id
    kept = catalog.get("kept").stream_id
    assert len({made, kept, ""}) == 3
    catalog.adopt("made", options(filters=["b"]), "command")
    assert catalog.get("made").stream_id == made
    await catalog.close()
    catalog = opened(kept=options(filters=["c"]))
    assert [catalog.get(name).stream_id for name in ("kept", "made")] == [kept, made]
    await append(catalog, "x", b"1")
    may_go, followed = threading.Event(), asyncio.Event()
    catalog.commits.writer.call(may_go.wait)
    gone = catalog.delete("made")
    assert catalog.leaving.then("made", followed.set)
    with pytest.raises(
        StreamError,
        match="one is being made, or grows, or the stream 'made' of before is still being deleted: try again",
    ):
        await catalog.create("made", options())
    may_go.set()
    await catalog.leaving.see_off("made")
    assert not (tmp_path / "streams" / "made").exists(), "else it would take the new one's with it"
    await followed.wait()
    assert not catalog.leaving.then("made", followed.set)
    anew = await catalog.create("made", options())
    assert anew.stream_id > made, "of two the older one's is less"
    await asyncio.wrap_future(gone)
    assert anew.folder.is_dir()
    assert anew.partitions[0].end == 0
    catalog.adopt("made", options(), "command", "of-the-cluster")
    await catalog.close()
    catalog = opened(kept=options())
    assert catalog.get("made").stream_id == "of-the-cluster"
    await catalog.close()
    shutil.rmtree(tmp_path / "streams" / "kept")
    catalog = opened(kept=options())
    assert catalog.get("kept").stream_id not in {kept, ""}


async def test_a_stream_that_is_deleted_makes_room_while_the_writer_waits_for_it(
    opened: Opener, tmp_path: Path
) -> None:
    catalog = opened()
    partition = (await catalog.create("made", options())).partitions[0]
    await append(catalog, "x", b"1")
    partition.roll()
    (sealed,) = partition.sealed
    may_go = threading.Event()
    catalog.commits.writer.call(may_go.wait)
    gone = catalog.delete("made")
    await until(lambda: not sealed.path.exists())
    assert not gone.done()
    may_go.set()
    await asyncio.wrap_future(gone)
    assert [each.name for each in (tmp_path / "streams").iterdir()] == ["LOCK"]


async def test_a_definition_that_cannot_be_read_is_named(opened: Opener, tmp_path: Path) -> None:
    catalog = opened()
    await catalog.create("made", options())
    await catalog.close()
    path = tmp_path / "streams" / "made" / "stream.json"
    before = path.read_text()
    for text in ("{", before.replace('"none"', '"bz2"'), "[]"):
        path.write_text(text)
        with pytest.raises(StreamError, match=r"made/stream\.json cannot be used"):
            opened()
    path.unlink()
    with pytest.raises(StreamError, match="is no stream"):
        opened()


async def test_a_broker_alone_makes_no_more_partitions_than_it_takes(tmp_path: Path) -> None:
    commits = Commits(asyncio.get_running_loop())
    catalog = Catalog(tmp_path / "streams", {"s": options(partitions=3)}, commits, limit=5)
    catalog.start()
    with pytest.raises(
        StreamError, match=r"no room for 3 partitions: there are 3 of 5 \(limits.max"
    ):
        await catalog.create("t", options(partitions=3))
    with pytest.raises(StreamError, match="no room for 4 partitions"):
        await catalog.declare("t", options(partitions=4))
    assert list(catalog.streams) == ["s"]
    await catalog.create("t", options(partitions=2))
    await catalog.close()


async def test_partitions_are_made_beside_the_event_loop_by_one_at_a_time(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened()
    began, may_go = asyncio.Event(), threading.Event()
    loop, add = asyncio.get_running_loop(), Stream.open_more

    def wait(stream: Stream, count: int) -> None:
        loop.call_soon_threadsafe(began.set)
        assert may_go.wait(30)
        add(stream, count)

    monkeypatch.setattr(Stream, "open_more", wait)
    making = asyncio.create_task(catalog.create("made", options(partitions=2)))
    await began.wait()
    with pytest.raises(StreamError, match="one is being made"):
        await catalog.create("made", options())
    followed = asyncio.Event()
    assert catalog.leaving.then("made", followed.set)
    making.cancel()  # who asked gives up
    may_go.set()
    await followed.wait()
    await until(lambda: "made" in catalog.streams)
    assert len(catalog.get("made").partitions) == 2
    began.clear()
    may_go.clear()
    growing = asyncio.create_task(grow(catalog.leaving, catalog.get("made"), 3))
    await began.wait()
    with pytest.raises(StreamError, match="or grows"):
        catalog.delete("made")
    assert catalog.leaving.is_busy("made")
    may_go.set()
    await growing
    assert [each.number for each in catalog.get("made").partitions] == [0, 1, 2]
    await asyncio.wrap_future(catalog.delete("made"))


async def test_a_stream_whose_definition_could_not_be_written_is_none(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a folder and nothing in it no broker would start."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    catalog = opened()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            await catalog.create("made", options())
    await catalog.close()
    catalog = opened()
    assert not catalog.streams
    assert (await catalog.create("made", options())).stream_id


async def test_partitions_are_opened_together_and_all_or_none(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the disk: a thousand one after another held up the broker for seconds."""
    together, made = threading.Barrier(3), list[Partition]()
    failing = {2}

    def meet(folder: Path, stream: str, number: int, *given: Any) -> Partition:
        together.wait(PATIENCE)
        if number in failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        made.append(open_partition(folder, stream, number, *given))
        return made[-1]

    catalog = opened()
    monkeypatch.setattr("vmq.streams.catalog.open_partition", meet)
    with pytest.raises(OSError, match="Input/output error"):
        await catalog.create("made", options(partitions=3))
    assert [each.closed for each in made] == [True, True]
    failing.clear()
    stream = await catalog.create("made", options(partitions=3))
    assert [each.number for each in stream.partitions] == [0, 1, 2]
