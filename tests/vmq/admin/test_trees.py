"""Mountpoints: sessions and topics of different trees are told apart."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.peer import Peer
from vmq.admin.errors import NotFoundError
from vmq.admin.listing import Selection
from vmq.admin.queues import peek, purge
from vmq.admin.retained import delete_retained, list_retained, show_retained
from vmq.admin.sessions import disconnect, list_sessions, show_session, unsubscribe
from vmq.admin.trees import find, mountpoints, registry_of
from vmq.admin.why import Publish, explain
from vmq.broker import Broker
from vmq.config.options import (
    BrokerOptions,
    Config,
    ListenerOptions,
    StoreOptions,
)

ALL = Selection(limit=0)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Broker]:
    config = Config(
        broker=BrokerOptions(data_dir=str(tmp_path / "data")),
        listeners={
            "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
            "plant": ListenerOptions(url="tcp://127.0.0.1:0", mountpoint="plant"),
            "idle": ListenerOptions(url="tcp://127.0.0.1:0", mountpoint="idle"),
        },
        store=StoreOptions(durability="memory"),
    )
    async with Broker(config) as broker:
        yield broker


@pytest.fixture
def peers(node: Broker) -> tuple[Peer, Peer]:
    """Two clients of one name, in the default tree and in the plant."""
    return Peer(node.registry(), "me", clean=False), Peer(node.registry("plant"), "me", clean=False)


@pytest.mark.usefixtures("peers")
async def test_a_listing_shows_all_trees_or_one(node: Broker) -> None:
    async def listed(mountpoint: str | None) -> list[tuple[str, str]]:
        rows = await list_sessions(node, ALL, mountpoint).rows()
        return [(row.mountpoint, row.client_id) for row in rows]

    assert await listed(None) == [("", "me"), ("plant", "me")]
    assert await listed("plant") == [("plant", "me")]
    assert await listed("") == [("", "me")]
    assert await listed("idle") == []
    where = Selection(where='mountpoint = "plant"')
    assert len(await list_sessions(node, where).rows()) == 1


async def test_a_typo_makes_no_tree(node: Broker) -> None:
    with pytest.raises(NotFoundError, match="no mountpoint 'plnat'; accepted: '', 'idle', 'plant'"):
        registry_of(node, "plnat")
    assert mountpoints(node) == ["", "idle", "plant"]


async def test_who_is_elsewhere_is_named(node: Broker) -> None:
    Peer(node.registry("plant"), "pump")
    with pytest.raises(NotFoundError, match="there is one under another mountpoint: 'plant'"):
        find(node, "pump")
    with pytest.raises(NotFoundError, match="under mountpoint 'idle'"):
        find(node, "pump", "idle")
    assert find(node, "pump", "plant").client_id == "pump"


async def test_commands_reach_the_named_tree_only(node: Broker, peers: tuple[Peer, Peer]) -> None:
    here, there = peers
    for peer in peers:
        peer.subscribe(("t", 1))
    assert (await unsubscribe(node, "me", "t", "plant")).mountpoint == "plant"
    assert [each.filter for each in (await show_session(node, "me")).filters] == ["t"]
    assert (await show_session(node, "me", "plant")).filters == []
    await disconnect(node, "me", "plant")
    assert here.is_open
    assert not there.is_open


async def test_queues_are_apart(node: Broker, peers: tuple[Peer, Peer]) -> None:
    for peer in peers:
        peer.subscribe(("t", 1))
        peer.leave()
    Peer(node.registry("plant"), "pub").publish("t", b"x", qos=1)
    assert await peek(node, "me", ALL).rows() == []
    (row,) = await peek(node, "me", ALL, mountpoint="plant").rows()
    assert row.payload == "x"
    assert (await purge(node, "me")).purged == 0
    assert (await purge(node, "me", "plant")).purged == 1


async def test_retained_messages_are_apart(node: Broker, peers: tuple[Peer, Peer]) -> None:
    for peer, text in zip(peers, (b"here", b"there"), strict=True):
        peer.publish("t", text, retain=True)
    rows = await list_retained(node, ALL).rows()
    assert [(row.mountpoint, row.payload) for row in rows] == [("", "here"), ("plant", "there")]
    assert show_retained(node, "t", mountpoint="plant").payload == "there"
    with pytest.raises(NotFoundError, match="under another mountpoint: the default one, 'plant'"):
        show_retained(node, "t", mountpoint="idle")
    assert (await delete_retained(node, "#")).deleted == 1
    rows = await list_retained(node, ALL).rows()
    assert [row.mountpoint for row in rows] == ["plant"]


async def test_why_looks_at_the_publishers_tree(node: Broker, peers: tuple[Peer, Peer]) -> None:
    peers[1].subscribe(("t", 1))
    here = await explain(node, Publish(client_id="me", topic="t"))
    there = await explain(node, Publish(client_id="me", topic="t", mountpoint="plant"))
    assert (here.arrives, there.arrives) == (False, True)
