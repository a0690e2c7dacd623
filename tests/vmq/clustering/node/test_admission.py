"""A node that is drained: clients and sessions are elsewhere, and it is a member still. Others: test_joining.py."""

import asyncio
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import clustering, config, knows, pair
from vmq.admin import cluster
from vmq.admin.errors import RefusedError
from vmq.broker import Broker
from vmq.clustering.node.admission import DRAINED, Admission


def statuses(broker: Broker) -> dict[str, str]:
    """How the members are, as one of them shows it."""
    return {each.node: each.status for each in cluster.list_members(broker)}


async def test_a_drained_node_gives_its_sessions_away_and_stays_a_member(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (a, b), Device("c") as client, Device("p") as publisher:
        await client.connect(a, ("t", 2))
        await until(lambda: knows(b, "c", "a"))
        assert await cluster.drain(a, 10) == cluster.Drained("a", drained=True, complete=True)
        await client.until(lambda: not client.is_connected)
        assert a.health() == [DRAINED]
        assert not [each for each in caplog.records if each.levelname == "ERROR"], "it was told to"
        assert await client.refusal(a) == 3
        # What comes before the client has found the other node waits there.
        await publisher.connect(b)
        publisher.publish("t", "1", 2)
        await publisher.until(lambda: not publisher.unfinished)
        assert await client.connect(b)
        await client.until(lambda: client.log == ["1"])
        assert sorted(clustering(b).node.members) == ["a", "b"]
        assert clustering(b).node.up == ["a"]
        await until(lambda: statuses(a) == statuses(b) == {"a": "drained", "b": "joined"})
        assert not (await cluster.drain(a, 10, undo=True)).drained
        assert a.health() == []
        await until(lambda: statuses(a) == statuses(b) == {"a": "joined", "b": "joined"})
        assert await client.connect(a)


async def test_a_start_ends_a_drain_for_the_other_nodes_too(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        await cluster.drain(b, 10)
        await until(lambda: statuses(a)["b"] == "drained")
        settings = b.config
        await b.stop()
        async with Broker(settings):
            await until(lambda: statuses(a)["b"] == "joined")


async def test_a_node_that_has_left_is_not_drained(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, b):
        await cluster.leave(b, 10)
        with pytest.raises(RefusedError, match="does not belong to a cluster any more"):
            await cluster.drain(b, 1)


async def test_the_last_node_cannot_be_drained(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        with pytest.raises(RefusedError, match="no other node is up"):
            await cluster.drain(a, 1)
        assert a.health() == []


def admission(why_shut: object) -> tuple[Admission, Any]:
    """The door of a node that looks so for its place, and the core that it shuts."""
    core, joining = SimpleNamespace(shut_to_clients=""), SimpleNamespace(why_shut=why_shut)
    given: Any = core, joining, lambda: None, False, lambda _: None
    return Admission(*given), core


async def test_what_is_said_while_a_node_looks_for_its_place_stands() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def why_shut() -> str:
        asked.set()
        await answered.wait()
        return ""

    door, core = admission(why_shut)
    look = asyncio.create_task(door.look())
    await asked.wait()
    await door.turn_elsewhere(DRAINED)
    answered.set()
    await look
    assert core.shut_to_clients == DRAINED


async def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    looks = chain([RuntimeError("defect")], repeat(None))
    second = asyncio.Event()

    async def why_shut() -> str:
        if error := next(looks):
            raise error
        second.set()
        return "none"

    door, core = admission(why_shut)
    door.start()
    await asyncio.wait_for(second.wait(), PATIENCE)
    await door.stop()
    await door.look()
    assert core.shut_to_clients == "", "a node that stops turns nobody away any more"
    assert "internal error in a look" in caplog.text
