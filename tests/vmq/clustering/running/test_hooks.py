"""What plugins are told of sessions in slots: by the node that owns the slot, acknowledgements by the client's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmq_hooks.types import Message, SubscriberId, Subscription

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import named, owner_of, owners_of, service, slotted
from vmq.clustering.running.service import SlotService
from vmq.config.options import QueueOptions

Call = tuple[Any, ...]


def listen(nodes: House, site: str, note: Callable[..., Call]) -> list[Call]:
    """What a hook of each node is told, with the node's name in front."""
    told: list[Call] = []
    for name, broker in nodes.brokers.items():
        setattr(broker.hooks, site, lambda *each, name=name: told.append((name, *note(*each))))
    return told


def seen(who: SubscriberId, message: Message) -> Call:
    return who.client_id, message.qos, message.topic, message.payload, message.retain


def services(nodes: House) -> list[SlotService]:
    return [service(each) for each in nodes.brokers.values()]


async def leave(nodes: House, device: Device) -> None:
    """It goes, and the owner of its slot knows."""
    await device.disconnect()
    [owner] = owners_of(nodes, device.client_id).values()
    await until(lambda: device.client_id in owner.attachments.away.left)


async def test_on_acked_tells_at_the_node_of_the_client_and_once(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s"), username="u") as device:
        told = listen(nodes, "on_acked", lambda user, *each: (user, *seen(*each)))
        await device.connect(nodes["a"], ("t", 2))
        for qos in (1, 2):
            await nodes["b"].publish("t", b"%d" % qos, qos)
        await until(lambda: len(told) == 2)
        await device.until(lambda: device.log == ["1", "2"])
        await leave(nodes, device)
        name = device.client_id
        assert sorted(told) == [("a", "u", name, qos, "t", b"%d" % qos, False) for qos in (1, 2)]


async def test_on_offline_message_tells_at_the_owner_and_of_who_is_away_alone(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        told = listen(nodes, "on_offline_message", seen)
        await device.connect(nodes["a"], ("t", 1))
        await until(lambda: all(each.here.tells_kept for each in services(nodes)))
        await nodes["a"].publish("t", b"0", 1)
        await device.until(lambda: device.log == ["0"])
        await leave(nodes, device)
        await nodes["a"].publish("t", b"1", 2)
        await until(lambda: bool(told))
        assert told == [("b", device.client_id, 1, "t", b"1", False)]


async def test_on_message_drop_tells_which_message_went(tmp_path: Path) -> None:
    queue = QueueOptions(max_offline_messages=1, drop="oldest")
    async with slotted(tmp_path, queue=queue) as nodes, Device(named(nodes, "b", "s")) as device:
        told = listen(nodes, "on_message_drop", lambda who, load, why: (why, *seen(who, load())))
        await device.connect(nodes["a"], ("t", 1))
        await leave(nodes, device)
        for each in (b"0", b"1"):
            await nodes["a"].publish("t", each, 2)
        await until(lambda: bool(told))
        assert told == [("b", "queue_full", device.client_id, 1, "t", b"0", False)]


async def test_a_session_that_expires_is_told_and_is_nowhere_any_more(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        told = listen(nodes, "on_session_expired", lambda who: (who.client_id,))
        await device.connect(nodes["a"], ("t", 1))
        await leave(nodes, device)
        for each in services(nodes):
            each._core.options.persistent_client_expiration = 0.001
        await until(lambda: bool(told))
        assert told == [("b", device.client_id)]
        assert owner_of(nodes, device.client_id) == "b"
        assert not await device.connect(nodes["a"])


async def test_a_filter_that_a_plugin_made_is_asked_about_as_the_client_had_asked_for_it(
    tmp_path: Path,
) -> None:
    """By whatever node it comes back, and when its slot has gone to another one."""
    asked: list[str] = []

    def prefixed(_user: Any, _who: Any, wanted: list[Subscription]) -> list[Subscription]:
        asked.extend(each.topic_filter for each in wanted)
        return [Subscription("made/" + each.topic_filter, each.qos) for each in wanted]

    async with slotted(tmp_path) as nodes, Device(named(nodes, "b", "s")) as device:
        for each in nodes.brokers.values():
            each.hooks.auth_on_subscribe = prefixed
        await device.connect(nodes["a"], ("t", 1))
        await leave(nodes, device)
        await nodes.brokers.pop("b").stop()
        await until(lambda: owner_of(nodes, device.client_id) not in ("", "b"))
        assert await device.connect(nodes["a"])
        await nodes["a"].publish("made/t", b"0", 1)
        await device.until(lambda: device.log == ["0"])
        assert asked == ["t", "t"]
