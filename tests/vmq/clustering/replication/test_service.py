"""Replicas in running brokers: what was acknowledged is there when the broker that did so is not any more."""

import logging
from functools import partial
from pathlib import Path

import pytest

from tests.support.stored import records_of
from tests.support.until import until
from tests.support.wire import PUBLISH, puback_packet, publish_packet
from tests.vmq.clustering.house import (
    NUMBERS,
    House,
    house,
    publish,
    received,
    store_of,
    subscribed,
)
from tests.vmq.clustering.nodes import clustering, suspend_commits, together
from tests.vmq.sockets import peer_of
from vmq.broker import Broker
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.replication.promotion import whence


@pytest.mark.parametrize("qos", (1, 2))
async def test_what_a_dead_node_acknowledged_waits_at_the_node_that_adopts_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "vmq.cluster")
    async with house(tmp_path) as nodes:
        await subscribed(nodes["a"], "s")
        await publish(nodes["a"], *NUMBERS, qos=qos)
        [keeper] = nodes.copies()["s"]
        assert keeper in ("b", "c")
        await nodes.kill("a", monkeypatch)
        await until(lambda: nodes.replication(keeper).adopted == 1)
        assert "node=a stays away: its sessions go on where the best copies are" in caplog.text
        assert "adopted the session of a node that stays away client=s node=a" in caplog.text
        # It goes on taking messages there, from clients anywhere.
        other = "c" if keeper == "b" else "b"
        await until(
            lambda: [each.node for each in nodes[other].registry().route(b"t").nodes] == [keeper]
        )
        await publish(nodes[other], b"more", qos=qos)
        async with peer_of(nodes[keeper]) as peer:
            assert (await peer.connect("s", clean=False)).session_present
            got: list[bytes] = []
            while len(got) < len(NUMBERS) + 1:
                packet = await peer.packet()
                if packet.type == PUBLISH:
                    got.append(packet.payload)
                    assert packet.qos == qos
                    if qos == 1:
                        peer.send(puback_packet(packet.packet_id))
                    else:
                        peer.send(b"\x50\x02" + packet.packet_id.to_bytes(2, "big"))
                else:
                    peer.send(b"\x70\x02" + packet.raw[2:4])
            assert got == [*NUMBERS, b"more"]
        # And it has a copy again.
        await until(lambda: nodes.copies().get("s") == [other])


async def test_any_node_finds_the_copy_and_has_it_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        clients = [f"s{number}" for number in range(4)]
        await subscribed(nodes["a"], *clients)
        large = b"x" * 3000
        await publish(nodes["a"], *NUMBERS, large)
        await nodes.kill("a", monkeypatch)
        await until(lambda: clustering(nodes["b"]).node.up == ["c"])
        assert not await nodes.replication("b").find_copy("", "nobody", "a")
        for client in clients:
            assert await nodes.replication("b").find_copy("", client, "a")
            session = nodes["b"].registry().subscribers[client]
            assert list(session.subscriptions) == ["t"]
            made_of = whence(store_of(nodes["b"]), session.queue.session)
            assert made_of is not None
            assert made_of.owner == "a"
        for client in clients:
            async with peer_of(nodes["b"]) as peer:
                assert (await peer.connect(client, clean=False)).session_present
                found = []
                for _ in NUMBERS:
                    [payload] = await received(peer, 1)
                    found.append(payload)
                assert found == NUMBERS
        await until(lambda: len([1 for holders in nodes.copies().values() if "c" in holders]) >= 4)


