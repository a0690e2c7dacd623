"""Share groups of durable sessions in slots: one member gets each message, wherever it and its session are."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.nodes import nothing
from tests.vmq.clustering.running.slotted import named, owners_of, service, slotted
from vmq.clustering.slots.words import slot_of
from vmq.config.options import SessionOptions

GROUP = "$share/g/t/#"
#: Each member has its chance, wherever it is connected.
RANDOM = SessionOptions(shared_subscription_policy="random")


def members_elsewhere(nodes: House) -> tuple[Device, Device]:
    """Two clients whose sessions are on different nodes."""
    return Device(named(nodes, "a", "m")), Device(named(nodes, "b", "n"))


def slots_of(nodes: House, node: str) -> tuple[list[int], list[int]]:
    """Slots with connected members of the group, and without, as a node knows them."""
    return service(nodes[node]).machines.routes.slots_of(GROUP)


def slot(device: Device) -> int:
    return slot_of(device.client_id, 8)


@pytest.mark.parametrize("qos", [1, 2])
async def test_one_member_gets_each_message_and_all_members_some(tmp_path: Path, qos: int) -> None:
    async with slotted(tmp_path, session=RANDOM) as nodes, AsyncExitStack() as stack:
        one, other = members_elsewhere(nodes)
        publisher = Device(named(nodes, "a", "p"))
        for device, node in ((one, "b"), (other, "a"), (publisher, "a")):
            await stack.enter_async_context(device)
            await device.connect(nodes[node])
        for device in (one, other):
            await device.subscribe((GROUP, 2))
        wanted = [str(each) for each in range(20)]
        for text in wanted:
            publisher.publish("t/1", text, qos)
        await publisher.until(lambda: not publisher.unfinished)
        await until(lambda: len(one.log) + len(other.log) == 20)
        assert sorted(one.log + other.log, key=int) == wanted
        assert one.log
        assert other.log
        # At QoS 0 it goes to a connected member, whose session does not matter.
        for text in ("20", "21"):
            publisher.publish("t/1", text, 0)
        await until(lambda: len(one.log) + len(other.log) == 22)


async def test_a_clean_member_takes_its_part_and_leaves_it_to_durable_ones(tmp_path: Path) -> None:
    async with slotted(tmp_path, session=RANDOM) as nodes, AsyncExitStack() as stack:
        durable, _ = members_elsewhere(nodes)
        clean, publisher = Device("clean", clean=True), Device("p", clean=True)
        for device in (durable, clean, publisher):
            await stack.enter_async_context(device)
        await durable.connect(nodes["b"], (GROUP, 1))
        await clean.connect(nodes["a"])
        await publisher.connect(nodes["a"])
        clean.answers = False
        await clean.subscribe((GROUP, 1))
        for text in range(19):  # within its window
            publisher.publish("t/1", str(text), 1)
        await publisher.until(lambda: not publisher.unfinished)
        await until(lambda: len(durable.log) + len(clean.log) == 19)
        assert durable.log
        assert clean.log
        await clean.drop()
        await durable.until(lambda: len(set(durable.log)) == 19)


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_waits_for_who_is_away_goes_to_who_comes(tmp_path: Path, qos: int) -> None:
    """In another slot; of QoS 2 what was sent stays with whom it was sent to."""
    async with slotted(tmp_path, session=RANDOM) as nodes, AsyncExitStack() as stack:
        away, comes = members_elsewhere(nodes)
        publisher = Device("p", clean=True)
        for device in (away, comes, publisher):
            await stack.enter_async_context(device)
        away.answers = False
        await away.connect(nodes["b"], (GROUP, 2))
        await publisher.connect(nodes["a"])
        publisher.publish("t/1", "sent", qos)
        await away.until(lambda: away.log == ["sent"])
        await away.disconnect()
        await until(lambda: slots_of(nodes, "a") == ([], [slot(away)]))
        for text in ("1", "2"):
            publisher.publish("t/1", text, qos)
        await publisher.until(lambda: not publisher.unfinished)
        [owner] = owners_of(nodes, away.client_id).values()
        assert owner.state.waiting(away.client_id) == 3
        await comes.connect(nodes["a"], (GROUP, 2))
        await comes.until(lambda: len(comes.log) == (2 if qos == 2 else 3))
        assert sorted(set(comes.log)) == (["1", "2"] if qos == 2 else ["1", "2", "sent"])
        away.answers = True
        await away.connect(nodes["b"])
        if qos == 2:
            await until(lambda: not owner.state.waiting(away.client_id))
        assert away.log == ["sent"]


async def test_the_members_that_live_get_what_a_dead_node_had_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the node of the session and the connection, which does not come back."""
    async with slotted(tmp_path, "abc", session=RANDOM) as nodes, AsyncExitStack() as stack:
        lost, stays = members_elsewhere(nodes)
        publisher = Device("p", clean=True)
        for device in (lost, stays, publisher):
            await stack.enter_async_context(device)
        await lost.connect(nodes["a"], (GROUP, 1))
        lost.answers = False
        await publisher.connect(nodes["c"])
        for text in range(30):
            publisher.publish("t/1", str(text), 1 + text % 2)
        await publisher.until(lambda: not publisher.unfinished)
        await stays.connect(nodes["b"], (GROUP, 2))
        monkeypatch.setattr(service(nodes["a"]), "hand_over", nothing)
        await nodes.kill("a")
        await stays.until(lambda: len(set(stays.log)) == 30)


