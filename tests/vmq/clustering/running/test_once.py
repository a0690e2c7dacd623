"""QoS 2 once for those who are in no slot, when a durable publisher goes on with its packet ids elsewhere."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.until import until
from tests.support.wire import PUBREC
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import named, owners_of, slotted
from vmq.clustering.slots.register import ReceivedId


def received(nodes: House, client_id: str) -> dict[int, ReceivedId]:
    """The packet ids that the client has not released, as its slot knows them."""
    [owner] = owners_of(nodes, client_id).values()
    register = owner.state.registers.get(client_id)
    return {} if register is None else register.received


def has(device: Device, text: str) -> bool:
    return text in device.log


async def half_published(
    nodes: House, node: str, device: Device, *topics: str, has_dup: bool = True
) -> None:
    """It has sent messages at QoS 2, and does not know what became of them when its connection breaks."""
    await device.connect(nodes[node])
    device.answers = False
    for topic in topics:
        device.publish(topic, topic, 2)
    await device.until(lambda: len(device.found(PUBREC)) == len(topics))
    # As if none of these had arrived.
    for number, topic in enumerate(topics, 1):
        device.unfinished[number] = device.again(number, topic, topic, has_dup=has_dup)
    device.answers = True


@pytest.mark.parametrize(
    ("owner", "is_kept", "has_dup"),
    [("a", False, True), ("b", True, True), ("c", True, False), ("b", False, True)],
)
async def test_a_message_that_comes_again_at_another_node_reaches_clean_clients_once(
    tmp_path: Path, owner: str, is_kept: bool, has_dup: bool
) -> None:
    async with slotted(tmp_path, "abc") as nodes:
        publisher = Device(named(nodes, owner, "p"))
        clean = {name: Device(f"clean-{name}", clean=True) for name in "abc"}
        durable = Device("durable")
        async with publisher, clean["a"], clean["b"], clean["c"], durable:
            for name, device in clean.items():
                await device.connect(nodes[name], ("t/#", 2))
            await durable.connect(nodes["c"], ("t/#" if is_kept else "end", 2))
            await half_published(nodes, "a", publisher, "t/1", "t/2", has_dup=has_dup)
            assert len(received(nodes, publisher.client_id)) == 2
            await until(owners_of(nodes, publisher.client_id)[owner].has_all_forks)
            assert await publisher.connect(nodes["b"])
            await publisher.until(lambda: not publisher.unfinished)
            assert not received(nodes, publisher.client_id)
            publisher.publish("t/3", "t/3", 2)
            publisher.publish("end", "end", 1)
            for device in clean.values():
                await device.until(partial(has, device, "t/3"))
                assert device.log == ["t/1", "t/2", "t/3"]
            await durable.until(lambda: len(durable.log) == (3 if is_kept else 1))
            assert durable.log == (["t/1", "t/2", "t/3"] if is_kept else ["end"])


async def test_an_id_that_means_another_message_is_another_message(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        publisher, clean = Device(named(nodes, "b", "p")), Device("clean", clean=True)
        async with publisher, clean:
            await clean.connect(nodes["b"], ("t", 2))
            await half_published(nodes, "a", publisher, "t")
            publisher.unfinished[1] = publisher.again(1, "t", "other")
            await publisher.connect(nodes["b"])
            await clean.until(lambda: clean.log == ["t", "other"])


async def test_a_message_of_a_node_that_is_gone_comes_rather_twice_than_never(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path, "abc") as nodes:
        publisher, clean = Device(named(nodes, "b", "p")), Device("clean", clean=True)
        async with publisher, clean:
            await clean.connect(nodes["c"], ("t", 2))
            await half_published(nodes, "a", publisher, "t")
            await nodes.kill("a")
            await until(lambda: nodes.has_reach("b", "c", 2) and "a" not in nodes.brokers)
            [owner] = owners_of(nodes, publisher.client_id).values()
            await until(
                lambda: not owner.here.is_there(received(nodes, publisher.client_id)[1].front)
            )
            await publisher.connect(nodes["b"])
            await publisher.until(lambda: not publisher.unfinished)
            await clean.until(lambda: clean.log == ["t", "t"])
