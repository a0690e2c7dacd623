"""Brokers that cannot reach each other, or not all of them: what was acknowledged on any side comes to the client."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until
from tests.support.wire import PUBLISH, PUBREL, pubrec_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House, house, publish, store_of, subscribed
from tests.vmq.clustering.nodes import clustering, is_subscribed, knows, suspend_commits
from vmq.broker import Broker
from vmq.clustering.messages.replication import ProvenanceIs
from vmq.clustering.routing.stale_routes_stored import ELSEWHERE
from vmq.config.options import QueueOptions


def is_safe(nodes: House, name: str, client: str) -> bool:
    """Whether what a node has of a session is in a copy."""
    replicas = nodes.replication(name).replicas
    session = nodes[name].registry().subscribers[client].queue.session
    return replicas is not None and replicas.is_safe(session)


def is_settled(nodes: House, name: str) -> bool:
    """Whether no session is on its way from or to a node, and everybody has marked."""
    mover = clustering(nodes[name]).mover
    return not (mover.moving.outgoing or mover.moving.incoming or list(mover.all_elsewhere()))


def number_of(broker: Broker, client: str) -> bytes:
    return broker.registry().subscribers[client].queue.session


async def test_a_node_that_has_lost_a_session_takes_it_again_when_the_owner_since_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is on its way to who took it, and what that one had of it is in a copy."""
    async with house(tmp_path, adopt_after=3600.0) as nodes, Device("s") as device:
        await subscribed(nodes["b"], "s")
        await until(lambda: is_subscribed(nodes["a"], "s", "b"))
        await publish(nodes["a"], b"before")
        await nodes.part("b", "a", "c")
        assert await device.connect(nodes["a"])
        await device.until(lambda: device.log == ["before"])
        await device.disconnect()
        await publish(nodes["b"], b"there")
        await publish(nodes["a"], b"meanwhile")
        await until(lambda: is_safe(nodes, "a", "s"))
        await nodes.mend("b", "c")
        await until(lambda: knows(nodes["b"], "s", "a"))
        await nodes.lose("a", monkeypatch)
        assert await device.connect(nodes["b"])
        await device.until(lambda: {"there", "meanwhile"} <= set(device.log))


WINDOW = QueueOptions(max_inflight_messages=5)


def answer_all(device: Device) -> None:
    """It acknowledges from now on, and what it has got so far, too."""
    device.answers = True
    for each in device.found(PUBLISH):
        device.send(pubrec_packet(each.packet_id))


def are_all_settled(nodes: House) -> bool:
    """Whether no session is on its way from one to another."""
    machines = [clustering(each).mover.moving for each in nodes.brokers.values()]
    return not any(each.outgoing or each.incoming or each.claims for each in machines)


async def begin_apart(nodes: House, device: Device) -> None:
    """A client has begun eight of its fifteen messages when its node `b` is cut off, and others adopt its session."""
    await device.connect(nodes["b"])
    await device.subscribe(("t", 2))
    await until(lambda: is_subscribed(nodes["a"], "s", "b"))
    await publish(nodes["a"], *(b"first %d" % number for number in range(3)), qos=2)
    await device.until(lambda: len(device.found(PUBREL)) == 3)
    device.answers = False
    await publish(nodes["b"], *(b"second %d" % number for number in range(12)), qos=2)
    await device.until(lambda: len(device.log) == 8)
    await until(lambda: is_safe(nodes, "b", "s"))
    await nodes.part("b", "a", "c")
    await until(lambda: knows(nodes["a"], "s", "c") or knows(nodes["c"], "s", "a"))


