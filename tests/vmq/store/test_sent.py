"""What waited and is in flight keeps its entry where it waited, and comes again as what it was sent as."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.wire import PUBLISH, Packet, connect_packet, puback_packet
from tests.vmq.support import Client, House, stored_house
from vmq.store.lines import is_end
from vmq.store.sent import LAST_ID, MOST_RUNS, SentPlaces, runs_of
from vmq.store.store import Store
from vmq.store.tools import check

SESSION = (7).to_bytes(8, "big")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)), max_size=60),
    st.integers(1, LAST_ID),
)
def test_each_place_has_the_packet_id_and_the_order_that_it_was_sent_with(
    skips: list[tuple[int, int, int]], packet_id: int
) -> None:
    """Against a dict; places, packet ids and orders that are left out begin new runs."""
    places = SentPlaces()
    expected: dict[int, tuple[int, int]] = {}
    place = order = 5
    for skipped in skips:
        place += 1 + skipped[0]
        packet_id = (packet_id + skipped[1]) % LAST_ID + 1
        order += 1 + skipped[2]
        if places.add(SESSION, place, packet_id, order):
            expected[place] = packet_id, order
        else:
            assert len(places.of(SESSION).runs) == MOST_RUNS
    found = {
        each: (run.packet_id_of(each), run.order_of(each))
        for run in runs_of(places.of(SESSION).encode())
        for each in range(run.place, run.place + run.count)
    }
    assert found == expected


def test_runs_are_forgotten_once_nothing_of_them_is_in_flight() -> None:
    places = SentPlaces()
    for place in range(1, 2 * MOST_RUNS, 2):
        assert places.add(SESSION, place, place, place)
    assert not places.add(SESSION, 100, 100, 100)
    for _ in range(MOST_RUNS):
        places.close(SESSION)
    assert places.add(SESSION, 100, 100, 100)
    assert len(places.of(SESSION).runs) == 1


def entries(store: Store) -> str:
    """What the disk has of messages and of places, by kind."""
    kinds = [key[:1].decode() for key, _ in store.db.iterator() if not is_end(key)]
    return "".join(sorted(kind for kind in kinds if kind in "qij"))


def came_back(house: House, window: int, waiting: int) -> Client:
    """A durable session with so many messages is there again, and was sent what fits its window."""
    house.options.max_inflight_messages = window
    client = house.subscriber("reader", ("t", 1), clean=False)
    client.lose()
    for number in range(waiting):
        house.publish("t", b"%d" % number, 1)
    house.patient = True
    client = Client(house)
    client.send(connect_packet("reader", clean=False))
    step(house)
    return client


def step(house: House) -> None:
    house.commit()
    house.drain()
    house.commit()


def published(client: Client) -> list[Packet]:
    return [each for each in client.take() if each.type == PUBLISH]


def told(packets: list[Packet]) -> list[tuple[bytes, int, bool]]:
    return [(each.payload, each.packet_id, each.dup) for each in packets]


def acknowledge(client: Client, packets: list[Packet]) -> None:
    client.send(*[puback_packet(each.packet_id) for each in packets])
    step(client.house)


def test_what_was_sent_comes_again_as_it_was_after_a_kill(tmp_path: Path, durable: House) -> None:
    client = came_back(durable, 3, 7)
    store = present(durable.store)
    first = published(client)
    assert [each.payload for each in first] == [b"0", b"1", b"2"]
    assert entries(store) == "j" + 7 * "q"
    acknowledge(client, [first[1]])
    second = published(client)
    assert [each.payload for each in second] == [b"3"]
    assert entries(store) == "j" + 6 * "q"
    durable.close()
    assert check(tmp_path).ok
    durable.build()
    assert durable.store is not None
    assert entries(durable.store) == "iii" + 3 * "q"
    durable.patient = False
    again = durable.client("reader", clean=False)
    sent = [first[0], first[2], second[0]]
    assert told(again.take()) == [(each.payload, each.packet_id, True) for each in sent]
    assert check_sizes(durable)


def check_sizes(house: House) -> bool:
    """What is counted of the messages is what lies there."""
    store = present(house.store)
    found = store.db.iterator()
    size = sum(len(raw) for key, raw in found if key[:1] in b"qi" and not is_end(key))
    return store.sizes.total == size


def test_a_session_that_ends_leaves_no_places(tmp_path: Path, durable: House) -> None:
    client = came_back(durable, 3, 5)
    published(client)
    session = client.queue.session
    client.lose()
    again = Client(durable)
    again.send(connect_packet("reader", clean=True))
    store = present(durable.store)
    durable.commit()
    while store.purge_step(session, 2):
        durable.commit()
    durable.commit()
    assert entries(store) == ""
    durable.close()
    assert check(tmp_path).ok
    durable.build()


def test_a_node_of_a_cluster_moves_each_entry(tmp_path: Path) -> None:
    with stored_house(tmp_path, is_alone=False) as house:
        assert house.store is not None
        client = came_back(house, 3, 5)
        assert len(published(client)) == 3
        assert entries(house.store) == "iii" + 2 * "q"
