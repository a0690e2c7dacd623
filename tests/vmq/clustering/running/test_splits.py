"""A cluster that is split: each side serves, and what both sides took is there in the end."""

from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.running.slotted import are_owned, named, owners_of, service, slotted


async def test_both_sides_of_a_split_serve_and_nothing_is_lost(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        subscriber = Device(named(nodes, "a", "s"))
        one, other = Device("p", clean=True), Device("q", clean=True)
        async with subscriber, one, other:
            await subscriber.connect(nodes["a"])
            await subscriber.subscribe(("t", 2))
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