@pytest.mark.parametrize("goes_to", ["a", "b", "c"])
async def test_a_client_that_stays_in_a_long_split_gets_nothing_twice_and_lacks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_to: str
) -> None:
    """The others have adopted its session, with what it had not acknowledged when it was cut off."""
    async with house(tmp_path, queue=WINDOW) as nodes, Device("s") as device:
        await begin_apart(nodes, device)
        answer_all(device)
        await publish(nodes["b"], *(b"third %d" % number for number in range(6)), qos=2)
        await device.until(lambda: len(device.log) == 21)
        await publish(nodes["a"], b"elsewhere", qos=2)
        [adopter] = [name for name in "ac" if "s" in nodes[name].registry().subscribers]
        patience = clustering(nodes[adopter]).mover._patience
        settling = nodes.replication("b").settling
        settle, may_tell = settling.settle, asyncio.Event()

        async def settle_later(*about: Any) -> ProvenanceIs | None:
            await may_tell.wait()
            return await settle(*about)

        monkeypatch.setattr(settling, "settle", settle_later)
        await nodes.mend("b", "a", "c")
        await device.until(lambda: not device.is_connected)
        await device.open(nodes[goes_to])
        await until(lambda: ("", "s") in patience._lines)  # it waits until it is said what it has
        may_tell.set()
        assert await device.connack()
        await publish(nodes["c"], b"last", qos=2)
        await device.until(lambda: "last" in device.log)
        await until(lambda: are_all_settled(nodes))
        await device.until(lambda: "elsewhere" in device.log)
        assert sorted(device.log) == sorted(set(device.log))
        assert len(device.log) == 23


async def test_a_client_that_comes_back_to_its_node_in_a_long_split_gets_nothing_twice(
    tmp_path: Path,
) -> None:
    """So its node has the newer session, and those who adopted it hand over what they have."""
    async with house(tmp_path, queue=WINDOW) as nodes, Device("s") as device:
        await begin_apart(nodes, device)
        await device.drop()
        device.answers = True
        assert await device.connect(nodes["b"])
        await device.until(lambda: len(device.log) == 15)
        await publish(nodes["a"], b"elsewhere", qos=2)
        await nodes.mend("b", "a", "c")
        await until(lambda: knows(nodes["a"], "s", "b") and knows(nodes["c"], "s", "b"))
        await device.until(lambda: "elsewhere" in device.log)
        await publish(nodes["c"], b"last", qos=2)
        await device.until(lambda: "last" in device.log)
        await until(lambda: are_all_settled(nodes))
        assert sorted(device.log) == sorted(set(device.log))
        assert len(device.log) == 17


