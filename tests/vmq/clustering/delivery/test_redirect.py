"""What waited for a node that is gone: to whom it goes, and that it goes once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.lives import Life, dead, lives, waits
from tests.vmq.clustering.nodes import clustering, is_subscribed, kill, together
from vmq.admin import cluster
from vmq.clustering.delivery import outbox, redirect
from vmq.clustering.delivery.dropped import NODE_REMOVED
from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.delivery.redirect import Redirect

GROUP = "$share/g/t"


def numbered(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


@asynccontextmanager
async def three(
    folder: Path, **options: object
) -> AsyncIterator[tuple[Life, Life, Life, Device, Device]]:
    """Of three nodes the second dies, with a member of a group; another is at the first, a publisher at the third."""
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(folder, **options))
        gone, member, publisher = [
            await stack.enter_async_context(Device(name, clean=True)) for name in ("m", "n", "p")
        ]
        await gone.connect(b.broker, (GROUP, 2), ("alone", 1))
        await publisher.connect(c.broker)
        await until(lambda: is_subscribed(c.broker, "m", "b"))
        await member.connect(a.broker)
        await dead(b, a, c)
        yield a, b, c, member, publisher


async def publish(publisher: Device, *numbers: int) -> None:
    for number in numbers:
        publisher.publish("t", str(number), 2)
    await publisher.until(lambda: not publisher.unfinished)


async def join(member: Device, *others: Life) -> None:
    await member.subscribe((GROUP, 2))
    for each in others:
        await until(partial(is_subscribed, each.broker, "n", "a"))


@patch.object(redirect, "STEP_BYTES", 200)
@patch.object(outbox, "PARCEL", 2000)
async def test_another_member_gets_it_once_whenever_who_has_it_dies(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, _, c, member, publisher):
        await publish(publisher, *range(300))
        await until(lambda: waits(c) == 300)
        await join(member, c)
        cluster.remove(c.broker, "b", force=True)
        await member.until(lambda: len(member.log) > 20)
        assert len(member.log) < 300
        await publisher.drop()
        await kill(c.broker)
        await c.start()
        await together(a.broker, c.broker)
        await member.until(lambda: len(member.log) >= 300)
        await until(lambda: waits(c) == 0 and not clustering(c.broker).outboxes.lost)
        assert sorted(member.log, key=int) == numbered(*range(300))


async def test_what_nobody_wants_any_more_is_dropped_and_told(tmp_path: Path) -> None:
    told: list[tuple[str, bytes, str]] = []
    async with three(tmp_path) as (_, _, c, _, publisher):
        publisher.publish("alone", "for nobody", 1)
        await publisher.until(lambda: not publisher.unfinished)
        await until(lambda: waits(c) == 1)
        c.broker.hooks.on_message_drop = lambda who, load, why: told.append(
            (who.client_id, load().payload, why)
        )
        cluster.remove(c.broker, "b", force=True)
        await until(lambda: waits(c) == 0 and not clustering(c.broker).outboxes.lost)
        assert told == [("b", b"for nobody", NODE_REMOVED)]
        assert not c.broker.registry().route(b"alone").nodes


@asynccontextmanager
async def let_in(
    folder: Path,
) -> AsyncIterator[tuple[asyncio.Event, Life, Life, Life, Device, Device]]:
    """The dead node is removed, and in again, while what waited for it waits for an event to go to others."""
    go_on = asyncio.Event()
    give_batch = Redirect._give_batch

    async def wait_longer(
        self: Redirect, peer: str, waiting: PeerOutbox, key: bytes, raw: bytes
    ) -> None:
        await go_on.wait()
        await give_batch(self, peer, waiting, key, raw)

    with patch.object(Redirect, "_give_batch", wait_longer):
        async with three(folder, alone=True) as (a, b, c, member, publisher):
            await publish(publisher, *range(5))
            await join(member, c)
            cluster.remove(c.broker, "b", force=True)
            await until(lambda: "b" in clustering(c.broker).outboxes.lost)
            await b.start()
            await come_back(a, b, c)
            yield go_on, a, b, c, member, publisher


async def come_back(a: Life, b: Life, c: Life) -> None:
    await until(lambda: clustering(b.broker).joining.excluded_by != "")
    assert await clustering(b.broker).joining.join(a.address, 10)
    await together(a.broker, b.broker, c.broker)


async def test_what_is_for_a_node_that_is_let_in_again_meanwhile_reaches_it(tmp_path: Path) -> None:
    async with let_in(tmp_path) as (go_on, _, b, c, member, publisher):
        async with Device("new", clean=True) as new:
            await new.connect(b.broker, ("t", 2))
            await until(lambda: is_subscribed(c.broker, "new", "b"))
            await publish(publisher, *range(5, 10))
            await member.until(lambda: len(member.log) == 5)
            assert new.log == []  # it waits behind what is for others
            go_on.set()
            await new.until(lambda: len(new.log) == 5)
            await member.until(lambda: len(member.log) == 10)
        assert new.log == numbered(*range(5, 10))
        assert sorted(member.log, key=int) == numbered(*range(10))
        assert not clustering(c.broker).outboxes.lost


async def test_what_is_for_one_that_is_let_in_and_removed_again_waits_for_nobody(
    tmp_path: Path,
) -> None:
    """It was the first on the way to the node for ever, and nothing behind it counted as taken."""
    async with let_in(tmp_path) as (go_on, a, b, c, member, publisher):
        async with Device("new", clean=True) as new:
            await new.connect(b.broker, ("t", 2))
            await until(lambda: is_subscribed(c.broker, "new", "b"))
            await publish(publisher, 5)
        cluster.remove(c.broker, "b", force=True)
        await until(lambda: "b" not in clustering(c.broker).node.members)
        go_on.set()
        await until(lambda: not clustering(c.broker).outboxes.lost)
        await come_back(a, b, c)
        async with Device("newer", clean=True) as newer:
            await newer.connect(b.broker, ("t", 2))
            await until(lambda: is_subscribed(c.broker, "newer", "b"))
            await publish(publisher, 6)
            await newer.until(lambda: newer.log == ["6"])
            await until(lambda: waits(c) == 0)
        assert sorted(member.log, key=int) == numbered(*range(7))
