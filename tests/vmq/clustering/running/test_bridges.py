"""Bridges of other brokers whose durable sessions are in slots: RETAIN as published, and nothing of their own."""

from pathlib import Path

import pytest

from tests.support.until import until
from tests.support.wire import PUBLISH
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.running.slotted import leave, named, owners_of, slotted

#: The protocol level by which a bridge says that it is one.
BRIDGE = 0x84


@pytest.mark.parametrize("owner", ["a", "b"])
async def test_it_gets_retain_as_published_also_of_what_came_meanwhile(
    tmp_path: Path, owner: str
) -> None:
    async with slotted(tmp_path) as nodes:
        bridge = Device(named(nodes, owner, "s"), level=BRIDGE)
        other = Device(named(nodes, owner, "o"))
        async with bridge, other:
            for device in (bridge, other):
                await device.connect(nodes["a"], ("t/#", 2))
            await nodes["b"].publish("t/1", b"1", 1, retain=True)
            await bridge.until(lambda: bridge.log == ["1"])
            got = [each.retain for each in bridge.found(PUBLISH)]
            await leave(nodes, bridge)
            await nodes["b"].publish("t/2", b"2", 2, retain=True)
            await nodes["b"].publish("t/2", b"3", 2)
            assert await bridge.connect(nodes["b"])
            await bridge.until(lambda: bridge.log == ["1", "2", "3"])
            got += [each.retain for each in bridge.found(PUBLISH)]
            assert got == [True, True, False]
            await other.until(lambda: other.log == ["1", "2", "3"])
            assert not any(each.retain for each in other.found(PUBLISH))


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_it_gets_nothing_of_its_own(tmp_path: Path, qos: int) -> None:
    async with slotted(tmp_path) as nodes:
        bridge = Device(named(nodes, "b", "s"), level=BRIDGE)
        other = Device(named(nodes, "b", "o"))
        async with bridge, other:
            for device in (bridge, other):
                await device.connect(nodes["a"], ("t", 2))
            bridge.publish("t", "own", qos)
            await other.until(lambda: other.log == ["own"])
            await bridge.until(lambda: not bridge.unfinished)
            other.publish("t", "other", qos)
            await bridge.until(lambda: bridge.log == ["other"])
            [owner] = owners_of(nodes, bridge.client_id).values()
            await until(lambda: not owner.state.waits())
            await leave(nodes, bridge)
            assert await bridge.connect(nodes["b"])
            assert bridge.log == ["other"]


async def test_it_gets_nothing_of_its_own_when_it_comes_back_before_that_is_there(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path, "abc") as nodes:
        bridge = Device(named(nodes, "b", "s"), level=BRIDGE)
        async with bridge:
            await bridge.connect(nodes["a"], ("t", 2))
            bridge.answers = False
            bridge.publish("t", "1", 1)
            bridge.publish("t", "2", 2)
            await bridge.connect(nodes["c"])
            bridge.answers = True
            await bridge.connect(nodes["a"])
            await bridge.until(lambda: not bridge.unfinished)
            await nodes["a"].publish("t", b"3", 1)
            await bridge.until(lambda: bridge.log == ["3"])
