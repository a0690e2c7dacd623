"""Nodes that are to be joined, and why one does not answer."""

import socket
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, config, pair, together
from vmq.admin import cluster
from vmq.broker import Broker
from vmq.clustering.node.joining import why_silent
from vmq_cluster.errors import ClusterError


async def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        reason = await why_silent(f"tcp://127.0.0.1:{sock.getsockname()[1]}")
    assert reason.startswith("nobody listens there (Connection refused)")
    assert "cluster.listen" in reason
    reason = await why_silent(f"ipc://{tmp_path}/none")
    assert reason.startswith("nobody listens there (No such file or directory)")
    assert "nobody listens there" in await why_silent("tcp://127.0.0.1:0")


async def test_who_listens_lets_nobody_in(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ipc,
    ):
        ipc.bind(str(tmp_path / "s"))
        ipc.listen()
        for where in (f"tcp://127.0.0.1:{tcp.getsockname()[1]}", f"ipc://{tmp_path}/s"):
            reason = await why_silent(where)
            assert "cluster.key_file" in reason
            assert "another version" in reason


async def test_a_name_that_another_node_has_is_told_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Broker(config(tmp_path / "one", "a")) as one,
        Broker(config(tmp_path / "two", "a")) as two,
    ):
        clustering(two).node.join(address(one))
        await until(
            lambda: bool(clustering(one).joining.namesakes and clustering(two).joining.namesakes)
        )
        for asked, other in ((one, two), (two, one)):
            reason = await clustering(asked).joining.why_not(address(other))
            assert f"the node at {address(other)} has this node's name, 'a'" in reason
            assert "cluster.node_name" in reason
        assert list(clustering(one).node.members) == ["a"]
        assert caplog.text.count("name taken: ") == 2


async def test_a_member_whose_name_another_takes_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (a, b), Broker(config(tmp_path / "two", "a")) as other:
        clustering(other).node.join(address(b))
        await until(lambda: clustering(b).node.members["a"] == address(other))
        assert f"node moved name=a from={address(a)} to={address(other)}" in caplog.text


async def test_who_was_removed_stays_out_after_a_restart(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        seed = address(a)
        async with Broker(config(tmp_path, "b", [seed])) as b:
            await together(a, b)
            cluster.remove(a, "b", force=True)
            await until(lambda: clustering(b).node.up == [])
            await until(lambda: b.health() == ["this node was taken out of the cluster by a"])
        async with Broker(config(tmp_path, "b", [seed])) as b:
            assert clustering(b).node.machine.contacts == []
            assert b.health() == ["this node was taken out of the cluster by an earlier decision"]
            assert await clustering(b).joining.join(seed, 30)
            await together(a, b)
            assert b.health() == []


async def test_its_own_address_among_those_to_join_is_passed_over(tmp_path: Path) -> None:
    listen = f"ipc://{tmp_path}/a.socket"
    async with Broker(config(tmp_path, "a", [listen], listen)) as a:
        assert clustering(a).node.machine.contacts == []


async def test_own_known_and_too_many_addresses_are_passed_over(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        joining = clustering(a).joining
        assert joining.may_join
        joining.join_nowait(address(a))
        assert clustering(a).node.machine.contacts == []
        for number in range(100):
            joining.join_nowait(f"ipc://{tmp_path}/{number}")
        joining.join_nowait(f"ipc://{tmp_path}/0")
        with pytest.raises(ClusterError, match="100 others were asked"):
            joining.join_nowait(f"ipc://{tmp_path}/100")
        with pytest.raises(ClusterError, match="is no address"):
            joining.join_nowait("http://x:1")
