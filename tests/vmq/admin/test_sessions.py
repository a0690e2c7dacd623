"""Sessions as rows, and their ends."""

from pathlib import Path

import pytest
from vmq_hooks import SubscriberId

from tests.support.peer import Peer
from tests.support.until import until
from tests.vmq.clustering.nodes import is_subscribed, pair
from vmq.admin.errors import NotFoundError
from vmq.admin.listing import Selection
from vmq.admin.sessions import disconnect, list_sessions, show_session, split_peer, unsubscribe
from vmq.broker import Broker


async def test_rows_of_connected_and_absent_clients(node: Broker) -> None:
    here = Peer(node.registry(), "here", ("a/#", 1), ("b", 0), username="bob")
    away = Peer(node.registry(), "away", ("a/1", 1), clean=False)
    away.leave()
    here.publish("a/1", qos=1)

    rows = {row.client_id: row for row in await list_sessions(node, Selection()).rows()}
    row = rows["here"]
    assert row.is_online
    assert (row.user, row.peer_host, row.peer_port, row.protocol) == ("bob", "10.0.0.1", 5000, 4)
    assert (row.clean_session, row.keep_alive, row.subscriptions) == (True, 60, 2)
    assert (row.queue_size, row.waiting_acks) == (0, 1)
    assert row.session_started_at is not None
    assert row.session_started_at.endswith("Z")
    assert row.offline_since is None

    row = rows["away"]
    assert not row.is_online
    assert (row.user, row.peer_host, row.protocol, row.keep_alive) == (None, None, None, None)
    assert (row.clean_session, row.queue_size) == (False, 1)
    assert (row.online_messages, row.offline_messages) == (0, 1)
    assert row.offline_since is not None


async def test_filters_and_orders(node: Broker) -> None:
    for name in ("dev-1", "dev-2", "gate"):
        peer = Peer(node.registry(), name, ("t", 1), clean=False)
        if name != "dev-1":
            peer.leave()
    Peer(node.registry(), "publisher").publish("t", qos=1)
    chosen = Selection(where='client_id ~ "^dev" and queue_size > 0')
    assert [row.client_id for row in await list_sessions(node, chosen).rows()] == ["dev-2"]
    chosen = Selection(sort="-client_id", limit=2)
    found = [row.client_id for row in await list_sessions(node, chosen).rows()]
    assert found == ["publisher", "gate"]


async def test_a_session_that_ends_during_a_listing_is_left_out(node: Broker) -> None:
    peers = [Peer(node.registry(), f"c{number:04}") for number in range(1500)]
    seen: list[str] = []
    async for rows in list_sessions(node, Selection(limit=0)).slices():
        if not seen:
            peers[1400].leave()
        seen += [row.client_id for row in rows]
    assert len(seen) == 1499
    assert "c1400" not in seen


async def test_show_lists_subscriptions(node: Broker) -> None:
    Peer(node.registry(), "me", ("b/+", 2), ("$share/g/a", 1))
    shown = await show_session(node, "me")
    assert [(each.filter, each.qos) for each in shown.filters] == [("$share/g/a", 1), ("b/+", 2)]
    assert shown.subscriptions == 2


async def test_disconnect_keeps_a_durable_session(node: Broker) -> None:
    durable = Peer(node.registry(), "durable", clean=False)
    clean = Peer(node.registry(), "clean")
    done = await disconnect(node, "durable")
    assert not durable.is_open
    assert (done.was_online, done.session_ended) == (True, False)
    assert not (await show_session(node, "durable")).is_online
    done = await disconnect(node, "clean")
    assert not clean.is_open
    assert done.session_ended
    done = await disconnect(node, "durable", cleanup=True)
    assert (done.was_online, done.session_ended) == (False, True)
    assert not node.registry().subscribers


