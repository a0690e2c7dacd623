"""Whose messages are on an outbox: by marks, against an oracle that looks at each message by itself."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.hinted_handoff.route_intervals import Place, RouteIntervals
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RouteMarker, Who

FILTERS = ("t", "+", "#", "other")

#: On an outbox to `x`: a session comes to it, leaves it (and subscribes to a filter), or a message.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.sampled_from("abc"), st.just("")),
        st.tuples(st.just("leaves"), st.sampled_from("abc"), st.sampled_from(FILTERS)),
        st.tuples(st.just("message"), st.just(""), st.sampled_from(("t", "other", "third"))),
    ),
    max_size=30,
)


def matches(topic_filter: str, topic: str) -> bool:
    return topic_filter in ("+", "#", topic)


@given(steps)
def test_a_message_is_for_the_sessions_that_leave_behind_it(
    outbox: list[tuple[str, str, str]],
) -> None:
    stretches = RouteIntervals("x")
    inside: dict[str, int] = {}
    outside: set[str] = set()
    wanted: list[set[str]] = [set() for _ in outbox]
    for index, (step, client, text) in enumerate(outbox):
        who: Who = ("", client)
        if step == "comes":
            stretches.on_mark(RouteMarker(*who, index, "x", "y", {}), (b"", index))
            if client in outside or client not in inside:
                inside.setdefault(client, index)
                outside.discard(client)
        elif step == "leaves":
            stretches.on_mark(RouteMarker(*who, index, "z", "x", {text: 2}), (b"", index))
            if client not in outside:
                outside.add(client)
                for at in range(inside.pop(client, 0), index):
                    if outbox[at][0] == "message" and matches(text, outbox[at][2]):
                        wanted[at].add(client)
    for index, (step, _, text) in enumerate(outbox):
        if step == "message":
            publish = RemotePublish(text.encode(), b"", 2)
            found = stretches.find(publish, (b"", index), KnownPeer(1))
            assert {client for clients in found.values() for client in clients} == wanted[index]


def found(
    stretches: RouteIntervals, qos: int, place: Place, known: KnownPeer
) -> dict[int, list[str]]:
    return stretches.find(RemotePublish(b"t", b"", qos), place, known)


def test_each_gets_what_it_asked_for_and_nothing_a_second_time() -> None:
    stretches = RouteIntervals("x")
    assert not stretches
    for client, qos in (("one", 1), ("two", 2), ("none", 0)):
        stretches.end(("", client), {"t": qos}, (b"k", 5))
    assert found(stretches, 2, (b"a", 0), KnownPeer(1)) == {1: ["one"], 2: ["two"]}
    assert found(stretches, 1, (b"a", 0), KnownPeer(1)) == {1: ["one", "two"]}
    assert stretches.find(RemotePublish(b"t", b"", 2, "elsewhere"), (b"a", 0), KnownPeer(1)) == {}
    # An earlier search, of what was in front of `m`, came to the second message of `b`.
    done = KnownPeer(1, b"m", (b"b", 2))
    assert found(stretches, 2, (b"b", 1), done) == {}
    assert found(stretches, 2, (b"b", 2), done) == {1: ["one"], 2: ["two"]}
    stretches.end(("", "later"), {"t": 2}, (b"n", 0))
    assert found(stretches, 2, (b"b", 1), done) == {2: ["later"]}


def test_a_mark_that_says_the_same_again_begins_nothing() -> None:
    stretches = RouteIntervals("x")
    stretches.on_mark(RouteMarker("", "c", 1, "x", "y", {}, again=True), (b"", 1))
    stretches.on_mark(RouteMarker("", "c", 2, "x", "x", {}, again=True), (b"", 2))
    stretches.on_mark(RouteMarker("", "c", 3, "z", "x", {"t": 2}), (b"", 3))
    stretches.on_mark(RouteMarker("", "c", 3, "z", "x", {"t": 2}, again=True), (b"", 5))
    assert [bool(found(stretches, 2, (b"", at), KnownPeer(1))) for at in (0, 2, 4)] == [
        True,
        True,
        False,
    ]
