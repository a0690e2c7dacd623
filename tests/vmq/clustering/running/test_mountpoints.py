"""Sessions in slots of several mountpoints: what is alike in two of them is not the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from vmq_hooks.modifiers import RegisterModifiers
from vmq_hooks.types import SubscriberId

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import (
    are_owned,
    named,
    owner_of,
    owners_of,
    service,
    slotted,
)
from vmq.admin import sessions
from vmq.admin.listing import Selection
from vmq.broker import Broker
from vmq.store.entries import scope_of

WEST, EAST = "west", "east"


def place(broker: Broker) -> None:
    """A client's user name is its mountpoint, as a plugin decides."""

    def decide(_peer: object, who: SubscriberId, user: str | None, *_: object) -> RegisterModifiers:
        return RegisterModifiers(subscriber_id=SubscriberId(who.client_id, user or ""))

    broker.hooks.auth_on_register = decide


@asynccontextmanager
async def placed(folder: Path) -> AsyncIterator[House]:
    async with slotted(folder) as nodes:
        for broker in nodes.brokers.values():
            place(broker)
        yield nodes


def scoped(device: Device) -> str:
    return scope_of(device.username or "") + device.client_id


async def subscribe(nodes: House, device: Device, node: str, *pairs: tuple[str, int]) -> None:
    """It subscribes at a node, and goes."""
    await device.connect(nodes[node])
    await device.subscribe(*pairs)
    await device.disconnect()
    [owner] = owners_of(nodes, scoped(device)).values()
    await until(lambda: scoped(device) not in owner.attachments.serving)


async def publish(broker: Broker, mountpoint: str, topic: str, *texts: str, qos: int = 1) -> None:
    for each in texts:
        await broker.publish(topic, each.encode(), qos, False, mountpoint)


async def listed(broker: Broker, mountpoint: str | None) -> list[tuple[str, str]]:
    rows = await sessions.list_sessions(broker, Selection(), mountpoint).rows()
    return sorted((row.mountpoint, row.client_id) for row in rows if not row.clean_session)


async def test_the_same_client_id_and_topic_are_others_in_each_mountpoint(tmp_path: Path) -> None:
    async with placed(tmp_path) as nodes:
        west, east = Device("s", username=WEST), Device("s", username=EAST)
        none = Device("s")
        async with west, east, none:
            for device in (west, east, none):
                await subscribe(nodes, device, "a", ("t/+", 2))
            await publish(nodes["b"], WEST, "t/1", "w1", "w2", qos=2)
            await publish(nodes["a"], EAST, "t/1", "e1")
            await publish(nodes["a"], "", "t/1", "n1")
            for device in (west, east, none):
                assert await device.connect(nodes["b"])
            await west.until(lambda: west.log == ["w1", "w2"])
            await east.until(lambda: east.log == ["e1"])
            await none.until(lambda: none.log == ["n1"])
            west.clean = True
            assert not await west.connect(nodes["a"])
            assert east.is_connected
            assert none.is_connected


async def test_they_are_there_after_a_restart_and_with_who_takes_over(tmp_path: Path) -> None:
    async with placed(tmp_path) as nodes, Device("s", username=WEST) as device:
        await subscribe(nodes, device, "a", ("t", 1), ("u/#", 1))
        await publish(nodes["a"], WEST, "t", "1")
        await publish(nodes["a"], EAST, "t", "no")
        for name in "ab":
            await nodes.brokers.pop(name).stop()
        for name in "ab":
            place(await nodes.start(name))
        await until(lambda: are_owned(nodes))
        owner = owner_of(nodes, scoped(device))
        other = "b" if owner == "a" else "a"
        await publish(nodes[owner], WEST, "u/1", "2")
        await nodes.brokers.pop(owner).stop()
        await until(lambda: owner_of(nodes, scoped(device)) == other)
        await publish(nodes[other], WEST, "t", "3")
        assert await device.connect(nodes[other])
        await device.until(lambda: device.log == ["1", "2", "3"])


async def test_a_share_group_of_one_mountpoint_gets_nothing_of_another(tmp_path: Path) -> None:
    async with placed(tmp_path) as nodes:
        west, east = Device("s1", username=WEST), Device("s2", username=EAST)
        both = [Device(f"m{number}", username=WEST) for number in range(2)]
        async with west, east, both[0], both[1]:
            for device in (west, east):
                await subscribe(nodes, device, "a", ("$share/g/t", 1))
            await publish(nodes["b"], WEST, "t", "w")
            await publish(nodes["b"], EAST, "t", "e")
            for device in both:
                await device.connect(nodes["b"], ("$share/h/t", 1))
            await publish(nodes["a"], WEST, "t", *"0123")
            await west.connect(nodes["a"])
            await east.connect(nodes["a"])
            await west.until(lambda: sorted(west.log) == ["0", "1", "2", "3", "w"])
            await east.until(lambda: east.log == ["e"])
            await until(lambda: sorted(both[0].log + both[1].log) == ["0", "1", "2", "3"])


async def test_retained_messages_come_from_their_mountpoint(tmp_path: Path) -> None:
    async with placed(tmp_path) as nodes, Device("s", username=WEST) as device:
        await nodes["a"].publish("t", b"w", 1, True, WEST)
        await nodes["a"].publish("t", b"e", 1, True, EAST)
        await device.connect(nodes["a"], ("t", 1))
        await device.until(lambda: device.log == ["w"])


async def test_plugins_and_operators_see_the_mountpoint(tmp_path: Path) -> None:
    async with placed(tmp_path) as nodes, Device("s", username=WEST) as device:
        told: list[SubscriberId] = []
        for broker in nodes.brokers.values():
            broker.hooks.on_offline_message = lambda who, _: told.append(who)
        await until(lambda: all(service(each).here.tells_kept for each in nodes.brokers.values()))
        await subscribe(nodes, device, "a", ("t", 1))
        await publish(nodes["a"], WEST, "t", "1")
        await until(lambda: told == [SubscriberId("s", WEST)])
        for broker in nodes.brokers.values():
            assert await listed(broker, None) == [(WEST, "s")]
            assert await listed(broker, WEST) == [(WEST, "s")]
            assert await listed(broker, "") == []
            shown = await sessions.show_session(broker, "s", WEST)
            assert (shown.mountpoint, shown.queue_size) == (WEST, 1)
        await sessions.unsubscribe(nodes["b"], "s", "t", WEST)
        await until(lambda: not service(nodes["a"]).machines.routes.all())
        await sessions.disconnect(nodes["a"], "s", WEST, cleanup=True)
        [owner] = owners_of(nodes, scoped(device)).values()
        await until(lambda: not owner.state.registers[scoped(device)].session)


async def test_the_slot_of_a_client_depends_on_its_mountpoint(tmp_path: Path) -> None:
    async with placed(tmp_path) as nodes:
        one = named(nodes, "a", "s")
        ids = [scope_of(f"m{number}") + one for number in range(20)]
        assert {owner_of(nodes, each) for each in ids} == {"a", "b"}
