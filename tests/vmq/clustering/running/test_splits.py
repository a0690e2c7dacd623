"""A cluster that is split: each side serves, and what both sides took is there in the end."""

from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering
from tests.vmq.clustering.running.slotted import (
    SLOTS,
    are_owned,
    named,
    owners_of,
    service,
    slotted,
)
from vmq.clustering.slots.words import slot_of


async def test_both_sides_of_a_split_serve_and_nothing_is_lost(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        subscriber = Device(named(nodes, "a", "s"))
        one, other = Device("p", clean=True), Device("q", clean=True)
        async with subscriber, one, other:
            await subscriber.connect(nodes["a"], ("t", 2))
            await one.connect(nodes["a"])
            await other.connect(nodes["b"])
            await nodes.part("a", "b")
            await until(lambda: len(owners_of(nodes, subscriber.client_id)) == 2)
            one.publish("t", "1", 2)
            other.publish("t", "2", 2)
            await one.until(lambda: not one.unfinished)
            await other.until(lambda: not other.unfinished)
            await subscriber.until(lambda: subscriber.log == ["1"])
            await nodes.mend("a", "b")
            await subscriber.until(lambda: subscriber.log == ["1", "2"])
            assert subscriber.is_connected
            await until(lambda: are_owned(nodes))


async def test_what_the_others_took_while_a_node_was_out_is_there_when_it_is_in_again(
    tmp_path: Path,
) -> None:
    """It takes the slot up by what it has, with nobody beside it, and in a later lineage than that of the owner."""
    async with slotted(tmp_path) as nodes:
        a, b = nodes["a"], nodes["b"]
        subscriber = Device(named(nodes, "a", "s"))
        slot = slot_of(subscriber.client_id, SLOTS)
        async with subscriber, Device("p", clean=True) as publisher:
            await subscriber.connect(a, ("t", 1))
            await subscriber.drop()
            await publisher.connect(a)
            clustering(a).node.remove("b", force=True)
            await until(lambda: clustering(b).joining.excluded_by != "")
            publisher.publish("t", "1", 1)
            await publisher.until(lambda: not publisher.unfinished)
            await until(lambda: slot in service(b).machines.slots.owners)
            assert await clustering(b).joining.join(address(a), 10)
            await until(lambda: are_owned(nodes))
            await subscriber.connect(a)
            await subscriber.until(lambda: subscriber.log == ["1"])


async def test_a_node_that_was_held_up_learns_of_that_from_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets are read before timers run: it is to know by then that another may own its slots."""
    async with slotted(tmp_path) as nodes:
        slots = service(nodes["a"])
        core = slots._core
        assert slots._timer is not None
        slots._timer.cancel()
        clock = core.wall_clock
        monkeypatch.setattr(core, "wall_clock", lambda: clock() + 60)
        holds = slots.here.reach.holds
        await until(lambda: slots.here.reach.holds > holds)
        slots._tick()
        await until(lambda: are_owned(nodes))
