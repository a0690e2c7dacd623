"""What waited for a node that is gone: to whom it goes, and that it goes once."""

import asyncio
import shutil
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import clustering, is_subscribed, knows, together
from tests.vmq.clustering.test_moves_and_deaths import Life, lives
from vmq.admin import cluster
from vmq.clustering.delivery import outbox
from vmq.clustering.delivery.dropped import NODE_REMOVED
from vmq.clustering.hinted_handoff import hints_out as deposits
from vmq.clustering.hinted_handoff.giving import Giving
from vmq.clustering.hinted_handoff.redirect import Redirect


async def dead(b: Life, *others: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing more: its clean sessions look as if they were there still."""
    monkeypatch.setattr(clustering(b.broker).node._link, "send", lambda *_: None)
    await b.kill(monkeypatch)
    await until(lambda: all("b" not in clustering(each.broker).node.up for each in others))


def waits(life: Life) -> int:
    return clustering(life.broker).outboxes.waiting()[0]


def given_by(life: Life) -> float:
    figures = {each.name: each.samples[0].value for each in clustering(life.broker).families()}
    return figures["cluster_messages_inherited"]


async def test_what_waits_for_a_node_that_is_taken_out_goes_to_its_heirs_once_whenever_who_has_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Giving, "STEP_BYTES", 200)
    monkeypatch.setattr(outbox, "PARCEL", 2000)
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path))
        device = await stack.enter_async_context(Device("d"))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await device.connect(b.broker)
        await device.subscribe(("t", 2), ("other/+", 1))
        await device.drop()
        await publisher.connect(c.broker)
        await until(lambda: is_subscribed(c.broker, "d", "b"))
        await dead(b, a, c, monkeypatch=monkeypatch)
        for number in range(300):
            publisher.publish("t", str(number), 2)
        publisher.publish("other/1", "other", 2)
        await publisher.until(lambda: not publisher.unfinished)
        await until(lambda: waits(c) == 301)
        cluster.remove(c.broker, "b", force=True)
        # What is published before somebody has adopted the session is for it, too.
        publisher.publish("t", "300", 2)
        await until(lambda: given_by(c) > 50)
        assert given_by(c) < 302
        await publisher.drop()
        await c.kill(monkeypatch)
        await c.start()
        await together(a.broker, c.broker)
        heir = a if knows(a.broker, "d", "a") else c
        await until(lambda: heir.waiting == 302 and waits(c) == 0)
        assert clustering(c.broker).outboxes.lost == set()
        assert await device.connect(heir.broker)
        await device.until(lambda: len(device.log) == 302)
        assert device.log == [*map(str, range(300)), "other", "300"]


async def test_share_groups_choose_anew_and_what_nobody_wants_any_more_is_dropped_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, bytes, str]] = []
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path))
        member = await stack.enter_async_context(Device("m"))
        clean = await stack.enter_async_context(Device("clean", clean=True))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await member.connect(b.broker)
        await member.subscribe(("$share/g/t", 1))
        await clean.connect(b.broker)
        await clean.subscribe(("gone", 1))
        await publisher.connect(c.broker)
        for client in ("m", "clean"):
            await until(lambda client=client: is_subscribed(c.broker, client, "b"))  # type: ignore[misc]
        await dead(b, a, c, monkeypatch=monkeypatch)
        publisher.publish("t", "shared", 1)
        publisher.publish("gone", "for nobody", 1)
        await publisher.until(lambda: not publisher.unfinished)
        c.broker.hooks.on_message_drop = lambda who, load, why: told.append(
            (who.client_id, load().payload, why)
        )
        cluster.remove(c.broker, "b", force=True)
        publisher.publish("t", "later", 1)
        await until(lambda: waits(c) == 0 and not clustering(c.broker).outboxes.lost)
        assert told == [("b", b"for nobody", NODE_REMOVED)]
        heir = a if knows(a.broker, "m", "a") else c
        await member.connect(heir.broker)
        await member.until(lambda: sorted(member.log) == ["later", "shared"])


async def test_a_publisher_waits_for_the_heirs_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it published just when the node was taken out goes to the heirs before others were asked to keep it."""
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path))
        device = await stack.enter_async_context(Device("d"))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await device.connect(b.broker)
        await device.subscribe(("t", 2))
        await device.drop()
        await publisher.connect(c.broker)
        await until(lambda: is_subscribed(c.broker, "d", "b"))
        await dead(b, a, c, monkeypatch=monkeypatch)
        monkeypatch.setattr(deposits, "_STEP", 0)
        cluster.remove(c.broker, "b", force=True)
        for number in range(20):
            publisher.publish("t", str(number), 2)
        await until(lambda: waits(c) == 0 and not clustering(c.broker).outboxes.lost)
        await publisher.until(lambda: not publisher.unfinished)
        heir = a if knows(a.broker, "d", "a") else c
        assert heir.waiting == 20


