"""Nodes that are to be joined, and why one does not answer."""

import asyncio
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, config, pair, together
from tests.vmq.sockets import peer_of
from vmq.admin import cluster
from vmq.admin.errors import AdminError
from vmq.broker import Broker
from vmq.clustering.node.joining import why_silent
from vmq.config.options import Config
from vmq_cluster.errors import ClusterError

REFUSED_UNAVAILABLE = 3


def impatient(given: Config) -> Config:
    """It does not wait for others at its start."""
    return replace(given, cluster=replace(given.cluster, sync_timeout=0))


def said(broker: Broker) -> str:
    """What `/health` says."""
    return "; ".join(broker.health())


async def refusal(broker: Broker) -> int:
    """The code that a client's CONNECT is answered with; 0: it is let in."""
    async with peer_of(broker) as peer:
        return (await peer.connect("client")).return_code


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


@pytest.mark.parametrize("says", ["cluster.join", "a plugin"])
async def test_nodes_that_all_have_other_addresses_find_each_other(
    tmp_path: Path, says: str
) -> None:
    async with pair(tmp_path):
        pass
    given = config(tmp_path, "a")
    join = [given.cluster.listen] if says == "cluster.join" else []
    async with Broker(given) as a, Broker(config(tmp_path, "b", join)) as b:
        if says == "a plugin":
            assert clustering(b).joining.may_join
            clustering(b).joining.join_nowait(address(a))
        await together(a, b)
        assert not clustering(b).joining.may_join, "it misses nobody"


async def test_a_member_keeps_its_name_and_clients_as_long_as_it_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who comes with its name serves nobody, is told why, and is let in when the name is free."""
    async with Broker(config(tmp_path, "b")) as b, Broker(config(tmp_path, "a", [address(b)])) as a:
        await together(a, b)
        async with Broker(impatient(config(tmp_path / "two", "a", [address(b)]))) as other:
            await until(lambda: f"the node at {address(a)} has this node's name" in said(other))
            assert await refusal(other) == REFUSED_UNAVAILABLE
            assert clustering(b).node.members["a"] == address(a)
            why = await clustering(other).joining.why_not(address(b))
            assert why.startswith(f"the node at {address(a)} has this node's name")
            reason = f"the node at {address(other)} has the name of the one at {address(a)}"
            assert caplog.text.count(f"refused node a: {reason}") == 1
            await a.stop()
            await together(b, other)
            assert clustering(b).node.members["a"] == address(other)
            await until(lambda: other.health() == [])
            assert await refusal(other) == 0


async def test_who_comes_with_the_name_of_a_live_node_hears_so_while_it_still_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(config(tmp_path, "b")) as b, Broker(config(tmp_path, "a", [address(b)])) as a:
        await together(a, b)
        given = config(tmp_path / "two", "a", [address(b)])
        patient = replace(given, cluster=replace(given.cluster, sync_timeout=1000))
        other = Broker(patient)
        starting = asyncio.create_task(other.start())
        reason = f"not let in: the node at {address(a)} has this node's name, 'a'"
        try:
            await until(lambda: reason in caplog.text)
            await a.stop()
            await starting
            assert await refusal(other) == 0
            assert caplog.text.count(reason) == 1
        finally:
            starting.cancel()
            await asyncio.wait([starting])
            await other.stop()


async def test_who_lost_its_name_while_it_was_away_serves_nobody_until_it_is_told_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor where the other is away as well, nor without anybody who could tell it."""
    first = impatient(config(tmp_path, "a"))
    async with Broker(config(tmp_path, "b")) as b:
        seed = address(b)
        async with Broker(config(tmp_path, "a", [seed])) as a:
            await together(a, b)
        async with Broker(config(tmp_path / "two", "a", [seed])) as other:
            await together(b, other)
            reason = (
                f"the node at {address(other)} has had this node's name, 'a', while this one was"
            )
        async with Broker(first) as a:
            await until(lambda: reason in clustering(a).admission.reason)
            assert reason in said(a)
            assert await refusal(a) == REFUSED_UNAVAILABLE
            assert clustering(a).node.members == {"a": address(a)}
            [row] = [each for each in cluster.list_members(a) if each.is_self]
            assert (row.status, row.address) == ("refused", address(a))
            with pytest.raises(AdminError, match="has the name 'a' by now"):
                await cluster.join(a, seed)
        assert f"name lost: {reason}" in caplog.text
        assert "refused node a: the node at" in caplog.text
    async with Broker(first) as a:
        assert reason in said(a)
        assert await refusal(a) == REFUSED_UNAVAILABLE
    async with Broker(replace(first, cluster=replace(first.cluster, alone=True))) as a:
        assert await refusal(a) == 0
        assert reason in said(a)


