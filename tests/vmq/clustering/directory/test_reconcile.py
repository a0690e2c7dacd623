"""Sessions and their records agree: after a start, and when another node ends a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmq.clustering.fakes import Member, settle
from tests.vmq.support import stored_house
from vmq.clustering.directory.records import SUBSCRIBERS, Record, encode, encode_key

NOW = 1_700_000_000_000


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    """A node with a store and the durable session `d`, which has subscribed to `t`."""
    found = Member("a", tmp_path)
    client = found.house.client("d", clean=False)
    client.subscribe(("t", 1))
    client.disconnect()
    settle(found)
    yield found
    found.house.close()


def restart(member: Member) -> None:
    """The broker is killed; its replicated map has what it had."""
    member.house.restart()
    member.start()


def subscriptions(member: Member, client_id: str) -> dict[str, int] | None:
    found = member.house.registry.subscribers.get(client_id)
    if found is None:
        return None
    return {name: each.qos for name, each in found.subscriptions.items()}


def put(member: Member, client_id: str, record: Record) -> None:
    member.node.put(SUBSCRIBERS, encode_key("", client_id), encode(record))


def test_sessions_from_before_the_first_start_in_a_cluster_get_records(member: Member) -> None:
    member.node.map.clear()
    restart(member)
    assert member.directory.record("", "d") == Record("a", NOW, False, {"t": 1})
    assert subscriptions(member, "d") == {"t": 1}


def test_nothing_changes_at_a_start_after_an_orderly_end(member: Member) -> None:
    before = dict(member.node.map)
    member.node.written.clear()
    restart(member)
    assert member.node.map == before
    assert member.node.written == []
    assert subscriptions(member, "d") == {"t": 1}


def test_a_session_that_ended_before_the_store_knew_ends(member: Member) -> None:
    """Its record was deleted, and then the broker died."""
    member.node.delete(SUBSCRIBERS, encode_key("", "d"))
    restart(member)
    assert subscriptions(member, "d") is None
    assert member.house.purged
    restart(member)
    assert subscriptions(member, "d") is None


def test_a_session_of_which_the_store_never_knew_comes_back_with_its_subscriptions(
    member: Member,
) -> None:
    put(member, "new", Record("a", NOW, False, {"u": 2, "$share/g/v": 0}))
    restart(member)
    assert subscriptions(member, "new") == {"u": 2, "$share/g/v": 0}
    assert [who for who, _ in member.reconciler.made] == [("", "new")]
    member.house.publish("u", b"x", 2)
    # It is as durable as any other, and its time to expire runs.
    assert member.house.registry.offline["new"] == NOW
    restart(member)
    assert subscriptions(member, "new") == {"u": 2, "$share/g/v": 0}
    assert member.house.queue("new").waiting() == 1
    assert member.house.client("new", clean=False).payloads() == [b"x"]


def test_the_record_is_right_where_the_store_lags_behind(member: Member) -> None:
    put(member, "d", Record("a", NOW, False, {"u": 2}))
    restart(member)
    assert subscriptions(member, "d") == {"u": 2}
    assert not member.house.registry.route(b"t").targets


def test_clean_sessions_died_with_the_broker(member: Member) -> None:
    member.house.client("c").subscribe(("t", 0))
    # A client that was durable connected anew, and then the broker died.
    put(member, "d", Record("a", NOW, True, {}))
    settle(member)
    restart(member)
    for client_id in ("c", "d"):
        assert member.directory.record("", client_id) is None
        assert subscriptions(member, client_id) is None


def test_records_and_sessions_of_others_stay_as_they_are(member: Member) -> None:
    theirs = Record("b", NOW + 1, False, {"u": 1})
    put(member, "d", theirs)
    put(member, "x", theirs)
    restart(member)
    assert member.directory.record("", "d") == member.directory.record("", "x") == theirs
    assert subscriptions(member, "d") == {"t": 1}  # to be handed over
    assert subscriptions(member, "x") is None


def test_a_session_that_another_node_ended_ends_here(member: Member) -> None:
    member.node.hear((SUBSCRIBERS, encode_key("", "d"), None))
    assert subscriptions(member, "d") is None


def test_unless_its_client_is_here(member: Member) -> None:
    member.house.client("d", clean=False)
    settle(member)
    member.house.wall_clock.advance(1)
    member.node.hear((SUBSCRIBERS, encode_key("", "d"), None))
    assert subscriptions(member, "d") == {"t": 1}
    assert member.directory.record("", "d") == Record("a", NOW + 1000, False, {"t": 1})


def test_sessions_of_plugins_from_before_the_listeners_are_claimed(member: Member) -> None:
    """A plugin's client is there already when the node starts."""
    put(member, "p", Record("a", NOW - 5, True, {"old": 0}))
    member.house.restart()
    client = member.house.client("p")
    client.subscribe(("t", 0))
    member.start()
    assert member.directory.record("", "p") == Record("a", NOW, True, {"t": 0})
    assert not client.is_closed()


@pytest.fixture
def alone(member: Member) -> Member:
    """The same, started again without other nodes."""
    assert member.house.store is not None
    member.house.store.put(b"l", b"a node's life")
    settle(member)
    member.house.commit()
    member.house.restart()
    assert member.house.store is not None
    member.house.store.note_alone()
    return member


def test_what_a_broker_made_alone_is_right_when_it_is_a_node_again(alone: Member) -> None:
    member = alone
    put(member, "gone", Record("a", NOW, False, {"v": 1}))
    client = member.house.client("d", clean=False)
    client.unsubscribe("t")
    client.subscribe(("u", 2))
    client.disconnect()
    new = member.house.client("new", clean=False)
    new.subscribe(("t/#", 0))
    new.disconnect()
    for _ in range(2):
        restart(member)
        assert subscriptions(member, "d") == {"u": 2}
        assert subscriptions(member, "new") == {"t/#": 0}
        assert subscriptions(member, "gone") is None
        for client_id, filters in (("d", {"u": 2}), ("new", {"t/#": 0})):
            record = member.directory.record("", client_id)
            assert record is not None
            assert (record.node, record.subscriptions) == ("a", filters)
        assert member.directory.record("", "gone") is None
        member.house.commit()
    # From now on the metadata are right again.
    assert member.house.store is not None
    assert not member.house.store.was_alone()


def test_a_broker_that_was_never_a_node_notes_nothing(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        assert house.store is not None
        house.store.note_alone()
        assert not house.store.was_alone()
        assert not house.store.dirty
