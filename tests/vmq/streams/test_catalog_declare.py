"""Streams that plugins declare while the broker runs."""

import threading

import pytest

from tests.vmq.streams.support import Opener, options, payloads
from tests.vmq.streams.test_catalog import append
from vmq.streams.catalog import Stream
from vmq.streams.log.errors import StreamError


async def test_a_declared_stream_is_fed_until_nobody_declares_it(opened: Opener) -> None:
    catalog = opened()
    changes: list[None] = []
    catalog.on_change = lambda: changes.append(None)
    made = await catalog.declare("s", options(filters=["a"]))
    assert (await catalog.declare("s", options(filters=["a"]))) is made
    assert len(changes) == 1
    assert await append(catalog, "a", b"1") == 1
    with pytest.raises(StreamError, match="is a plugin's"):
        catalog.delete("s")
    await catalog.close()

    catalog = opened()
    assert await append(catalog, "a", b"lost") == 0
    assert payloads(catalog.get("s").partitions[0]) == [b"1"]
    await catalog.declare("s", options(filters=["a"]))
    assert await append(catalog, "a", b"2") == 1
    assert payloads(catalog.get("s").partitions[0]) == [b"1", b"2"]
    await catalog.close()

    catalog = opened()
    await_removed = catalog.delete("s")
    await_removed.result(10)
    assert not (catalog.folder / "s").exists()


async def test_other_options_are_taken_after_a_restart(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened()
    await catalog.declare("s", options(filters=["a"], partitions=2))
    await append(catalog, "a", b"1")
    with pytest.raises(StreamError, match="after a restart"):
        await catalog.declare("s", options(filters=["b"], partitions=2))
    await catalog.close()

    catalog = opened()
    with pytest.raises(StreamError, match="there are 2, and messages in them"):
        await catalog.declare("s", options(filters=["b"]))
    opening: list[bool] = []
    open_more = Stream.open_more

    def noted(self: Stream, count: int) -> None:
        if count > len(self.partitions):
            opening.append(threading.current_thread() is threading.main_thread())
        open_more(self, count)

    monkeypatch.setattr(Stream, "open_more", noted)
    stream = await catalog.declare("s", options(filters=["b"], partitions=3))
    assert opening == [False], "each partition takes the disk a moment"
    assert len(stream.partitions) == 3
    assert await append(catalog, "b", b"2") == 1
    assert sorted(each for part in stream.partitions for each in payloads(part)) == [b"1", b"2"]


async def test_names_of_others_are_taken(opened: Opener) -> None:
    catalog = opened(mine=options(filters=["a"]))
    await catalog.create("made", options(filters=["a"]))
    with pytest.raises(StreamError, match="made by the configuration"):
        await catalog.declare("mine", options(filters=["a"]))
    with pytest.raises(StreamError, match="made by a command"):
        await catalog.declare("made", options(filters=["a"]))
    with pytest.raises(StreamError, match="no name for a stream"):
        await catalog.declare("No Name", options(filters=["a"]))
