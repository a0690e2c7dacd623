"""Mappings that read a stream: each row once, whatever ends; what they wait for, and what is refused."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.until import until
from tests.vmq.jobs.mappings.test_mapping import options as mapping
from tests.vmq.jobs.mappings.test_mapping import problems
from tests.vmq.jobs.mqtt.test_publishing import bodies
from tests.vmq.jobs.serving import client_of, config_of
from tests.vmq.streamed import payloads_of, streams_of
from tests.vmq.streams.groups.test_members import publish
from tests.vmq.streams.support import options as stream
from vmq.admin.errors import AdminError
from vmq.admin.jobs.mappings import list_mappings, switch, try_out
from vmq.broker import Broker
from vmq.config.checks import check
from vmq.config.mappings import MappingOptions, mapping_problems
from vmq.config.options import ConfigError
from vmq.mqtt.special import SpecialTopicError
from vmq.streams.replay.group_admin import groups_of
from vmq.streams.replay.group_request import GroupRequest
from vmq.streams.staging.state import BusyError

SOURCE = "$stream/s;from=earliest"
DOUBLE = mapping(SOURCE, "out/${level(2)}", payload="string(json * 2)")


@asynccontextmanager
async def broker_of(folder: Path, **mappings: MappingOptions) -> AsyncIterator[Broker]:
    """Streams `s`, which is read, and `out`, which has what came of it."""
    streams = {
        "s": stream(filters=["s/#"], partitions=2, key="topic"),
        "out": stream(filters=["out/#"]),
    }
    config = config_of(folder)
    listeners = dict(reversed(config.listeners.items()))  # that of MQTT first
    config = msgspec.structs.replace(
        config, listeners=listeners, streams=streams, mappings=mappings
    )
    async with Broker(config) as broker:
        yield broker


async def out_has(broker: Broker, *expected: int) -> None:
    """Waits until as much is there; it is just that then."""
    stream = streams_of(broker).catalog.get("out")
    await until(lambda: sum(each.end for each in stream.partitions) >= len(expected))
    assert sorted(map(int, await payloads_of(broker, "out"))) == sorted(expected)


async def test_each_row_is_mapped_once_by_one_broker_after_the_other(tmp_path: Path) -> None:
    both = mapping(SOURCE + "/s/+", "out/x", "$jobs/work", where="json != 3")
    expected = [each for each in range(20) if each != 3]
    async with broker_of(tmp_path, both=both) as broker:
        await publish(broker, range(20))
        await out_has(broker, *expected)
        await until(lambda: list_mappings(broker)[0].sent == 38)
        assert sorted(map(int, bodies(broker, b"work"))) == expected
        (row,) = list_mappings(broker)
        assert (row.seen, row.failed, row.error) == (20, 0, "")
        (group,) = await groups_of(streams_of(broker).readers, "mapping both")
        assert group.members == ["flight:mapping both"]
        assert not broker.health()
    expected += range(20, 25)
    async with broker_of(tmp_path, both=both) as broker:
        await publish(broker, range(20, 25))
        await out_has(broker, *expected)
        await until(lambda: len(bodies(broker, b"work")) == len(expected))


async def test_it_stops_goes_on_and_changes_where_it_is(tmp_path: Path) -> None:
    async with broker_of(tmp_path, double=DOUBLE) as broker:
        await publish(broker, range(4))
        await out_has(broker, 0, 2, 4, 6)
        await until(lambda: list_mappings(broker)[0].sent == 4)
        row = switch(broker, "double", is_enabled=False)
        assert not row.enabled
        await until(lambda: not streams_of(broker).programs.members)
        await publish(broker, range(4, 6))
        switch(broker, "double", is_enabled=True)
        await out_has(broker, 0, 2, 4, 6, 8, 10)
        triple = mapping(SOURCE, "out/${level(2)}", payload="string(json * 3)")
        changed = msgspec.structs.replace(broker.config, mappings={"double": triple})
        broker.reload(changed)
        await publish(broker, range(6, 8))
        await out_has(broker, 0, 2, 4, 6, 8, 10, 18, 21)


@pytest.mark.parametrize("step", ["decided", "published"])
async def test_killed_at_any_step_each_row_is_mapped_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What lies on the disk at a step is all that the next broker has."""
    copy = tmp_path / "copy"

    def keep() -> None:
        if not copy.exists():
            shutil.copytree(tmp_path / "data", copy / "data")

    async with broker_of(tmp_path, double=DOUBLE) as broker:
        sinks = streams_of(broker).sinks
        publish_rows = sinks.publish_rows

        async def rows(*args: Any) -> None:
            if step == "decided":
                keep()
            await publish_rows(*args)
            await streams_of(broker).commits.wait()
            if step == "published":
                keep()

        monkeypatch.setattr(sinks, "publish_rows", rows)
        await publish(broker, range(10))
        await until(copy.exists)
    async with broker_of(copy, double=DOUBLE) as broker:
        await publish(broker, range(100, 102))
        await until(lambda: not broker.health())
        kept = [int(each) for each in await payloads_of(broker, "s")]
        await out_has(broker, *(2 * each for each in kept))


