"""Retained messages of a cluster: every node has the same, the last writer's."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.clustering.fakes import Member, settle
from tests.vmq.clustering.routing.test_routing import Three
from vmq.clustering.directory.records import RETAINED, encode_key
from vmq.clustering.routing.retained import SOURCES
from vmq.mqtt.message import Message, Sourced
from vmq_cluster.messages import MAX_VALUE


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    """A node with a store."""
    found = Member("a", tmp_path)
    yield found
    found.house.close()


def retain(member: Member, topic: str, payload: bytes, qos: int = 0) -> None:
    registry = member.house.registry
    route = registry.route(topic.encode())
    registry.publish(route, Message(route.topic, payload, qos, True), member.house.core.nobody)


def kept(member: Member) -> dict[str, tuple[bytes, int]]:
    found = member.house.registry.retained.all()
    return {each.topic.decode(): (each.payload, each.qos) for each in found}


def in_map(member: Member, mountpoint: str = "") -> dict[str, bytes]:
    scope = encode_key(mountpoint, "")
    found = member.node.items(RETAINED)
    return {key[len(scope) :].decode(): value for key, value in found if key.startswith(scope)}


def test_a_retained_message_reaches_live_subscribers_once_later_ones_retained(three: Three) -> None:
    live = three.b.house.subscriber("live", ("t/#", 1))
    three.settle()
    three.a.house.client("p").publish("t/1", b"x", 1, retain=True)
    three.settle()
    [packet] = live.take()
    assert (packet.payload, packet.qos, packet.retain) == (b"x", 1, False)
    for each in three.all:
        assert kept(each) == {"t/1": (b"x", 1)}
        late = each.house.subscriber("late", ("t/#", 2))
        [packet] = late.take()
        assert (packet.payload, packet.qos, packet.retain) == (b"x", 1, True)


def sources(member: Member) -> dict[str, tuple[str, str | None] | None]:
    return {
        each.topic.decode(): (each.client_id, each.user) if isinstance(each, Sourced) else None
        for each in member.house.registry.retained.all()
    }


def test_every_node_knows_who_published_what(three: Three) -> None:
    alice = three.a.house.client("pump", username="alice")
    alice.publish("t", b"1", retain=True)
    retain(three.a, "own", b"x")
    three.settle()
    wanted: dict[str, tuple[str, str | None] | None] = {"t": ("pump", "alice"), "own": None}
    assert [sources(each) for each in three.all] == [wanted] * 3
    alice.publish("t", b"2", retain=True)
    [flush] = three.a.soon
    flush()
    assert len(three.a.node.written) == 1, "the source is written when it is another"
    three.b.house.client("other").publish("t", b"3", retain=True)
    three.settle()
    assert [sources(each)["t"] for each in three.all] == [("other", None)] * 3
    retain(three.c, "t", b"4")
    three.settle()
    assert [sources(each)["t"] for each in three.all] == [None] * 3


def test_a_source_may_come_before_its_message_and_after_it(three: Three) -> None:
    key, raw = encode_key("", "t"), msgspec.msgpack.encode(["pump", "alice"])
    three.a.node.hear((SOURCES, key, raw))
    assert kept(three.a) == {}
    three.a.node.hear((RETAINED, key, b"\x00x"))
    three.b.node.hear((RETAINED, key, b"\x00x"))
    assert sources(three.b) == {"t": None}
    three.b.node.hear((SOURCES, key, raw))
    assert [sources(each) for each in (three.a, three.b)] == [{"t": ("pump", "alice")}] * 2
    three.b.node.hear((SOURCES, key, b"\xff"))
    assert kept(three.b) == {"t": (b"x", 0)}


def test_an_empty_payload_erases_everywhere(three: Three) -> None:
    retain(three.a, "t", b"x")
    three.settle()
    retain(three.b, "t", b"")
    three.settle()
    assert [kept(each) for each in three.all] == [{}] * 3
    assert [in_map(each) for each in three.all] == [{}] * 3
    # Also what this node does not keep, as it is above its limits.
    retain(three.a, "t", b"x")
    three.settle()
    three.b.house.registry.retained.clear("t")
    retain(three.b, "t", b"")
    three.settle()
    assert kept(three.a) == {}


def test_each_topic_is_written_once_a_pass(three: Three) -> None:
    three.settle()
    for payload in (b"1", b"2", b"3"):
        retain(three.a, "t", payload)
    [flush] = three.a.soon
    flush()
    assert in_map(three.a) == {"t": b"\x003"}
    assert len(three.a.node.written) == 1


def test_mountpoints_are_trees_of_their_own(three: Three) -> None:
    three.a.find_registry("m").retain("t", Message(b"t", b"x", 0, True))
    three.settle()
    assert kept(three.b) == {}
    [message] = three.b.registries["m"].retained.all()
    assert message.payload == b"x"
    three.a.registries["m"].retain("t", Message(b"t", b"", 0, True))
    three.settle()
    assert three.b.registries["m"].retained.all() == []
    # Nobody makes a tree to erase something of it.
    three.c.node.hear((RETAINED, encode_key("new", "t"), None))
    assert "new" not in three.c.registries


def test_what_was_retained_before_the_first_start_in_a_cluster_is_imported(member: Member) -> None:
    retain(member, "$own/t", b"x", 2)
    retain(member, "u", b"mine")
    settle(member)
    member.house.maybe_settle()
    member.node.map.clear()
    # The cluster's own message of a topic stays.
    member.node.put(RETAINED, encode_key("", "u"), b"\x01theirs")
    member.restart()
    settle(member)
    assert in_map(member) == {"$own/t": b"\x02x", "u": b"\x01theirs"}
    assert kept(member) == {"$own/t": (b"x", 2), "u": (b"theirs", 1)}


def test_later_the_cluster_is_right_where_this_node_differs(member: Member) -> None:
    retain(member, "t", b"x")
    retain(member, "u", b"x")
    settle(member)
    member.house.maybe_settle()
    member.node.delete(RETAINED, encode_key("", "t"))
    member.node.put(RETAINED, encode_key("", "u"), b"\x01y")
    member.node.put(RETAINED, encode_key("m", "v"), b"\x00z")
    member.restart()
    assert kept(member) == {"u": (b"y", 1)}
    assert [each.payload for each in member.registries["m"].retained.all()] == [b"z"]
    # And so it is in the store, whose topic trees a house does not tell apart.
    member.house.maybe_settle()
    member.house.restart()
    assert kept(member) == {"u": (b"y", 1), "v": (b"z", 0)}


def test_a_start_writes_nothing_where_all_agree(member: Member) -> None:
    retain(member, "t", b"x", 1)
    settle(member)
    member.house.maybe_settle()
    member.node.written.clear()
    member.restart()
    assert member.house.store is not None
    assert not member.house.store.dirty
    assert member.node.written == []


def test_the_limits_hold_on_every_node(three: Three, caplog: pytest.LogCaptureFixture) -> None:
    three.b.house.options.max_retained_messages = 1
    live = three.b.house.subscriber("live", ("#", 0))
    three.settle()
    retain(three.a, "t", b"1")
    retain(three.a, "u", b"1")
    three.settle()
    assert kept(three.b) == {"t": (b"1", 0)}
    assert three.b.house.core.counters.retain_refused == 1
    assert live.payloads() == [b"1", b"1"]
    retain(three.b, "v", b"1")
    three.settle()
    assert kept(three.c) == {"t": (b"1", 0), "u": (b"1", 0)}
    retain(three.a, "t", b"")
    retain(three.a, "u", b"2")
    three.settle()
    assert kept(three.b) == {"u": (b"2", 0)}


def test_what_is_too_long_for_the_cluster_is_routed_and_not_retained(
    three: Three, caplog: pytest.LogCaptureFixture
) -> None:
    live = three.b.house.subscriber("live", ("t", 0))
    three.settle()
    retain(three.a, "t", b"short")
    retain(three.a, "t", bytes(MAX_VALUE))
    three.settle()
    assert [len(each) for each in live.payloads()] == [5, MAX_VALUE]
    assert kept(three.a) == kept(three.b) == {}, "not an older one, either"
    assert three.a.house.core.counters.retain_refused == 1
    assert (
        f"its payload has {MAX_VALUE} bytes, a cluster keeps up to {MAX_VALUE - 1}" in caplog.text
    )
    three.a.retained.detach()
    retain(three.a, "t", bytes(MAX_VALUE))
    assert len(kept(three.a)["t"][0]) == MAX_VALUE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (encode_key("", "t"), b""),
        (encode_key("", "t"), b"\x00"),
        (encode_key("", "t"), b"\x03x"),
        (encode_key("", "t/#"), b"\x00x"),
        (encode_key("", ""), b"\x00x"),
        (b"t", b"\x00x"),
        (b"\xff\x00t", b"\x00x"),
    ],
)
def test_what_is_no_retained_message_counts_as_nothing(
    three: Three, key: bytes, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    three.a.node.hear((RETAINED, key, value))
    assert kept(three.a) == {}
    assert "no retained message" in caplog.text


def test_a_node_that_stopped_writes_nothing_and_raises_nothing(three: Three) -> None:
    three.settle()
    retain(three.a, "t", b"x")
    three.a.node.is_running = False
    three.a.end_pass()
    assert three.a.node.written == []


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "erase", "settle"]),
        st.integers(0, 2),
        st.sampled_from(["t", "t/u", "$t"]),
    ),
    max_size=25,
)


@given(ACTS, st.booleans())
def test_nodes_agree_and_alone_the_last_writer_is_right(
    acts: list[tuple[str, int, str]], is_apart: bool
) -> None:
    """With `is_apart` each write is known everywhere before the next: then a plain dict tells what is kept."""
    three = Three()
    naive: dict[str, bytes] = {}
    written: dict[str, set[bytes]] = {}
    for number, (what, at, topic) in enumerate(acts):
        if what == "settle":
            three.settle()
            continue
        payload = b"%d" % number if what == "publish" else b""
        retain(three.all[at], topic, payload)
        naive[topic] = payload
        written.setdefault(topic, set()).add(payload)
        if is_apart:
            three.settle()
    three.settle()
    found = kept(three.a)
    for each in three.all:
        assert kept(each) == found
        assert in_map(each) == {topic: b"\x00" + payload for topic, (payload, _) in found.items()}
    if is_apart:
        assert found == {topic: (payload, 0) for topic, payload in naive.items() if payload}
    for topic, payloads in written.items():
        assert found.get(topic, (b"", 0))[0] in payloads


def test_what_was_retained_while_the_broker_was_no_node_is_new_to_others(member: Member) -> None:
    for topic in ("same", "changed", "erased", "elsewhere"):
        retain(member, topic, b"old", 1)
    settle(member)
    assert member.house.store is not None
    member.house.store.put(b"l", b"a node's life")
    member.house.commit()
    member.house.restart()
    member.house.store.note_alone()
    retain(member, "changed", b"new")
    retain(member, "made", b"new", 2)
    retain(member, "erased", b"")
    member.house.commit()
    member.node.written.clear()
    member.restart()
    # Who keeps less than the cluster for its limits looks as if it had erased the rest: so that comes back.
    expected = {
        "same": (b"old", 1),
        "changed": (b"new", 0),
        "erased": (b"old", 1),
        "elsewhere": (b"old", 1),
        "made": (b"new", 2),
    }
    assert kept(member) == expected
    assert in_map(member) == {
        topic: bytes((qos,)) + payload for topic, (payload, qos) in expected.items()
    }
    written = {each[1] for each in member.node.written if each[0] == RETAINED}
    assert written == {encode_key("", "changed"), encode_key("", "made")}
