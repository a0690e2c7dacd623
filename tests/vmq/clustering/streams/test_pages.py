"""Who reads messages one by one at a node, and where other nodes own them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.stream_nodes import TOPICS, fill, kept, leave, nodes, owners, stream
from tests.vmq.streamed import streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.messages.streams import AskOffsets, AskPage
from vmq.clustering.streams import asking
from vmq.clustering.streams.pages import read
from vmq.streams.log.errors import StreamError
from vmq.streams.log.message import TailQuery
from vmq.streams.logs import LogsAnywhere
from vmq.streams.places import PageQuery
from vmq.streams.tail import Tail


def logs_of(broker: Broker) -> LogsAnywhere:
    return LogsAnywhere(stream(broker, "s"), streams_of(broker).catalog.places)


async def tail_of(broker: Broker, **query: Any) -> Tail:
    wanted = TailQuery(stream="s", **query)
    return await asyncio.to_thread(Tail, logs_of(broker), wanted)


async def told(tail: Tail) -> list[bytes]:
    return [each.payload for each in await asyncio.to_thread(lambda: list(tail.messages()))]


async def test_any_node_tells_the_whole_stream_also_while_owners_change(tmp_path: Path) -> None:
    given = options(filters=["x/#"], partitions=6, key="topic")
    async with nodes(tmp_path, "a", "b", s=given) as (a, b):
        assert set(owners(a, "s")) == {"a", "b"}
        await fill(a, TOPICS, 1, "one")
        await until(lambda: kept([a, b], "s") == len(TOPICS))
        first = sorted(f"one {each}".encode() for each in TOPICS)
        tails = [await tail_of(each, start="earliest") for each in (a, b)]
        for tail in tails:
            assert sorted(await told(tail)) == first
        [some] = [await tail_of(b, last=5, filter="x/+")]
        assert len(await told(some)) == 5
        # A time that all have is found in the other one's logs, too.
        assert sorted(await told(await tail_of(a, time=1))) == first
        assert not await asyncio.to_thread(tails[0].wait, 0.0)
        await leave(b)
        await until(lambda: set(owners(a, "s")) == {"a"})
        await fill(a, TOPICS, 1, "two")
        assert await asyncio.to_thread(tails[0].wait, 10.0)
        second = sorted(f"two {each}".encode() for each in TOPICS)
        assert sorted(await told(tails[0])) == second
        assert tails[0].missing() == ""


async def test_what_an_owner_cannot_read_it_says(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=options(filters=["x/#"])) as (a, b):
        [owner] = owners(a, "s")
        here = a if owner == "b" else b
        with pytest.raises(StreamError, match="offset 9 of stream 's', partition 0, is out of"):
            await asyncio.to_thread(logs_of(here).page, 0, PageQuery(9, 10, 1, 1))


async def test_questions_of_others_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(tmp_path, "a", "b", s=options(filters=["x/#"])) as (a, b):
        owner = a if owners(a, "s") == ["a"] else b
        await fill(owner, ["x/1"], 1, "m")
        await until(lambda: kept([owner], "s") == 1)
        places = clustering(owner).streams.places
        assert places is not None
        # Another one's partition, or none: whoever asks finds out elsewhere.
        for number in (7, 0):
            places.pages.on_ask("z", AskPage(1, "s" if number else "t", number, 0, 1, 1, 1))
        under_way = places._readings._under_way
        assert not under_way
        monkeypatch.setattr(asking, "_MOST", 1)
        asked = (
            [AskPage(each, "s", 0, 0, 1, 1, 1) for each in (1, 1, 2)],
            [AskOffsets(1, "s", 1)] * 2,
        )
        for questions in asked:
            for each in questions:
                places.on_message("z", each)
            assert under_way == {("z", questions[0])}
            await until(lambda: not under_way)
        found = read(stream(owner, "s").partitions[0], AskPage(3, "s", 0, 0, 1 << 40, 9, 0))
        assert (found.question, found.next, found.error) == (3, 1, "")