async def test_a_client_of_a_dead_node_finds_everything_at_the_node_that_it_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that node has the copy, and whether it knows already that the other is dead."""
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        clients = [f"s{number}" for number in range(4)]
        await subscribed(nodes["a"], *clients)
        await publish(nodes["a"], *NUMBERS)
        assert set(nodes.copies()) == set(clients)
        await nodes.kill("a", monkeypatch)
        for client in clients:
            async with peer_of(nodes["b"]) as peer:
                assert (await peer.connect(client, clean=False)).session_present
                for number in NUMBERS:
                    assert await received(peer, 1) == [number]
                record = clustering(nodes["b"]).directory.record("", client)
                assert record is not None
                assert record.node == "b"
        async with peer_of(nodes["b"]) as peer:
            assert not (await peer.connect("new", clean=False)).session_present


async def test_the_sessions_of_a_node_that_is_taken_out_go_on_with_what_they_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        clients = [f"s{number}" for number in range(6)]
        await subscribed(nodes["a"], *clients)
        await publish(nodes["a"], *NUMBERS)
        await nodes.kill("a", monkeypatch)
        clustering(nodes["b"]).node.remove("a", force=True)
        await until(lambda: all("a" not in clustering(nodes[name]).node.members for name in "bc"))
        for client in clients:
            await until(partial(is_elsewhere, nodes, client))
            owner = owner_of(nodes["c"], client)
            async with peer_of(nodes[owner]) as peer:
                assert (await peer.connect(client, clean=False)).session_present
                for number in NUMBERS:
                    assert await received(peer, 1) == [number]


def is_elsewhere(nodes: House, client: str) -> bool:
    """Whether all know that a session is not at `a` any more, and it is where it is said to be."""
    owners = {owner_of(nodes[name], client) for name in "bc"}
    if len(owners) > 1 or owners == {"a"}:
        return False
    return client in nodes[owners.pop()].registry().subscribers


def owner_of(broker: Broker, client: str) -> str:
    record = clustering(broker).directory.record("", client)
    return "" if record is None else record.node


async def test_an_acknowledgement_waits_for_the_copy_and_no_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(tmp_path, "ab", replica_timeout=0.5) as nodes:
        await subscribed(nodes["a"], "s")
        with monkeypatch.context() as patch:
            suspend_commits(nodes["b"], patch)
            async with peer_of(nodes["a"]) as peer:
                await peer.connect("p")
                peer.send(publish_packet("t", b"x", qos=1, packet_id=1))
                replicas = nodes.replication("a").replicas
                assert replicas is not None
                assert replicas.left_out == 0
                await peer.expect(puback_packet(1))
                assert replicas.left_out == 1
        assert 'copies of sessions go on without node=b reason="it confirms nothing"' in caplog.text
        nodes["b"].parts.committer.commit()
        await until(lambda: replicas.lagging() == 0 and replicas.peers()[0].is_active)
        figures = {each.name: each.samples[0].value for each in clustering(nodes["a"]).families()}
        assert figures["replicas_left_out"] == 1
        assert figures["replicas_lagging"] == 0
        await publish(nodes["a"], b"y")
        [copy] = nodes.replication("b").copies
        assert len(records_of(store_of(nodes["b"]).db, b"q" + copy.number)) == 2


async def test_one_copy_is_none_and_costs_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, "ab", replicas=1) as nodes:
        await subscribed(nodes["a"], "s")
        await publish(nodes["a"], b"x")
        assert nodes.replication("a").replicas is None
        assert nodes.copies() == {}


async def test_the_copies_of_a_node_that_starts_again_are_compared_and_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, "ab", adopt_after=3600.0) as nodes:
        await subscribed(nodes["a"], "s", "t")
        await publish(nodes["a"], *NUMBERS)
        numbers = {copy.number for copy in nodes.replication("b").copies}
        await nodes.kill("a", monkeypatch)
        await nodes.start("a")
        await together(*nodes.brokers.values())
        replicas = nodes.replication("a").replicas
        assert replicas is not None
        await until(lambda: replicas.filled == 2 and not replicas.lagging())
        assert replicas.filled_records == 0
        assert {copy.number for copy in nodes.replication("b").copies} == numbers
        store = store_of(nodes["b"])
        assert len(records_of(store.db, b"q")) == 2 * len(NUMBERS)
        # They are as good as any: changes go on from there.
        await publish(nodes["a"], b"more")
        assert len(records_of(store.db, b"q")) == 2 * len(NUMBERS) + 2


async def test_copies_move_to_a_node_that_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, "ab", adopt_after=3600.0) as nodes:
        clients = [f"s{number}" for number in range(8)]
        await subscribed(nodes["a"], *clients)
        await publish(nodes["a"], *NUMBERS)
        await nodes.start("c")
        belongs = {client: [ranked(client, ["b", "c"])[0]] for client in clients}
        assert {each for [each] in belongs.values()} == {"b", "c"}
        await until(lambda: nodes.copies() == belongs)
        await nodes.kill("a", monkeypatch)
        for client in clients:
            async with peer_of(nodes["b"]) as peer:
                assert (await peer.connect(client, clean=False)).session_present
                for number in NUMBERS:
                    assert await received(peer, 1) == [number]


@pytest.mark.parametrize("is_alone", (False, True))
async def test_an_owner_that_is_back_hands_over_only_what_it_alone_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    async with house(tmp_path, "ab", adopt_after=3600.0) as nodes:
        await subscribed(nodes["a"], "s")
        await publish(nodes["a"], *NUMBERS)
        if is_alone:  # nobody else has what it acknowledges from now on
            await nodes.kill("b", monkeypatch)
            await publish(nodes["a"], b"only", b"here")
        await nodes.kill("a", monkeypatch)
        b = nodes.brokers.get("b") or await nodes.start("b")
        assert await nodes.replication("b").find_copy("", "s", "a")
        async with peer_of(b) as peer:
            assert (await peer.connect("s", clean=False)).session_present
            for number in NUMBERS:
                assert await received(peer, 1) == [number]
            a = await nodes.start("a")
            await together(a, b)
            # It hands over what the other does not have, and nothing else.
            for payload in [b"only", b"here"] if is_alone else []:
                assert await received(peer, 1) == [payload]
            await until(lambda: not list(store_of(a).db.iterator(prefix=b"s")))
            await until(lambda: not records_of(store_of(a).db, b"q"))
            await publish(b, b"last")
            assert await received(peer, 1) == [b"last"]