async def test_who_has_another_number_of_slots_is_let_in_by_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        given = impatient(config(tmp_path, "b", [address(a)]))
        async with Broker(replace(given, cluster=replace(given.cluster, slots=16))) as b:
            reason = "node a is refused: its cluster.slots is 8, this node's is 16"
            await until(lambda: reason in said(b))
            assert await refusal(b) == REFUSED_UNAVAILABLE
            assert reason in await clustering(b).joining.why_not(address(a))
        assert "refused node b: its cluster.slots is 16, this node's is 8" in caplog.text
        assert list(clustering(a).node.members) == ["a"]


async def test_who_was_removed_stays_out_and_serves_nobody_until_it_is_told_to(
    tmp_path: Path,
) -> None:
    reason = "this node was taken out of the cluster (by the word of {}): `vmq cluster join`"
    async with Broker(config(tmp_path, "a")) as a:
        seed = address(a)
        async with Broker(config(tmp_path, "b", [seed])) as b, peer_of(b) as client:
            await together(a, b)
            await client.connect("c")
            cluster.remove(a, "b", force=True)
            await client.rest()
            await until(lambda: clustering(b).node.up == [])
            assert reason.format("a") in said(b)
            assert await refusal(b) == REFUSED_UNAVAILABLE
        alone = config(tmp_path, "b", [seed])
        async with Broker(replace(alone, cluster=replace(alone.cluster, alone=True))) as b:
            assert await refusal(b) == 0
            assert "by the word of an earlier decision" in said(b)
        async with Broker(config(tmp_path, "b", [seed])) as b:
            assert clustering(b).node.machine.contacts == []
            assert reason.format("an earlier decision") in said(b)
            assert await refusal(b) == REFUSED_UNAVAILABLE
            assert (await cluster.join(b, seed)).status == "joined"
            await together(a, b)
            assert b.health() == []
            assert await refusal(b) == 0


async def test_who_has_left_serves_nobody_until_it_joins_again(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        seed = address(a)
        async with Broker(config(tmp_path, "b", [seed])) as b:
            await together(a, b)
            assert (await cluster.leave(b, 10)).complete
        async with Broker(config(tmp_path, "b")) as b:
            assert "this node has left its cluster: `vmq cluster join`" in said(b)
            assert await refusal(b) == REFUSED_UNAVAILABLE
        async with Broker(config(tmp_path, "b", [seed])) as b:
            await together(a, b)
            assert b.health() == []
            assert await refusal(b) == 0


async def test_who_is_to_join_serves_nobody_until_it_is_let_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = f"ipc://{tmp_path}/seed"
    async with Broker(impatient(config(tmp_path, "b", [seed]))) as b:
        reason = f"is to join a cluster and is not let in: {seed}: nobody listens there"
        assert reason in said(b)
        assert await refusal(b) == REFUSED_UNAVAILABLE
        assert [each.status for each in cluster.list_members(b)] == ["joining", "asked"]
        async with Broker(config(tmp_path, "a", listen=seed)) as a:
            await together(a, b)
            await until(lambda: b.health() == [])
            assert [each.status for each in cluster.list_members(b)] == ["joined", "joined"]
            assert await refusal(b) == 0
            assert caplog.text.count("clients are not served") == 1
        # Alone again it goes on: it has its place.
        assert await refusal(b) == 0


async def test_who_is_among_those_to_join_may_be_the_first(tmp_path: Path) -> None:
    listen = f"ipc://{tmp_path}/b.socket"
    first = impatient(config(tmp_path, "b", [f"ipc://{tmp_path}/none", listen], listen))
    async with Broker(first) as b:
        assert b.health() == []
        assert await refusal(b) == 0


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
