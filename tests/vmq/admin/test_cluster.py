"""What an operator may ask of the cluster."""

from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.peer import Peer
from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, config, is_subscribed, pair, together
from vmq.admin import cluster
from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.broker import Broker


def statuses(broker: Broker) -> dict[str, tuple[str, bool, bool]]:
    rows = cluster.list_members(broker)
    return {row.node: (row.status, row.is_up, row.is_self) for row in rows}


async def test_a_broker_that_is_no_node_says_so(node: Broker) -> None:
    with pytest.raises(RefusedError, match=r"cluster\.listen is not set"):
        cluster.list_members(node)
    with pytest.raises(RefusedError, match="is no node"):
        await cluster.join(node, "tcp://127.0.0.1:1")


async def test_the_members_are_listed_as_the_asked_one_sees_them(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        assert statuses(a) == {"a": ("joined", True, True), "b": ("joined", True, False)}
        (row,) = [row for row in cluster.list_members(a) if row.node == "b"]
        assert row.address == address(b)
        assert (row.waiting_messages, row.waiting_bytes) == (0, 0)


async def test_what_each_node_has_and_what_waits_for_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (a, b):
        Peer(a.registry(), "one").subscribe(("t", 0))
        Peer(b.registry(), "clean").subscribe(("t", 1), ("u", 2))
        await until(lambda: is_subscribed(a, "clean", "b"))

        def counts(name: str) -> tuple[int, int | None, int | None, int]:
            (row,) = [row for row in cluster.list_members(a) if row.node == name]
            return row.sessions, row.online, row.offline, row.subscriptions

        await until(lambda: (counts("a"), counts("b")) == ((1, 1, 0, 1), (1, 1, None, 2)))
        monkeypatch.setattr(clustering(b).node._link, "send", lambda *_: None)
        await a.publish("t", b"x" * 1000, qos=1)
        clustering(a).outboxes.dispatch.before_commit()
        (row,) = [row for row in cluster.list_members(a) if row.node == "b"]
        assert row.waiting_messages == 1
        assert row.waiting_bytes > 1000


async def test_a_node_joins_leaves_and_joins_again(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a, Broker(config(tmp_path, "b")) as b:
        for _ in range(2):
            assert (await cluster.join(b, address(a))).status == "joined"
            await together(a, b)
            assert await cluster.leave(b, 30) == cluster.LeftCluster("b", complete=True)
            assert statuses(b)["b"] == ("left", True, True)
            with pytest.raises(RefusedError, match="does not belong"):
                await cluster.leave(b, 30)


@patch.object(cluster, "JOIN_TIMEOUT", 0.0)
async def test_who_does_not_answer_is_asked_on(tmp_path: Path) -> None:
    silent = f"ipc://{tmp_path}/nobody"
    async with Broker(config(tmp_path, "a")) as a:
        joined = await cluster.join(a, silent)
        assert (joined.address, joined.status) == (silent, "asked")
        assert joined.reason is not None
        assert "nobody listens there" in joined.reason
        assert statuses(a)[""] == ("asked", False, False)


async def test_what_cannot_be_joined_is_refused(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        for wrong in ("b", "tcp://10.0.0.1:1", address(a)):
            with pytest.raises(AdminError):
                await cluster.join(a, wrong)
        assert clustering(a).node.machine.contacts == []
        with pytest.raises(RefusedError, match="it is alone"):
            await cluster.leave(a, 1)


async def test_only_the_dead_are_removed_unless_by_force(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, _):
        with pytest.raises(
            NotFoundError, match="'x' is no other member of the cluster; accepted: b"
        ):
            cluster.remove(a, "x", force=False)
        with pytest.raises(NotFoundError):
            cluster.remove(a, "a", force=True)
        with pytest.raises(RefusedError, match="'b' is alive"):
            cluster.remove(a, "b", force=False)
        assert cluster.remove(a, "b", force=True) == cluster.Removed("b")
        assert statuses(a)["b"] == ("removed", False, False)