async def test_cleanup_ends_a_connected_session_for_good(node: Broker) -> None:
    peer = Peer(node.registry(), "me", ("t", 1), clean=False)
    assert (await disconnect(node, "me", cleanup=True)).session_ended
    assert not peer.is_open
    assert not node.registry().trie.match("t")
    Peer(node.registry(), "me", clean=False)
    assert (await show_session(node, "me")).subscriptions == 0


async def test_unsubscribe_is_for_that_filter_only(node: Broker) -> None:
    told: list[tuple[SubscriberId, list[str]]] = []
    node.hooks.on_topic_unsubscribed = lambda client, filters: told.append((client, filters))
    me = Peer(node.registry(), "me", ("a", 0), ("b", 0))
    await unsubscribe(node, "me", "a")
    me.received.clear()
    me.publish("a", b"no")
    me.publish("b", b"yes")
    assert b"yes" in me.received
    assert b"no" not in me.received
    assert told == [(SubscriberId("me"), ["a"])]
    with pytest.raises(NotFoundError, match="no subscription to 'a'; it has: b"):
        await unsubscribe(node, "me", "a")


async def test_nobody_by_that_name(node: Broker) -> None:
    with pytest.raises(NotFoundError, match="no session of client 'nobody'"):
        await show_session(node, "nobody")
    with pytest.raises(NotFoundError):
        await disconnect(node, "nobody")
    with pytest.raises(NotFoundError):
        await unsubscribe(node, "nobody", "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("embedded", ("embedded", None)),
        ("/run/mqtt.sock", ("/run/mqtt.sock", None)),
        ("", ("", None)),
    ],
)
def test_peers_are_split(text: str, expected: tuple[str, int | None]) -> None:
    assert split_peer(text) == expected


async def test_sessions_of_other_nodes_are_listed_and_shown_as_far_as_they_are_known(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (a, b):
        Peer(a.registry(), "here").subscribe(("t", 0))
        Peer(b.registry(), "clean").subscribe(("t", 1), ("u", 2))
        await until(lambda: is_subscribed(a, "clean", "b") and "here" in a.registry().subscribers)

        rows = {row.client_id: row for row in await list_sessions(a, Selection()).rows()}
        found = {name: row.node for name, row in rows.items()}
        assert found == {"here": "a", "clean": "b"}
        assert [rows[name].is_online for name in ("here", "clean")] == [True, True]
        assert [rows[name].subscriptions for name in ("here", "clean")] == [1, 2]
        chosen = Selection(where='node = "b" and is_online', limit=1)
        assert [row.client_id for row in await list_sessions(a, chosen).rows()] == ["clean"]
        assert [row.node for row in await list_sessions(a, Selection(), local=True).rows()] == ["a"]
        listing = list_sessions(a, Selection(sort="client_id", limit=1))
        assert [row.client_id for row in await listing.rows()] == ["clean"]
        assert listing.more

        shown = await show_session(a, "clean")
        seen = (shown.node, [(each.filter, each.qos) for each in shown.filters])
        assert seen == ("b", [("t", 1), ("u", 2)])
        assert (await show_session(b, "clean")).peer_host == "10.0.0.1"
        Peer(b.registry(), "publisher").publish("t", qos=1)
        await until(lambda: len(b.registry().subscribers["clean"].queue.inflight) == 1)
        there, here = await show_session(a, "clean"), await show_session(b, "clean")
        assert there == here
        assert here.queue_size == 0
        with pytest.raises(NotFoundError, match="on this node; node 'b' has it: ask there"):
            await show_session(a, "clean", local=True)
        with pytest.raises(NotFoundError, match="node 'b' has it"):
            await disconnect(a, "clean", cleanup=True)
        await unsubscribe(a, "clean", "t")
        assert [each.filter for each in (await show_session(b, "clean")).filters] == ["u"]
        done = await disconnect(a, "clean")
        assert (done.was_online, done.session_ended) == (True, True)
        assert "clean" not in b.registry().subscribers
