"""A durable session is its user's on every node, wherever it is and however it came there."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, config, is_subscribed, knows, pair
from vmq.admin import cluster as admin
from vmq.broker import Broker

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
