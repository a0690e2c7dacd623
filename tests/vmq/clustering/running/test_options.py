"""What plugins decide for a session, and the configured options that are alike, where sessions are in slots."""

from pathlib import Path
from typing import Any

import pytest
from vmq_hooks.modifiers import RegisterModifiers

from tests.support.until import until
from tests.support.wire import PUBLISH
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import (
    are_owned,
    leave,
    named,
    owner_of,
    owners_of,
    service,
    slotted,
)
from vmq.broker import Broker
from vmq.clustering.messages.fronts import SessionLimits
from vmq.config.options import QueueOptions, SessionOptions


def decide(broker: Broker, **changes: Any) -> None:
    """A plugin of this node decides this for all sessions."""
    broker.hooks.auth_on_register = lambda *_: RegisterModifiers(**changes)


async def publish(broker: Broker, *texts: str, qos: int = 1) -> None:
    for each in texts:
        await broker.publish("t", each.encode(), qos)


def waiting(nodes: House, device: Device) -> int:
    [owner] = owners_of(nodes, device.client_id).values()
    return owner.state.waiting(device.client_id)


async def test_a_window_that_a_plugin_decided_holds_at_the_owner(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        decide(nodes["a"], max_inflight_messages=2)
        device.answers = False
        await device.connect(nodes["a"], ("t", 1))
        await publish(nodes["a"], "1", "2", "3")
        await until(lambda: waiting(nodes, device) == 3)
        await device.until(lambda: device.log == ["1", "2"])
        [owner] = owners_of(nodes, device.client_id).values()
        assert len(owner.state.registers[device.client_id].window) == 2
        device.answers = True
        await device.connect(nodes["b"])  # where nobody decides anything
        await device.until(lambda: device.log == ["1", "2", "1", "2", "3"])
        assert owner.state.registers[device.client_id].limits is None


async def test_the_limit_of_a_queue_holds_while_its_client_is_away_and_with_the_next_owner(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        decide(nodes["a"], max_offline_messages=2)
        await device.connect(nodes["a"], ("t", 1))
        await leave(nodes, device)
        await publish(nodes["a"], "1")
        await nodes.brokers.pop("b").stop()
        await until(lambda: owner_of(nodes, device.client_id) == "a")
        await publish(nodes["a"], "2", "3")
        await device.connect(nodes["a"])
        await publish(nodes["a"], "4")
        await device.until(lambda: device.log == ["1", "2", "4"])


async def test_what_was_decided_outlives_all_nodes(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        decide(nodes["a"], max_online_messages=7, queue_type="lifo", upgrade_qos=True)
        await device.connect(nodes["a"])
        await leave(nodes, device)
        for name in "ab":
            await nodes.brokers.pop(name).stop()
        for name in "ab":
            await nodes.start(name)
        await until(lambda: are_owned(nodes))
        [owner] = owners_of(nodes, device.client_id).values()
        decided = SessionLimits(online=7, newest_first=True, upgrades=True)
        assert owner.state.registers[device.client_id].limits == decided


@pytest.mark.parametrize("is_configured", [False, True])
async def test_what_came_last_goes_first(tmp_path: Path, is_configured: bool) -> None:
    queue = QueueOptions(queue_type="lifo" if is_configured else "fifo")
    async with slotted(tmp_path, queue=queue) as nodes, Device(named(nodes, "b", "s")) as device:
        if not is_configured:
            decide(nodes["a"], queue_type="lifo")
        await device.connect(nodes["a"], ("t", 2))
        await leave(nodes, device)
        await publish(nodes["b"], "1", "2", "3")
        await device.connect(nodes["a"])
        await device.until(lambda: device.log == ["3", "2", "1"])


async def test_where_it_is_configured_all_comes_at_the_qos_granted(tmp_path: Path) -> None:
    session = SessionOptions(upgrade_outgoing_qos=True)
    async with (
        slotted(tmp_path, session=session) as nodes,
        Device(named(nodes, "b", "s")) as device,
        Device("clean", clean=True) as clean,
    ):
        await clean.connect(nodes["b"], ("t", 0))
        await device.connect(nodes["a"], ("t", 2))
        await publish(nodes["b"], "1", qos=0)
        await publish(nodes["b"], "2", qos=1)
        await device.until(lambda: len(device.log) == 2)
        await leave(nodes, device)
        await publish(nodes["a"], "3", qos=0)
        await until(lambda: waiting(nodes, device) == 1)
        async with Device("p", clean=True) as many:
            await many.connect(nodes["a"])
            many.publish("t", "4", 0)
            many.publish("t", "5", 0)
            await until(lambda: waiting(nodes, device) == 3)
        got = [each.qos for each in device.found(PUBLISH)]
        await device.connect(nodes["b"])
        await device.until(lambda: len(device.log) == 5)
        got += [each.qos for each in device.found(PUBLISH)]
        assert got == [2] * 5
        assert sorted(device.log) == ["1", "2", "3", "4", "5"]
        await clean.until(lambda: sorted(clean.log) == ["1", "2", "3", "4", "5"])


async def test_a_session_for_which_a_plugin_decided_it_gets_all_at_the_qos_granted(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        decide(nodes["a"], upgrade_qos=True)
        await nodes["b"].publish("r/1", b"0", 0, retain=True)
        await until(lambda: nodes["a"].registry().retained.count == 1)
        await device.connect(nodes["a"], ("t", 1), ("r/+", 1))
        await until(lambda: bool(service(nodes["b"]).machines.routes.targets("t")))
        await nodes["a"].publish("t", b"1", 0, retain=True)
        await publish(nodes["b"], "2", qos=1)
        await device.until(lambda: sorted(device.log) == ["0", "1", "2"])
        found = {each.payload: (each.qos, each.retain) for each in device.found(PUBLISH)}
        assert found == {b"0": (1, True), b"1": (1, False), b"2": (1, False)}


async def test_one_for_which_a_plugin_decided_against_it_gets_each_once(tmp_path: Path) -> None:
    session = SessionOptions(upgrade_outgoing_qos=True)
    async with (
        slotted(tmp_path, session=session) as nodes,
        Device(named(nodes, "b", "s")) as device,
    ):
        decide(nodes["a"], upgrade_qos=False)
        await device.connect(nodes["a"], ("t", 2))
        await publish(nodes["a"], "0", qos=0)
        await publish(nodes["a"], "1", qos=1)
        await device.until(lambda: device.log == ["0", "1"])
        assert [each.qos for each in device.found(PUBLISH)] == [0, 1]
