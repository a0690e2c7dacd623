"""Readers of streams that are deleted and made anew, or made anew by their plugins."""

import asyncio
from pathlib import Path

import pytest

from tests.vmq.sockets import peer_of
from tests.vmq.streamed import streams_of
from tests.vmq.streams.replay.test_port import (
    broker_of,
    fill,
    payload_of,
    readers,
    reading,
    subscribe,
)
from tests.vmq.streams.support import options


async def test_a_stream_that_a_plugin_wants_later_is_read_on(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        await streams_of(broker).declare("p", {"filters": ["p/#"]})
        await fill(broker, "p/1")
    async with broker_of(tmp_path) as broker, peer_of(broker) as first, peer_of(broker) as second:
        await reading(first, "$replay/earliest;stream=p/p/#")
        await reading(second, "$share/g/$stream/p;from=earliest/p/#", client_id="m")
        assert [await payload_of(each) for each in (first, second)] == ["p/1"] * 2
        await streams_of(broker).declare("p", {"filters": ["p/#", "q/#"], "partitions": 2})
        await fill(broker, "p/2")
        assert [await payload_of(each) for each in (first, second)] == ["p/2"] * 2


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize(
    "topic",
    [
        "$replay/@board;from=earliest/t/#",
        "$replay/earliest/t/#",
        "$share/g/$stream/t;from=earliest/t/#",
    ],
)
async def test_a_stream_that_is_made_anew_is_read_from_its_beginning(
    tmp_path: Path, topic: str, is_away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers end with the stream, and no place of theirs counts for another one of its name."""
    async with broker_of(tmp_path) as broker, peer_of(broker) as other:
        catalog = streams_of(broker).catalog
        await catalog.create("t", options(filters=["t/#"]))
        await fill(broker, "t/1", "t/2")
        async with peer_of(broker) as peer:
            await reading(peer, topic, clean=False)
            assert [await payload_of(peer) for _ in range(2)] == ["t/1", "t/2"]
            await peer.ask(b"\xc0\x00", b"\xd0\x00")
            if is_away:
                peer.send(b"\xe0\x00")
                assert await peer.rest() == b""
            await asyncio.wrap_future(catalog.delete("t"))
            assert not readers(broker).by_number
            assert not readers(broker).groups.all
            assert ("the stream 't' was deleted" in caplog.text) is not is_away
            assert await readers(broker).keeping.listed("") == []
            await catalog.create("t", options(filters=["t/#"]))
            await fill(broker, "t/3", "t/4", "t/5")
            if not is_away:
                await subscribe(peer, topic)
                assert [await payload_of(peer) for _ in range(3)] == ["t/3", "t/4", "t/5"]
                return
        # Its session goes on by itself, with what it had subscribed to.
        assert (await other.connect("r", clean=False)).body[0] == 1
        assert [await payload_of(other) for _ in range(3)] == ["t/3", "t/4", "t/5"]