async def test_nobody_waits_for_long_for_an_owner_that_knows_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has lost its disk, and has nothing to say of what it had."""
    monkeypatch.setattr("vmq.clustering.takeover.claim_queue.PATIENCE", 0.1)
    async with house(tmp_path, "ab") as nodes, Device("s") as device:
        await subscribed(nodes["b"], "s")
        await publish(nodes["b"], b"before", qos=2)
        await until(lambda: is_safe(nodes, "b", "s"))
        await nodes.lose("b", monkeypatch)
        await until(lambda: knows(nodes["a"], "s", "a"))
        await nodes.start("b")
        await until(lambda: clustering(nodes["a"]).node.up == ["b"])
        for _ in range(2):
            assert await device.connect(nodes["a"])
        await device.until(lambda: device.log == ["before"])


async def with_others(nodes: House, device: Device) -> None:
    """A session on `b`, and one on each node that wants the same."""
    assert not await device.connect(nodes["b"])
    await device.subscribe(("t", 2))
    for name in nodes.brokers:
        await subscribed(nodes[name], f"other-{name}")
    for one in nodes.brokers:
        for other in nodes.brokers:
            await until(partial(is_subscribed, nodes[one], f"other-{other}", other))
        await until(partial(is_subscribed, nodes[one], "s", "b"))


async def publish_everywhere(nodes: House, when: str) -> set[str]:
    for name in nodes.brokers:
        await publish(nodes[name], f"{when} {name}".encode(), qos=2)
    return {f"{when} {name}" for name in nodes.brokers}


async def test_a_node_that_took_a_session_in_a_split_remembers_in_its_next_life_who_has_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes, Device("s") as s:
        await with_others(nodes, s)
        await s.disconnect()
        await nodes.part("b", "a", "c")
        assert await s.connect(nodes["a"])
        await until(lambda: knows(nodes["c"], "s", "a"))
        wanted = await publish_everywhere(nodes, "split")
        await s.until(lambda: {"split a", "split c"} == set(s.log) and not s.pending)
        await nodes.kill("a", monkeypatch)
        await nodes.start("a")
        await nodes.mend("b", "c")
        await nodes.mend("a", "b", "c")
        assert await s.connect(nodes["a"])
        wanted |= await publish_everywhere(nodes, "after")
        await s.until(lambda: wanted <= set(s.log))
        await until(lambda: all(is_settled(nodes, name) for name in nodes.brokers))
        assert sorted(s.log) == sorted(wanted)


async def test_a_node_that_is_killed_while_it_takes_a_session_in_a_split_gets_once_what_waited_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record of that is on the disk, and the session is not."""
    async with house(tmp_path, adopt_after=3600.0) as nodes, Device("s") as s:
        await with_others(nodes, s)
        await s.disconnect()
        await nodes.part("b", "a", "c")
        with monkeypatch.context() as patch:
            suspend_commits(nodes["a"], patch)
            await s.open(nodes["a"])
            await until(lambda: knows(nodes["c"], "s", "a"))
            storage = clustering(nodes["a"])._storage
            assert storage is not None
            storage.sync()
            await nodes.kill("a", monkeypatch)
        await s.drop()
        await nodes.start("a")
        await until(lambda: clustering(nodes["a"]).node.up == ["c"])
        wanted = await publish_everywhere(nodes, "split")
        assert await s.connect(nodes["a"])
        await nodes.mend("b", "a", "c")
        wanted |= await publish_everywhere(nodes, "after")
        await s.until(lambda: wanted <= set(s.log))
        await until(lambda: all(is_settled(nodes, name) for name in nodes.brokers))
        assert sorted(s.log) == sorted(wanted)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_client_that_changes_sides_gets_once_what_waited_for_others_where_it_is_now(
    tmp_path: Path, replicas: int
) -> None:
    async with house(tmp_path, adopt_after=3600.0, replicas=replicas) as nodes, Device("s") as s:
        await with_others(nodes, s)
        await s.disconnect()
        await nodes.part("b", "a", "c")
        wanted = await publish_everywhere(nodes, "before")
        assert await s.connect(nodes["a"])
        # What is published here, or at nodes that have marked, is not asked about.
        queue = nodes["a"].registry().subscribers["s"].queue
        assert clustering(nodes["a"]).mover.elsewhere(("", "s")) >= {"b"}
        assert queue.gate is None
        assert queue.fast
        wanted |= await publish_everywhere(nodes, "split")
        await nodes.mend("b", "a", "c")
        await until(lambda: all(is_settled(nodes, name) for name in nodes.brokers))
        wanted |= await publish_everywhere(nodes, "after")
        await s.until(lambda: wanted <= set(s.log))
        assert sorted(s.log) == sorted(wanted)
        assert store_of(nodes["a"]).get(ELSEWHERE + number_of(nodes["a"], "s")) is None


async def test_a_client_that_stayed_gets_once_what_waited_for_others_where_its_session_was_adopted(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, adopt_after=0.3) as nodes, Device("s") as s:
        await with_others(nodes, s)
        await nodes.part("b", "a", "c")
        heirs = [nodes["a"], nodes["c"]]
        await until(lambda: any("s" in each.registry().subscribers for each in heirs))
        wanted = await publish_everywhere(nodes, "split")
        await s.until(lambda: "split b" in s.log and not s.pending)
        await nodes.mend("b", "a", "c")
        await s.until(lambda: not s.is_connected)
        wanted |= await publish_everywhere(nodes, "after")
        assert await s.connect(nodes["b"])
        await s.until(lambda: wanted <= set(s.log))
        await until(lambda: all(is_settled(nodes, name) for name in nodes.brokers))
        assert sorted(s.log) == sorted(wanted)