async def test_the_last_member_leaves_what_it_did_not_get_to_the_next(tmp_path: Path) -> None:
    async with slotted(tmp_path, session=RANDOM) as nodes, AsyncExitStack() as stack:
        one, other = members_elsewhere(nodes)
        for device in (one, other):
            await stack.enter_async_context(device)
        await one.connect(nodes["a"], (GROUP, 2))
        await one.disconnect()
        await until(lambda: slots_of(nodes, "b") == ([], [slot(one)]))
        await nodes["b"].publish("t/1", b"1", 2)
        await other.connect(nodes["b"])
        one.clean = True
        await one.connect(nodes["b"])
        await other.subscribe((GROUP, 2))
        await other.until(lambda: other.log == ["1"])
        await until(lambda: slots_of(nodes, "a") == ([slot(other)], []))


@pytest.mark.parametrize(
    ("policy", "is_one_slot"),
    [
        ("prefer_local", False),
        ("prefer_online_before_local", True),
        ("local_only", False),
        ("local_only", True),
    ],
)
async def test_a_policy_that_prefers_a_node_prefers_who_is_connected_to_it(
    tmp_path: Path,
    policy: Literal["prefer_local", "prefer_online_before_local", "local_only"],
    is_one_slot: bool,
) -> None:
    """Whose session is where does not matter; one that is on the other side of the cluster has it as well."""
    session = SessionOptions(shared_subscription_policy=policy)
    async with slotted(tmp_path, session=session) as nodes, AsyncExitStack() as stack:
        near, far = members_elsewhere(nodes)
        if is_one_slot:
            ids = (f"f{number}" for number in range(1000))
            far = Device(next(each for each in ids if slot_of(each, 8) == slot(near)))
        clean, publisher = Device("clean", clean=True), Device("p", clean=True)
        for device, node in ((near, "a"), (far, "b"), (clean, "b"), (publisher, "a")):
            await stack.enter_async_context(device)
            await device.connect(nodes[node])
        for device in (near, far, clean):
            await device.subscribe((GROUP, 1))
        wanted = [str(each) for each in range(10)]
        for text in wanted:
            publisher.publish("t/1", text, 1)
        await near.until(lambda: near.log == wanted)
        await publisher.until(lambda: not publisher.unfinished)
        # Nobody is near any more.
        await near.disconnect()
        await until(lambda: near.client_id not in nodes["a"].registry().subscribers)
        publisher.publish("t/1", "10", 1)
        await publisher.until(lambda: not publisher.unfinished)
        if policy == "local_only":
            await far.disconnect()
            assert await near.connect(nodes["b"])
            await nodes["b"].publish("t/1", b"11", 1)
            await until(lambda: near.log + clean.log == [*wanted, "11"])
            assert far.log == []
        else:
            await until(lambda: far.log + clean.log == ["10"])
