"""Sessions and their records agree: after a start, and when another node ends a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmq.clustering.fakes import Member, settle
from tests.vmq.support import House
from vmq.clustering.directory.records import SUBSCRIBERS, Record, encode, encode_key

NOW = 1_700_000_000_000


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    """A node with a store and the durable session `d`, which has subscribed to `t`."""
    found = Member("a", tmp_path)
    client = found.house.subscriber("d", ("t", 1), clean=False)
    client.disconnect()
    settle(found)
    yield found
    found.house.close()


def subscriptions(member: Member, client_id: str) -> dict[str, int] | None:
    found = member.house.registry.subscribers.get(client_id)
    if found is None:
        return None
    return {name: each.qos for name, each in found.subscriptions.items()}


def put(member: Member, client_id: str, record: Record) -> None:
    member.node.put(SUBSCRIBERS, encode_key("", client_id), encode(record))


def test_sessions_from_before_the_first_start_in_a_cluster_get_records(member: Member) -> None:
    member.node.map.clear()
    member.restart()
    assert member.directory.record("", "d") == Record("a", NOW, False, {"t": 1})
    assert subscriptions(member, "d") == {"t": 1}


def test_nothing_changes_at_a_start_after_an_orderly_end(member: Member) -> None:
    before = dict(member.node.map)
    member.node.written.clear()
    member.restart()
    assert member.node.map == before
    assert member.node.written == []
    assert subscriptions(member, "d") == {"t": 1}


def test_a_session_whose_record_is_lost_has_one_again(member: Member) -> None:
    member.node.delete(SUBSCRIBERS, encode_key("", "d"))
    member.restart()
    record = member.directory.record("", "d")
    assert record is not None
    assert (record.node, record.subscriptions) == ("a", {"t": 1})


def test_a_record_of_a_session_that_is_not_here_goes(member: Member) -> None:
    """As of one from before the disk was lost, which others still have."""
    put(member, "new", Record("a", NOW, False, {"u": 2}))
    member.restart()
    assert member.directory.record("", "new") is None
    member.node.hear((SUBSCRIBERS, encode_key("", "old"), encode(Record("a", NOW, True, {"u": 2}))))
    assert member.directory.record("", "old") is None
    settle(member)
    assert member.node.get(SUBSCRIBERS, encode_key("", "old")) is None


def test_clean_sessions_died_with_the_broker(member: Member) -> None:
    member.house.client("c").subscribe(("t", 0))
    # A client that was durable connected anew, and then the broker died.
    put(member, "d", Record("a", NOW, True, {}))
    settle(member)
    member.restart()
    for client_id in ("c", "d"):
        assert member.directory.record("", client_id) is None
        assert subscriptions(member, client_id) is None


def test_records_and_sessions_of_others_stay_as_they_are(member: Member) -> None:
    theirs = Record("b", NOW + 1, False, {"u": 1})
    put(member, "d", theirs)
    put(member, "x", theirs)
    member.restart()
    assert member.directory.record("", "d") == member.directory.record("", "x") == theirs
    assert subscriptions(member, "d") == {"t": 1}
    assert subscriptions(member, "x") is None


def test_a_record_that_another_node_deleted_is_written_again(member: Member) -> None:
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
    client = member.house.subscriber("p", ("t", 0))
    member.start()
    assert member.directory.record("", "p") == Record("a", NOW, True, {"t": 0})
    assert not client.is_closed()


def test_a_broker_that_was_never_a_node_notes_nothing(durable: House) -> None:
    assert durable.store is not None
    durable.store.note_alone()
    assert not durable.store.was_alone()
    assert not durable.store.dirty
