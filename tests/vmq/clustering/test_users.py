"""A durable session is its user's on every node, wherever it is and however it came there."""

from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import is_subscribed, knows, pair
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
            await alice.connect(a, ("t", 1))
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
