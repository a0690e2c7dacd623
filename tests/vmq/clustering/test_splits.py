"""Brokers that cannot reach each other, or not all of them: what was acknowledged on any side comes to the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House, house, publish, subscribed
from tests.vmq.clustering.nodes import is_subscribed, knows


def is_safe(nodes: House, name: str, client: str) -> bool:
    """Whether what a node has of a session is in a copy."""
    replicas = nodes.replication(name).replicas
    session = nodes[name].registry().subscribers[client].queue.session
    return replicas is not None and replicas.is_safe(session)


async def test_a_node_that_has_lost_a_session_takes_it_again_when_the_owner_since_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is on its way to who took it, and what that one had of it is in a copy."""
    async with house(tmp_path, adopt_after=3600.0) as nodes, Device("s") as device:
        await subscribed(nodes["b"], "s")
        await until(lambda: is_subscribed(nodes["a"], "s", "b"))
        await publish(nodes["a"], b"before")
        await nodes.part("b", "a", "c")
        assert await device.connect(nodes["a"])
        await device.until(lambda: device.log == ["before"])
        await device.disconnect()
        await publish(nodes["b"], b"there")
        await publish(nodes["a"], b"meanwhile")
        await until(lambda: is_safe(nodes, "a", "s"))
        await nodes.mend("b", "c")
        await until(lambda: knows(nodes["b"], "s", "a"))
        await nodes.lose("a", monkeypatch)
        assert await device.connect(nodes["b"])
        await device.until(lambda: {"there", "meanwhile"} <= set(device.log))
