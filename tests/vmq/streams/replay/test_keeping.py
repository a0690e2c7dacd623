"""Where readers are reaches the disk, also after that has failed; unless it counts no more."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.until import until
from tests.vmq.streamed import config_in, streams_of
from vmq.broker import Broker
from vmq.streams.reader_places import CursorError, CursorKey, Place
from vmq.streams.replay.cursors import Cursors


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_what_could_not_be_kept_is_tried_again_unless_it_was_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    key, place = CursorKey("client c", "n"), Place({0: 5}, {})

    def fail(*_args: Any, **_given: Any) -> None:
        raise CursorError("no disk")

    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        readers, catalog = streams_of(broker).readers, streams_of(broker).catalog
        keeping, stream = readers.keeping, catalog.get("s").ref.text
        keeping.unwritten[key] = key, stream, place
        with monkeypatch.context() as patch:
            patch.setattr(Cursors, "keep", fail)
            keeping.keep()
            if is_forgotten:
                keeping.forget_here(key)
            await until(lambda: keeping.is_failing)
        keeping.keep()
        await until(lambda: not keeping.unwritten)
        assert await keeping.listed("client c") == ([] if is_forgotten else [(key, stream, place)])


async def test_who_looked_before_a_reader_ended_goes_on_where_that_was(tmp_path: Path) -> None:
    """What it found is from before, also if that has been written since."""
    key, place = CursorKey("client c", "n"), Place({0: 5}, {})
    async with Broker(config_in(tmp_path, s="s/#")) as broker:
        keeping = streams_of(broker).readers.keeping
        stream = streams_of(broker).catalog.get("s")
        reader: Any = SimpleNamespace(key=key, stream=stream, place=lambda: place)
        before = time.monotonic()
        assert keeping.find(key, stream.ref) is None
        keeping.leave(reader)
        await until(lambda: not keeping.unwritten)
        assert keeping.unwritten_of(key, stream.ref, before) == place
        assert keeping.unwritten_of(key, stream.ref, time.monotonic()) is None, "`find` finds it"
        await keeping.forget(key)
        assert keeping.unwritten_of(key, stream.ref, before) is None
