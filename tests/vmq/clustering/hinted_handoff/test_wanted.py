"""Who wants what is on an outbox: by marks, against an oracle that knows at each place where the sessions are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.delivery.outbox_storage import outgoing_key
from vmq.clustering.directory.records import Record
from vmq.clustering.hinted_handoff import wanted as wishes
from vmq.clustering.hinted_handoff.wanted import WantedRoutes, marks_of
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.codec import HEAD, close, decode_parcel, encode_into
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RouteMarker

MESSAGE = RemotePublish(b"t", b"x", 2)

#: On an outbox to `x`: a session comes or goes (which one), it is said again where one is, or a message comes; and
#: whether a batch ends behind that.
steps = st.lists(
    st.tuples(
        st.sampled_from(("moves", "says again", "message")), st.sampled_from("abc"), st.booleans()
    ),
    max_size=30,
)


def parcel(number: int, *messages: NodeMessage) -> tuple[bytes, bytes]:
    raw = bytearray(HEAD)
    for each in messages:
        encode_into(each, raw, -1)
    return outgoing_key("x", 1, number), close(raw, (7, 1, number), len(messages))


def record(subscriptions: dict[str, int], node: str = "x") -> Record:
    return Record(node, 1, False, subscriptions)


@given(steps, st.sets(st.sampled_from("abc")), st.integers(0, 30))
def test_a_message_is_for_the_sessions_that_are_there(
    outbox: list[tuple[str, str, bool]], first: set[str], front: int
) -> None:
    """Wherever the reading begins: at first they are where the marks find them, in the end where records have them."""
    there = set(first)
    messages: list[NodeMessage] = []
    wanted: list[list[str]] = []
    for step, client, _ in outbox:
        if step == "moves":
            there ^= {client}
        is_there = client in there
        if step == "message":
            messages.append(MESSAGE)
            wanted.append(sorted(there))
        else:
            node, source = ("x", "y") if is_there else ("y", "x")
            # That it is elsewhere may be said again where the first word of it has arrived: see below.
            again = step == "says again" and is_there
            if step == "says again" and not is_there:
                node, source = "z", "y"
            messages.append(RouteMarker("", client, 1, node, source, {"t": 1}, again))
    parcels: list[tuple[bytes, bytes]] = []
    begun = 0
    for at, (*_, ends) in enumerate(outbox, 1):
        if ends or at == len(outbox):
            parcels.append(parcel(len(parcels) + 1, *messages[begun:at]))
            begun = at
    # What nobody asks about has no messages.
    front = min(front, len(parcels))
    while any(
        isinstance(each, RemotePublish)
        for _, raw in parcels[:front]
        for each in decode_parcel(raw)[0].messages
    ):
        front -= 1
    last = parcels[front - 1][0] if front else b""
    end = parcels[-1][0] if parcels else b""
    records = [(("", client), record({"t": 1})) for client in sorted(there)]
    found = WantedRoutes("x", records, last, end)
    found.look(parcels[front:])
    assert found.is_ready
    seen = []
    for _, raw in parcels[front:]:
        for each in decode_parcel(raw)[0].messages:
            if isinstance(each, RouteMarker):
                found.on_mark(each, record({"t": 1}) if each.client_id in there else None)
            else:
                seen.append(
                    sorted(client for _, clients in found.find(MESSAGE) for client in clients)
                )
    assert seen == wanted


def test_marks_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "STEP", 1)
    parcels = [
        parcel(number, RouteMarker("", f"c{number}", 1, "y", "x", {"t": 1}))
        for number in range(1, 4)
    ]
    found = WantedRoutes("x", [], b"", parcels[1][0])
    for looked in (0, 1):
        assert not found.is_ready
        found.look(each for each in parcels if each[0] > found.looked)
        assert found.looked == parcels[looked][0]
    assert found.is_ready
    assert list(found.find(MESSAGE)) == [(1, ["c1", "c2"])]


def test_what_is_in_front_of_a_mark_that_says_it_again_may_be_for_the_session() -> None:
    """The first word of it was lost with a broker that was killed: better twice than never."""
    mark = RouteMarker("", "c", 1, "y", "x", {"t": 1}, again=True)
    key, raw = parcel(1, mark)
    found = WantedRoutes("x", [], b"", key)
    found.look([(key, raw)])
    assert list(found.find(MESSAGE)) == [(1, ["c"])]
    found.on_mark(mark, None)
    assert not list(found.find(MESSAGE))


def test_what_a_node_that_left_saw_to_itself_is_nobodys_wish() -> None:
    marks = [
        RouteMarker("", client, 1, "y", "x", {"t": 1}) for client in ("handed over", "adopted")
    ]
    parcels = [parcel(number, mark) for number, mark in enumerate(marks, 1)]
    found = WantedRoutes("x", [], b"", parcels[1][0])
    found.look(parcels, ignored=parcels[0][0])
    assert list(found.find(MESSAGE)) == [(1, ["adopted"])]


def test_each_gets_what_it_asks_for_by_now() -> None:
    found = WantedRoutes(
        "x", [(("", "one"), record({"t": 1})), (("", "none"), record({"t": 0}))], b"", b""
    )
    found.add(("", "two"), {"t": 2})
    assert dict(found.find(MESSAGE)) == {1: ["one"], 2: ["two"]}
    assert not list(found.find(RemotePublish(b"t", b"", 2, "elsewhere")))
    mark = RouteMarker("", "one", 1, "x", "y", {"other": 1})
    found.on_mark(mark, record({"t": 2}))  # it has come, and subscribed since
    assert dict(found.find(MESSAGE)) == {2: ["one", "two"]}
    found.on_mark(mark, record({"t": 2}, "z"))  # it has come, and gone since
    assert dict(found.find(MESSAGE)) == {2: ["two"]}


def test_what_looks_like_a_mark_is_none_and_marks_are_found_among_others() -> None:
    mark = RouteMarker("", "c" * 300, 1, "x", "y", {})
    scoped = RouteMarker("m" * 40, "c", 1, "x", "y", {})
    _, raw = parcel(1, MESSAGE, mark, RemotePublish(b"t", b"\x98\x10\xa0", 1), scoped)
    assert marks_of(raw) == [mark, scoped]
    assert marks_of(parcel(1, RemotePublish(b"t", b"\x98\x10\xa0", 1))[1]) == []
