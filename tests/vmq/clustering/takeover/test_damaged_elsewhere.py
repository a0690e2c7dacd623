"""Sessions whose owner cannot read all of them: no other node takes them over with what is left."""

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import plyvel
import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, config, is_subscribed, knows, together
from tests.vmq.clustering.world import World
from tests.vmq.clustering.world_node import WHO
from vmq.broker import Broker
from vmq.config.options import Config

MESSAGES = 120
UNAVAILABLE = 3


def alone(config: Config) -> Config:
    """Without copies of sessions on other nodes."""
    return replace(config, cluster=replace(config.cluster, replicas=1))


def text(number: int) -> str:
    """Some that is not compressed, and can be found in the files."""
    return random.Random(number).randbytes(75).hex()


def flip_in_a_table(store: Path, wanted: bytes) -> None:
    """Flips a bit where a payload lies; what is in the log comes to a table before."""
    with closing(plyvel.DB(str(store), compression=None)):
        pass
    for path in store.glob("*.ldb"):
        raw = bytearray(path.read_bytes())
        if (at := raw.find(wanted[:40])) >= 0:
            raw[at + 20] ^= 16
            path.write_bytes(raw)
            return
    raise AssertionError("the payload is in no table")


@asynccontextmanager
async def damaged(folder: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    """Two nodes, of which `a` has the session `d` with a queue in which a block cannot be read: nobody knows yet."""
    async with Broker(alone(config(folder, "b"))) as b:
        a = Broker(alone(config(folder, "a", [address(b)])))
        async with a, Device("d") as device:
            await together(a, b)
            there = address(a)
            await device.connect(a)
            await device.subscribe(("t", 1))
            await until(lambda: is_subscribed(b, "d", "a"))
            await device.drop()
            for number in range(MESSAGES):
                await a.publish("t", text(number).encode(), 1)
        flip_in_a_table(folder / "a" / "store", text(MESSAGES * 2 // 3).encode())
        async with Broker(alone(config(folder, "a", listen=there))) as a:
            await together(a, b)
            yield a, b


async def test_a_session_that_its_owner_refuses_is_refused_at_every_node_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with damaged(tmp_path) as (a, b), Device("d") as device:
        await device.open(a)  # which meets the damage, and cuts it off
        await device.until(lambda: not device.is_connected)
        assert await device.refusal(a) == UNAVAILABLE
        for _ in range(2):
            assert await device.refusal(b) == UNAVAILABLE
        assert knows(a, "d", "a")
        assert knows(b, "d", "a")
        assert "d" in a.registry().subscribers
        assert "d" not in b.registry().subscribers
        assert "node 'a': part of its stored session is damaged" in caplog.text
        assert any("(d)" in each for each in a.health())


async def test_damage_that_is_met_on_the_way_cuts_the_client_off_and_keeps_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with damaged(tmp_path) as (a, b), Device("d") as device:
        await device.open(b)
        await device.until(lambda: not device.is_connected)
        assert await device.refusal(b) == UNAVAILABLE
        # What came before the damage is there, all else is where it was, and both are refused.
        assert await device.refusal(a) == UNAVAILABLE
        moving = clustering(a).mover.moving
        assert list(moving.outgoing) == [("", "d")]
        [(_, ghost)] = clustering(a).mover.ghosts()
        assert device.log == [text(number) for number in range(len(device.log))]
        there = b.registry().subscribers["d"].queue
        assert ghost.queue.next_seq - ghost.queue.first + there.next_seq - 1 == MESSAGES
        assert ghost.queue.next_seq - ghost.queue.first > MESSAGES // 3
        assert "node 'a': part of its stored session is damaged" in caplog.text
        assert any("(d)" in each for each in a.health())
        # Who refuses it without having the damage says where that is.
        [told] = b.health()
        assert told.startswith(
            "the store of node 'a' is damaged: it has parts of 1 stored sessions"
        )
        assert "(d)" in told
        # A clean session asks for nothing of it.
        device.clean = True
        await device.connect(b)
        assert b.health() == []


def test_a_claim_that_is_refused_is_over_before_its_deadline() -> None:
    world = World(1, nodes=3, others=False)
    owner, claimer = world.nodes["a"], world.nodes["b"]
    owner.has_damage = True
    world.connect("b")
    ticket = world.client.current
    world.settle()
    assert claimer.refused_at == [(ticket, "a")]
    assert (WHO in owner.sessions, WHO in claimer.sessions) == (True, False)
    assert not claimer.moving.claims


def test_the_rest_comes_once_it_can_be_read() -> None:
    """Its owner is down for the repair: until it is back, the session goes on without it, as of any node."""
    world = World(1, nodes=3, others=False)
    owner, claimer = world.nodes["a"], world.nodes["b"]
    for _ in range(20):
        owner.publish()
    world.connect("b")
    while not owner.ghosts:
        world.run_lane("a", "b") if world.outboxes["a", "b"] else world.run_lane("b", "a")
    owner.has_damage = True
    world.settle()
    assert claimer.moving.damaged.nodes == {WHO: "a"}
    assert owner.ghosts[WHO].waiting
    world.connect("b")
    assert claimer.refused_at[-1] == (world.client.current, "a")
    world.connect("c")  # asks its owner, which says where the damage is
    world.settle()
    assert world.nodes["c"].refused_at == [(world.client.current, "a")]
    world.crash("a")
    world.notice("b", "a")
    assert not claimer.moving.damaged.nodes
    owner.has_damage = False
    world.settle()
    assert not owner.ghosts
    world.finish()
    assert sorted(world.client.log) == sorted(world.mids)
