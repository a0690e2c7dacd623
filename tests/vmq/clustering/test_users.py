"""A durable session is its user's on every node, wherever it is and however it came there."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, config, is_subscribed, knows, pair
from vmq.admin import cluster as admin
from vmq.broker import Broker
from vmq.config.options import Config, SessionOptions

BAD_ID = 2


def owner(broker: Broker, client_id: str) -> str | None:
    return broker.registry().subscribers[client_id].owner


@pytest.mark.parametrize("clean", [False, True])
async def test_another_user_neither_takes_nor_ends_it_from_another_node(
    tmp_path: Path, *, clean: bool
) -> None:
    async with pair(tmp_path) as (a, b):
        alice, bob = Device("d", username="alice"), Device("d", username="bob", clean=clean)
        async with alice, bob:
            await alice.connect(a)
            await alice.subscribe(("t", 1))
            await until(lambda: is_subscribed(b, "d", "a"))
            assert await bob.refusal(b) == BAD_ID
            assert alice.is_connected
            await alice.disconnect()
            assert await bob.refusal(b) == BAD_ID
            await b.publish("t", b"alice's", 1)
            assert await alice.connect(b)
            await alice.until(lambda: alice.log == ["alice's"])
            await until(lambda: knows(a, "d", "b"))
            assert await bob.refusal(a) == BAD_ID
            assert owner(b, "d") == "alice"


async def test_it_stays_its_user_s_where_its_node_left_it_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        settings = config(tmp_path, "b", [address(a)])
        async with Broker(settings) as b:
            await until(lambda: bool(clustering(a).node.up))
            async with Device("d", username="alice") as alice:
                await alice.connect(a)
                await alice.subscribe(("t", 1))
            await until(lambda: is_subscribed(b, "d", "a"))
            assert await admin.leave(a, 30) == admin.LeftCluster("a", complete=True)
            await until(lambda: "d" in b.registry().subscribers)
            await until(lambda: owner(b, "d") == "alice")
        async with Broker(replace(settings, cluster=replace(settings.cluster, join=[]))) as b:
            assert owner(b, "d") == "alice"
            async with Device("d", username="bob") as bob:
                assert await bob.refusal(b) == BAD_ID


async def test_it_stays_its_user_s_where_its_node_is_lost(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        async with Device("d", username="alice") as alice:
            await alice.connect(a)
            await alice.subscribe(("t", 1))
            await until(lambda: is_subscribed(b, "d", "a"))
            await clustering(a).node.stop()  # it dies
        await until(lambda: not clustering(b).node.up)
        async with Device("d", username="bob") as bob:
            assert await bob.refusal(b) == BAD_ID
            admin.remove(b, "a", force=True)
            await until(lambda: "d" in b.registry().subscribers)
            assert owner(b, "d") == "alice"
            assert await bob.refusal(b) == BAD_ID
        async with Device("d", username="alice") as alice:
            assert await alice.connect(b)


def of(folder: Path, name: str, owner: str) -> Config:
    return replace(config(folder, name), session=SessionOptions(owner=owner))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["user", "client_id"])
async def test_of_two_users_sessions_that_meet_the_newer_has_what_its_user_asks_for(
    tmp_path: Path, rule: str
) -> None:
    """As after a split in which both began. Only with the client id as owner they become one."""
    async with (
        Broker(of(tmp_path, "a", rule)) as a,
        Broker(of(tmp_path, "b", rule)) as b,
        Device("d", username="alice") as alice,
        Device("d", username="bob") as bob,
    ):
        await alice.connect(a)
        await alice.subscribe(("t", 1), ("u", 1))
        await alice.drop()
        await a.publish("t", b"alice's", 1)
        await a.publish("u", b"of both", 1)
        record = clustering(a).directory.record("", "d")
        assert record is not None
        await until(lambda: time.time() * 1000 > record.since + 1)  # so bob's is the newer
        await bob.connect(b)
        await bob.subscribe(("u", 1))
        assert await clustering(b).joining.join(address(a), 30)
        await until(lambda: "d" not in a.registry().subscribers)
        await until(lambda: is_subscribed(a, "d", "b"))
        if rule == "client_id":
            await bob.until(lambda: "of both" in bob.log)
        await a.publish("t", b"nobody's", 1)
        await a.publish("u", b"bob's", 1)
        await bob.until(lambda: "bob's" in bob.log)
        assert bob.log == (["of both", "bob's"] if rule == "client_id" else ["bob's"])
        await until(lambda: a.registry().trie.count == 0)
        await until(lambda: not clustering(a).mover.moving.outgoing)
