"""A session of which its owner's store has lost something is made whole from its copy on another node."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, config, is_subscribed, together
from tests.vmq.clustering.takeover.test_damaged_elsewhere import flip_in_a_table, text
from vmq.broker import Broker
from vmq.config.options import Config

MESSAGES = 120
UNAVAILABLE = 3


def are_whole(owner: Broker) -> bool:
    """Whether its sessions have copies that lack nothing."""
    replicas, store = clustering(owner).replication.replicas, owner.registry().core.store
    assert replicas is not None
    assert store is not None
    return not (replicas.lagging() or replicas.waits() or store.dirty or store.writing)


def is_refused(owner: Broker) -> bool:
    return any("stored sessions are refused" in each for each in owner.health())


def texts(client: str, count: int = MESSAGES) -> list[str]:
    return [text(ord(client) * 1000 + number) for number in range(count)]


async def fill(owner: Broker, client: str, *messages: str) -> None:
    for each in messages:
        await owner.publish(client, each.encode(), 1)


@asynccontextmanager
async def damaged(folder: Path, at: int) -> AsyncIterator[tuple[Config, Config]]:
    """Two nodes that are stopped: `a` has lost a block of what waits for `d`, or for `d` and `e` behind it.

    The other has copies of both.
    """
    async with Broker(config(folder, "b")) as b:
        other = config(folder, "b", listen=address(b))
        async with Broker(config(folder, "a", [address(b)])) as a:
            own = config(folder, "a", listen=address(a))
            await together(a, b)
            for client in "de":
                async with Device(client) as device:
                    await device.connect(a)
                    await device.subscribe((client, 1))
                await fill(a, client, *texts(client))
            await until(lambda: is_subscribed(b, "e", "a") and are_whole(a))
    flip_in_a_table(folder / "a" / "store", texts("d")[at].encode())
    yield own, other


async def check(owner: Broker, client: str, expected: list[str]) -> None:
    """The client gets just this."""
    async with Device(client) as device:
        assert await device.connect(owner)
        await device.until(lambda: len(device.log) >= len(expected))
        assert device.log == expected


@pytest.mark.parametrize("at", [MESSAGES * 2 // 3, MESSAGES - 1])
async def test_what_is_lost_here_is_had_from_the_copy(
    tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with damaged(tmp_path, at) as (own, other), Broker(other) as b, Broker(own) as a:
        await together(a, b)
        await until(lambda: "is whole again from its copy client=d node=b" in caplog.text)
        await until(lambda: not is_refused(a))
        for client in "de":
            await fill(a, client, "last")
            await check(a, client, [*texts(client), "last"])
        await until(lambda: are_whole(a))


async def test_until_its_copy_can_be_reached_it_is_refused_and_what_comes_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also over a start: what comes meanwhile does not take the places of what is lost."""
    caplog.set_level(logging.INFO)
    async with damaged(tmp_path, MESSAGES - 1) as (own, other):
        async with Broker(own) as a, Device("d") as device:
            await device.open(a)  # which meets the damage
            await device.until(lambda: not device.is_connected)
            await until(lambda: is_refused(a))
        async with Broker(own) as a:
            for client in "de":
                await fill(a, client, *texts(client, MESSAGES + 10)[MESSAGES:])
            async with Device("d") as device:
                assert await device.refusal(a) == UNAVAILABLE
            async with Broker(other) as b:
                await together(a, b)
                await until(lambda: not is_refused(a))
                for client in "de":
                    await check(a, client, texts(client, MESSAGES + 10))