async def test_a_node_without_its_disk_has_its_sessions_again_and_gets_what_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two sessions one is taken over while the node is dead; its part goes there, and the rest to the node."""
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path))
        stays, goes = [await stack.enter_async_context(Device(name)) for name in ("stays", "goes")]
        publisher = await stack.enter_async_context(Device("p", clean=True))
        for device in (stays, goes):
            await device.connect(b.broker)
            await device.subscribe(("t", 2))
            await device.drop()
        await publisher.connect(c.broker)
        for client in ("stays", "goes"):
            await until(lambda client=client: is_subscribed(c.broker, client, "b"))  # type: ignore[misc]

        async def publish(*numbers: int) -> None:
            for number in numbers:
                publisher.publish("t", str(number), 2)
            await publisher.until(lambda: not publisher.unfinished)

        await publish(*range(10))
        await until(lambda: waits(c) == 0)
        await dead(b, a, c, monkeypatch=monkeypatch)
        await publish(*range(10, 20))
        assert await goes.connect(a.broker)
        await until(lambda: knows(c.broker, "goes", "a"))
        await publish(*range(20, 30))
        shutil.rmtree(tmp_path / "b")
        await b.start()
        await together(a.broker, b.broker, c.broker)
        wanted = [str(number) for number in range(30)]
        await goes.until(lambda: len(goes.log) == 30)
        assert sorted(goes.log, key=int) == wanted
        assert await stays.connect(b.broker)
        await stays.until(lambda: len(stays.log) == 30)
        assert stays.log == wanted
        await until(lambda: waits(c) == 0)


async def test_what_is_for_a_node_that_is_let_in_again_while_its_lanes_are_looked_through_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its heir had is handed back, a session comes to it from elsewhere, and a client of its own subscribes."""
    go_on = asyncio.Event()
    wait_for_heirs = Redirect._wait_for_heirs

    async def wait_longer(self: Redirect, peer: str) -> None:
        await wait_for_heirs(self, peer)
        await go_on.wait()

    monkeypatch.setattr(Redirect, "_wait_for_heirs", wait_longer)
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(
            lives(tmp_path, heartbeat_timeout=0.6, alone=True)
        )
        device, comes = [await stack.enter_async_context(Device(name)) for name in ("d", "e")]
        new, *publishers = [
            await stack.enter_async_context(Device(name, clean=True)) for name in ("new", "p", "q")
        ]
        for each, life in ((device, b), (comes, a)):
            await each.connect(life.broker)
            await each.subscribe(("t", 2))
            await each.drop()
        for publisher, life in zip(publishers, (a, c), strict=True):
            await publisher.connect(life.broker)
        await until(lambda: all(is_subscribed(each.broker, "d", "b") for each in (a, c)))
        await until(lambda: is_subscribed(c.broker, "e", "a"))

        async def publish(*numbers: int) -> list[str]:
            for each in publishers:
                for number in numbers:
                    each.publish("t", f"{each.client_id} {number}", 2)
            for each in publishers:
                await each.until(lambda each=each: not each.unfinished)  # type: ignore[misc]
            return [f"{each.client_id} {number}" for each in publishers for number in numbers]

        await dead(b, a, c, monkeypatch=monkeypatch)
        wanted = await publish(*range(10))
        cluster.remove(c.broker, "b", force=True)
        await until(lambda: not any(knows(each.broker, "d", "b") for each in (a, c)))
        heir = a if knows(a.broker, "d", "a") else c
        wanted += await publish(*range(10, 20))
        await until(lambda: heir.waiting == 20)
        await b.start()
        await until(lambda: clustering(b.broker).joining.excluded_by != "")
        assert await device.connect(b.broker)
        assert await clustering(b.broker).joining.join(a.address, 10)
        await together(a.broker, b.broker, c.broker)
        await comes.open(b.broker)
        await new.connect(b.broker)
        await new.subscribe(("t", 2))
        for name in ("d", "e", "new"):
            for life in (a, c):
                await until(partial(is_subscribed, life.broker, name, "b"))
        for life, client in ((heir, "d"), (a, "e")):
            there = clustering(life.broker).mover.moving.outgoing["", client]
            await until(lambda there=there: there.open > 0)  # type: ignore[misc]
        latest = await publish(*range(20, 30))
        go_on.set()
        assert await comes.connack()
        await until(lambda: waits(a) == waits(c) == 0)
        await until(lambda: a.is_settled and b.is_settled and c.is_settled)
        latest += await publish(30)  # behind all that comes twice
        for each, expected in ((device, wanted + latest), (comes, wanted + latest), (new, latest)):
            await each.until(lambda each=each: {"p 30", "q 30"}.issubset(each.log))  # type: ignore[misc]
            assert sorted(each.log) == sorted(expected)
