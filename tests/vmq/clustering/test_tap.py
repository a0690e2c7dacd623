"""Where a message for a stream goes, and what becomes of it where it cannot go there."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import clustering, until
from tests.vmq.clustering.stream_nodes import kept, nodes, owners, stream, total
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.appends import Append
from vmq.clustering.publishes import MAX_HOPS
from vmq.clustering.tap import Tap

ONE = options(filters=["x/#"])
MESSAGE = Append("s", b"x/1", b"payload", 1, "device", 1_700_000_000_000_000)


def sides(a: Broker, b: Broker) -> tuple[Broker, Broker]:
    """The owner of the one partition, and the other node."""
    return (a, b) if owners(a, "s") == ["a"] else (b, a)


def tap(broker: Broker) -> Tap:
    return clustering(broker).streams.tap(stream(broker, "s"))


def flush(broker: Broker) -> None:
    clustering(broker).lanes.flush()


async def test_who_is_no_owner_sends_a_message_on(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=ONE) as (a, b):
        owner, other = sides(a, b)
        assert tap(other).take(MESSAGE) == 0
        flush(other)
        await until(lambda: kept([owner], "s") == 1)
        assert kept([other], "s") == 0


async def test_a_sender_may_know_sooner_who_the_owner_is(tmp_path: Path) -> None:
    """To send it back would let a later message overtake it."""
    async with nodes(tmp_path, "a", "b", s=ONE) as (a, b):
        _, other = sides(a, b)
        since = clustering(other).streams.since("s", 0)
        assert since > 0
        assert tap(other).take(replace(MESSAGE, since=since)) == 0
        assert tap(other).take(replace(MESSAGE, since=since + 1)) > 0


async def test_a_message_that_finds_no_owner_stays_and_goes_there_later(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", s=ONE) as (a, b):
        owner, other = sides(a, b)
        streams = clustering(other).streams
        streams._on_append("a", replace(MESSAGE, hops=MAX_HOPS))
        await until(lambda: kept([other], "s") == 1 or kept([owner], "s") == 1)
        await until(lambda: kept([owner], "s") == 1 and kept([other], "s") == 0)
        assert await total([owner], "s") == [b"payload"]


async def test_what_another_node_has_acknowledged_is_taken_though_the_lane_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(tmp_path, "a", "b", s=ONE) as (a, b):
        owner, other = sides(a, b)
        monkeypatch.setattr(tap(other), "_takes", lambda *_: False)
        assert tap(other).take(MESSAGE) > 0
        assert tap(owner).take(MESSAGE) > 0


async def test_without_room_a_publisher_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(tmp_path, "a", "b", s=ONE) as (a, b), Device("p") as p:
        owner, other = sides(a, b)
        await p.connect(other)
        with monkeypatch.context() as patch:
            patch.setattr(tap(other), "_takes", lambda *_: False)
            p.publish("x/1", "again", 1)
            await p.until(lambda: not p.is_connected)
        assert len(p.unfinished) == 1
        assert stream(other, "s").appender.refused == 1
        await p.connect(other)
        await p.until(lambda: not p.unfinished)
        await until(lambda: kept([owner], "s") == 1)


async def test_at_qos_0_what_is_for_a_node_that_is_down_is_dropped_and_counted(
    tmp_path: Path,
) -> None:
    async with nodes(tmp_path, "a", "b", s=ONE) as (a, b):
        owner, other = sides(a, b)
        await owner.stop()
        await until(lambda: not clustering(other).node.up)
        await other.publish("x/1", b"gone", qos=0)
        taps = tap(other)
        assert taps.append_run(b"x/1", [b"1", b"2"], 0, False, "p", 1) < 0
        assert stream(other, "s").appender.dropped == 3
        assert stream(other, "s").appender.refused == 0


async def test_a_message_is_acknowledged_when_the_store_has_it_for_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        nodes(tmp_path, "a", "b", durability="os", s=ONE) as (a, b),
        Device("p") as p,
        Device("q", clean=True) as q,
    ):
        owner, other = sides(a, b)
        await p.connect(other)
        committer = other._committer
        assert committer is not None
        store = committer.store
        assert store is not None
        await committer.finish_all()
        with monkeypatch.context() as patch:
            patch.setattr(committer, "commit", lambda: None)
            p.publish("x/1", "one", 1)
            await until(lambda: bool(store.dirty))
            await q.connect(other)
            q.publish("y", "", 0)
            assert len(p.unfinished) == 1
            assert kept([owner], "s") == 0
        committer.commit()
        await p.until(lambda: not p.unfinished)
        await until(lambda: kept([owner], "s") == 1)
