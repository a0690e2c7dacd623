"""A node that leaves: what others have for it goes elsewhere, once where it could say what it took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.lives import Life, dead, lives, waits
from tests.vmq.clustering.nodes import clustering, hushed, is_subscribed, kill, knows, together
from tests.vmq.clustering.running.slotted import service
from vmq.admin import cluster
from vmq.clustering.messages.publishes import RemotePublish

GROUP = "$share/g/t"


def words(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


@asynccontextmanager
async def group(folder: Path) -> AsyncIterator[tuple[list[Life], Device, Device, Device]]:
    """Three nodes, a group with a member on the second, somebody else on the first, and a publisher on the third."""
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(folder))
        member, other, publisher = [
            await stack.enter_async_context(Device(name, clean=True)) for name in ("m", "n", "p")
        ]
        await member.connect(b.broker, (GROUP, 2))
        await other.connect(a.broker)
        await publisher.connect(c.broker)
        await until(lambda: is_subscribed(c.broker, "m", "b"))
        # Within one millisecond, and unheard of there, it would not be the newer one elsewhere.
        await until(lambda: knows(b.broker, "p", "c"))
        yield [a, b, c], member, other, publisher


async def join(other: Device, *nodes: Life) -> None:
    """The other one becomes a member, and these nodes know it."""
    await other.subscribe((GROUP, 2))
    for each in nodes:
        await until(lambda each=each: is_subscribed(each.broker, "n", "a"))  # type: ignore[misc]


def say(c: Life, b: Life, *numbers: int) -> None:
    """What one node chose a member of another for, which comes too late there."""
    for number in numbers:
        publish = RemotePublish(b"t", b"%d" % number, 2, "", GROUP)
        assert clustering(c.broker).outboxes.send(b.name, publish)
    clustering(c.broker).outboxes.flush()


async def gone(life: Life, *others: Life) -> None:
    """It dies, and the others know."""
    await kill(life.broker)
    await until(lambda: all(life.name not in clustering(each.broker).node.up for each in others))


def dropped(life: Life) -> int:
    return clustering(life.broker).outboxes.dropped.messages


async def publish_to(publisher: Device, member: Device, *numbers: int) -> None:
    """Publishes what the only member gets."""
    wanted = [*member.log, *words(*numbers)]
    for number in numbers:
        publisher.publish("t", str(number), 2)
    await publisher.until(lambda: not publisher.unfinished)
    await member.until(lambda: member.log == wanted)


async def test_what_a_node_did_not_take_before_it_left_another_member_gets_and_nobody_what_it_took(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as ([a, b, c], member, other, publisher):
        with hushed(b.broker):
            await publish_to(publisher, member, *range(5))
            await until(lambda: waits(c) == 5)
            await join(other, a, b, c)
            clustering(b.broker).outboxes.arrivals.close()
            say(c, b, *range(5, 10))
            assert await cluster.leave(b.broker, PATIENCE) == cluster.LeftCluster(
                "b", complete=True
            )
            await until(lambda: waits(c) == 0 and not clustering(c.broker).outboxes.lost)
            await other.until(lambda: len(other.log) == 5)
            assert (member.log, other.log) == (words(*range(5)), words(*range(5, 10)))
            assert dropped(c) == 0


async def test_what_it_could_not_say_that_it_took_comes_twice_rather_than_never(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as ([a, b, c], member, other, publisher):
        with hushed(b.broker):
            await publish_to(publisher, member, *range(5))
            await join(other, a, b, c)
            clustering(b.broker).outboxes.arrivals.close()
            say(c, b, *range(5, 10))
            await until(lambda: waits(c) == 10)
            await publisher.drop()
            await gone(c, a, b)
            assert (await cluster.leave(b.broker, 5)).node == "b"
            await c.start()
            await together(a.broker, c.broker)
            await other.until(lambda: len(other.log) == 10)
            assert sorted(other.log) == words(*range(10))
            await until(lambda: waits(c) == 0)
            assert dropped(c) == 0


async def test_a_node_that_left_takes_again_when_it_has_joined_again(tmp_path: Path) -> None:
    async with group(tmp_path) as ([a, b, c], member, _, publisher):
        await publish_to(publisher, member, 0)
        assert (await cluster.leave(b.broker, PATIENCE)).complete
        await until(lambda: not clustering(c.broker).outboxes.lost)
        await cluster.join(b.broker, a.address)
        await together(a.broker, b.broker, c.broker)
        await until(lambda: bool(service(b.broker).machines.slots.own()))
        await member.connect(b.broker, (GROUP, 2))
        await until(lambda: is_subscribed(c.broker, "m", "b"))
        await publish_to(publisher, member, 1, 2)


async def test_what_waits_for_a_dead_node_another_member_gets_when_the_one_with_it_leaves(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as ([a, b, c], member, other, publisher):
        await publisher.connect(b.broker)
        await member.connect(c.broker, (GROUP, 2))
        await until(lambda: is_subscribed(b.broker, "m", "c"))
        await dead(c, a, b)
        for number in range(5):
            publisher.publish("t", str(number), 2)
        await publisher.until(lambda: not publisher.unfinished)
        await until(lambda: waits(b) >= 5)  # and what else waits for a node that is down
        await join(other, a, b)
        assert (await cluster.leave(b.broker, 5)).node == "b"
        await other.until(lambda: len(other.log) == 5)
        assert other.log == words(*range(5))


async def test_nothing_acknowledged_is_lost_while_a_node_with_members_leaves(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as ([a, b, c], member, other, publisher):
        await join(other, a, b, c)
        second = Device("q", clean=True)
        await second.connect(a.broker)
        stop = asyncio.Event()
        sent: list[str] = []

        async def keep_publishing() -> None:
            while not stop.is_set():
                for each in (publisher, second):
                    sent.append(f"{each.client_id} {len(sent)}")
                    each.publish("t", sent[-1], 1 + len(sent) // 2 % 2)
                await asyncio.sleep(0.001)

        task = asyncio.create_task(keep_publishing())
        await member.until(lambda: len(member.log) > 50)
        left = asyncio.create_task(cluster.leave(b.broker, PATIENCE))
        await member.until(lambda: not member.is_connected)
        before = len(sent)
        assert await left == cluster.LeftCluster("b", complete=True)
        await until(lambda: len(sent) > before + 50)
        stop.set()
        await task
        for each in (publisher, second):
            await each.until(lambda each=each: not each.unfinished)  # type: ignore[misc]
        await other.until(lambda: {*member.log, *other.log} == {*sent})
        await second.drop()