async def test_what_fails_is_counted_and_dead_as_the_mapping_says(tmp_path: Path) -> None:
    wrong = mapping(SOURCE, "out/${json == 1 ? 'a/b' : 'c'}", on_error="dead")
    async with broker_of(tmp_path, wrong=wrong) as broker:
        await publish(broker, range(3))
        await out_has(broker, 0, 2)
        await until(lambda: list_mappings(broker)[0].sent == 2)
        (row,) = list_mappings(broker)
        assert row.failed == 1
        assert "no / + # or NUL" in row.error
        assert bodies(broker, b"wrong!dead") == [b"1"]
        tried = try_out(broker, "wrong", "s/x", b"1", 1, "")
        assert "no / + # or NUL" in tried.error
        tried = try_out(broker, "wrong", "s/x", b"5", 1, "")
        assert [each.target for each in tried.to] == ["out/c"]
        with pytest.raises(AdminError, match="which topic"):
            try_out(broker, "wrong", "", b"1", 1, "")


async def test_what_a_queue_refuses_for_a_while_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.streams.serving.programs.RETRY_AFTER", 0.01)
    work = mapping(SOURCE, "$jobs/work", "out/x")
    async with broker_of(tmp_path, work=work) as broker, client_of(broker) as redis:
        await redis.execute_command("PAUSE", "work", "in")
        refused = asyncio.Event()
        sinks = streams_of(broker).sinks
        add_jobs = sinks.add_jobs

        async def refusing(staged: Any) -> str:
            reason = await add_jobs(staged)
            if reason:
                refused.set()
            return reason

        monkeypatch.setattr(sinks, "add_jobs", refusing)
        await publish(broker, range(3))
        await refused.wait()
        assert await payloads_of(broker, "out") == []
        await redis.execute_command("PAUSE", "work", "none")
        await out_has(broker, 0, 1, 2)
        assert sorted(bodies(broker, b"work")) == [b"0", b"1", b"2"]


async def test_a_stream_that_there_is_not_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for it, and feeds no circle by streams that the configuration does not know."""
    monkeypatch.setattr("vmq.streams.serving.following._AGAIN", 0.01)
    late = mapping("$stream/late;from=earliest", "out/x")
    round_about = mapping("$stream/round;from=earliest", "out/y")
    async with broker_of(tmp_path, late=late, round=round_about) as broker:
        await until(lambda: len(broker.health()) == 2)
        assert any("there is no stream 'late'" in each for each in broker.health())
        catalog = streams_of(broker).catalog
        await catalog.declare("late", stream(filters=["s/#"]))
        await until(lambda: len(broker.health()) == 1)
        await catalog.declare("round", stream(filters=["out/+"]))
        await publish(broker, range(3))
        await out_has(broker, 0, 1, 2)
        await until(lambda: broker.health() and "feeds no circle" in broker.health()[0])


async def test_a_batch_that_cannot_be_decided_is_mapped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.streams.serving.following._AGAIN", 0.01)
    async with broker_of(tmp_path, double=DOUBLE) as broker:
        staging = streams_of(broker).sinks.staging
        decide, fails = staging.decide, [True]

        def failing(*args: Any, **more: Any) -> Any:
            if fails[0]:
                fails[0] = False
                raise BusyError("the disk is full")
            return decide(*args, **more)

        monkeypatch.setattr(staging, "decide", failing)
        await publish(broker, range(5))
        await out_has(broker, 0, 2, 4, 6, 8)
        await until(lambda: not broker.health())


@pytest.mark.parametrize(
    ("source", "flaw"),
    [
        ("$stream/", "accepted"),
        ("$stream/s;prefetch=3", "not an option here"),
        ("$stream/s;from=soon", "from is earliest"),
        ("$stream/s;from=2999-01-01T00:00Z", "a time to come"),
        ("$stream/s/a#", "#"),
        ("$stream/s/$jobs/q", "FILTER is an ordinary one"),
    ],
)
def test_what_is_no_stream_is_refused_with_its_key(source: str, flaw: str) -> None:
    ((key, what),) = problems(m=mapping(source, "x"))
    assert key == "m.from"
    assert flaw in what


def test_circles_and_mountpoints(tmp_path: Path) -> None:
    known = {"s": ["s/#"], "t": ["t/+"]}

    def wrong(**mappings: MappingOptions) -> dict[str, str]:
        return dict(mapping_problems(mappings, (), known))

    assert "m.to" in wrong(m=mapping("$stream/s", "s/${level(2)}/x"))
    assert wrong(m=mapping("$stream/s/s/a", "s/b")) == {}
    found = wrong(m=mapping("$stream/s", "t/a"), n=mapping("$stream/t", "s/a")).keys()
    assert found == {"m.to", "n.to"}
    assert wrong(m=mapping("$stream/s", "$jobs/q"), n=mapping("$jobs/q", "t/a")) == {}
    assert "m.mountpoint" in wrong(m=mapping("$stream/s", "x", mountpoint="tenant"))
    config = msgspec.structs.replace(
        config_of(tmp_path),
        streams={"s": stream(filters=["s/#"])},
        mappings={"m": mapping("$stream/s", "s/a")},
    )
    with pytest.raises(ConfigError, match="feeds no circle"):
        check(config)
    long = "n" * 93
    assert "92 characters" in wrong(**{long: mapping("$stream/s", "x")})[f"{long}.from"]


def test_nobody_else_is_a_member_of_its_group() -> None:
    text = "$share/mapping double/$stream/s"
    with pytest.raises(SpecialTopicError, match="those of mappings"):
        GroupRequest(text, 0.0)
    assert GroupRequest(text, 0.0, is_mapping=True).group == "mapping double"
