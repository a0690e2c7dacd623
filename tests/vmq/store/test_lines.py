"""Lines of records: what is walked over to read them, there or deleted, and that their ends are no records."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.present import present
from tests.support.walked import WalkedDb
from tests.vmq.support import House
from tests.vmq.test_store_model import commit, delivery, message, number, send
from vmq.store.lines import END, LINES, LineIndex, is_end, line_ends, places, scan_line
from vmq.store.opening import open_store, stored_sessions
from vmq.store.store import Store

MESSAGES = 3


class Fleet:
    """Durable sessions with messages that wait, in a broker whose database counts."""

    def __init__(self, path: Path, count: int) -> None:
        self.house = house = House(path)
        self.dead: set[bytes] = set()
        self.count_walks()
        for name in self.names(count):
            client = house.subscriber(name, (name, 2), clean=False)
            client.disconnect()
        for _ in range(MESSAGES):
            for name in self.names(count):
                house.publish(name, b"x", 1)

    def names(self, count: int) -> list[str]:
        return [f"dev-{index:04}" for index in range(count)]

    def count_walks(self) -> None:
        store = present(self.house.store)
        self.db = store.db = WalkedDb(store.db, self.dead)

    def restart(self) -> None:
        self.house.restart()
        self.count_walks()

    def come_back(self, names: list[str]) -> None:
        """Each takes its messages, publishes at QoS 2, and leaves."""
        for name in names:
            client = self.house.client(name, clean=False)
            received = client.take()
            assert len(received) == MESSAGES
            client.acknowledge(*received)
            client.publish("elsewhere", b"x", 2)
            client.disconnect()

    def end(self, names: list[str]) -> None:
        """Each begins a clean session, which ends the durable one."""
        house = self.house
        store = present(house.store)
        for name in names:
            house.client(name).disconnect()
        for session in house.purged:
            while store.purge_step(session, 100):
                house.commit()
            house.commit()


def in_order(names: list[str], order: str) -> list[str]:
    if order == "reversed":
        return names[::-1]
    if order == "shuffled":
        random.Random(1).shuffle(names)
    return names


@pytest.mark.parametrize("order", ("created", "reversed", "shuffled"))
@pytest.mark.parametrize("act", ("come_back", "end"))
def test_what_is_walked_over_for_a_session_does_not_grow_with_others(
    tmp_path: Path, order: str, act: str
) -> None:
    walked = []
    for count in (20, 160):
        fleet = Fleet(tmp_path / str(count), count)
        fleet.restart()
        getattr(fleet, act)(in_order(fleet.names(count), order))
        walked.append(fleet.db.take() / count)
        fleet.house.close()
    assert walked[1] <= walked[0] + 1
    assert walked[1] <= 40


def test_a_start_walks_over_each_record_a_few_times(tmp_path: Path) -> None:
    """Also over what was deleted, of sessions that are gone and of queues that are empty."""
    fleet = Fleet(tmp_path / "store", 60)
    names = fleet.names(60)
    fleet.come_back(names)
    fleet.end(names[10:50])
    fleet.restart()
    assert fleet.house.store is not None
    fleet.db.take()
    assert len(stored_sessions(fleet.house.store)) == 20
    assert fleet.db.take() <= 3 * (len(fleet.dead) + sum(1 for _ in fleet.db.db))
    fleet.house.close()


READERS: dict[str, Callable[[Store, bytes], object]] = {
    "what is in flight": lambda store, session: store.load_inflight(session),
    "what was received": lambda store, session: store.load_received(session),
    "places": lambda store, session: places(store.db, b"q" + session),
}


@pytest.mark.parametrize("read", READERS)
def test_who_reads_a_session_walks_over_nothing_of_others(store: Store, read: str) -> None:
    """Neither over what was deleted of those before and behind it, nor over what they still have."""
    sessions = [store.create_session(f"dev-{index}") for index in range(40)]
    db = store.db = WalkedDb(store.db)
    sent = []
    for session in sessions:
        store.put_received(session, 1)
        for place in (1, 2):
            store.put_subscription(session, f"a/{place}", 1)
            store.put_waiting(session, delivery(message(), place))
            sent.append((session, delivery(message(), 0)))
            send(store, session, sent[-1][1], place, place)
    commit(store)
    for session, each in sent:
        if session != sessions[20]:
            store.remove_received(session, 1)
            store.remove_subscription(session, f"a/{each.order}")
            store.remove_waiting(session, delivery(message(), each.order))
            store.remove_inflight(session, each)
    commit(store)
    assert len(db.dead) > 250
    db.take()
    READERS[read](store, sessions[20])
    assert 0 < db.take() <= 7 + len(LINES)
    READERS[read](store, sessions[7])
    assert 0 < db.take() <= 7 + len(LINES)


def long_queue(store: Store, count: int) -> tuple[bytes, WalkedDb]:
    session = store.create_session("gone")
    other = store.create_session("stays")
    for seq in range(1, count + 1):
        store.put_waiting(session, delivery(message(), seq))
    store.put_waiting(other, delivery(message(), 1))
    store.put_subscription(session, "a/#", 1)
    commit(store)
    store.end_session("gone", session)
    commit(store)
    store.db = db = WalkedDb(store.db)
    return session, db


def test_a_queue_that_ends_is_walked_over_once(store: Store) -> None:
    session, db = long_queue(store, 2000)
    steps = []
    more = True
    while more:
        before = store.writes
        more = store.purge_step(session, 100)
        assert store.writes - before <= 100 + 7
        commit(store)
        steps.append(db.take())
    assert len(steps) == 21
    # A step walks over what it deletes, the record behind, and the ends of lines.
    assert max(steps) <= 100 + 10
    assert sum(1 for _ in scan_line(store.db, b"q" + number(2))) == 1


def test_a_queue_that_ends_is_walked_over_once_where_the_broker_starts_again(
    store: Store, tmp_path: Path
) -> None:
    session, db = long_queue(store, 2000)
    for _ in range(15):
        store.purge_step(session, 100)
        commit(store)
    store.db.close()
    opened = open_store(tmp_path / "store", "os", lambda: None)
    opened.db = db = WalkedDb(opened.db, db.dead)
    while opened.purge_step(session, 100):
        commit(opened)
    commit(opened)
    assert db.take() <= 500 + 5 * 10
    assert not any(key[1:9] == session for key in db.db.iterator(include_value=False))
    opened.db.close()


def test_what_a_client_took_is_not_walked_over_when_its_session_ends(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "store", 1)
    house = fleet.house
    assert house.store is not None
    (name,) = fleet.names(1)
    for _ in range(500):
        house.publish(name, b"x", 1)
    client = house.client(name, clean=False)
    while received := client.take():
        client.acknowledge(*received)
    client.disconnect()
    house.publish(name, b"x", 1)
    fleet.db.take()
    fleet.end([name])
    assert len(fleet.dead) >= 500
    assert fleet.db.take() <= 20
    house.close()


def test_what_a_client_took_is_not_walked_over_when_it_is_back(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "store", 1)
    house = fleet.house
    (name,) = fleet.names(1)
    for _ in range(500):
        house.publish(name, b"x", 1)
    client = house.client(name, clean=False)
    for _ in range(20):
        client.acknowledge(*client.take())
    client.take()
    fleet.restart()
    again = house.client(name, clean=False)
    assert len(again.take()) == 20
    assert len(fleet.dead) >= 400
    assert fleet.db.take() <= 40
    house.close()


def test_commits_under_way_are_looked_through_once(store: Store) -> None:
    sessions = [store.create_session(f"dev-{index}") for index in range(50)]
    for session in sessions:
        store.put_received(session, 5)

    class Writes(dict[bytes, bytes | None]):
        looked_at = 0

        def __reversed__(self) -> Iterator[bytes]:
            for key in super().__reversed__():
                self.looked_at += 1
                yield key

    writes = Writes(store.dirty)
    index = LineIndex(writes)
    for session in sessions:
        assert b"x" + session + (5).to_bytes(2, "big") in index.keys(session)
        writes[b"x" + session + b"\0\7"] = b""
    assert b"x" + sessions[0] + b"\0\7" in index.keys(sessions[0])
    assert writes.looked_at == len(writes)


def test_uncommitted_records_of_a_session_are_found_whatever_becomes_of_their_commit(
    store: Store,
) -> None:
    first, second = store.create_session("a"), store.create_session("b")
    commit(store)
    store.put_waiting(first, delivery(message(), 1))
    store.begin_commit()
    store.put_waiting(first, delivery(message(), 2))
    store.put_waiting(second, delivery(message(), 1))
    waiting = [b"q" + first + number(1), b"q" + first + number(2)]
    assert sorted(store.uncommitted(first)) == waiting
    store.retry_commit()
    assert sorted(store.uncommitted(first)) == waiting
    store.put_received(first, 1)
    assert len(store.uncommitted(first)) == 3
    commit(store)
    assert store.uncommitted(first) == []


@pytest.mark.parametrize("kind", LINES)
def test_an_end_is_behind_every_record_of_its_line_and_before_the_next_one(kind: int) -> None:
    line = bytes((kind,)) + number(7)
    rests = {ord("u"): ("\U0010ffff" * 9).encode(), ord("x"): b"\xff\xff"}
    last = line + rests.get(kind, b"\xff" * 8)
    assert last < line + END < bytes((kind,)) + number(8)
    assert is_end(line + END)
    assert not is_end(last)
    assert line + END in line_ends(number(7))


def test_a_line_without_an_end_is_read_as_far_as_it_goes(store: Store) -> None:
    first, second = store.create_session("a"), store.create_session("b")
    for session in (first, second):
        store.put_waiting(session, delivery(message(), 5))
        store.put_waiting(session, delivery(message(), 6))
        send(store, session, delivery(message(), 0), 9, 1)
    store.delete(b"q" + first + END)
    commit(store)
    line = b"q" + first
    assert [key for key, _ in scan_line(store.db, line)] == [line + number(5), line + number(6)]
    assert [key for key, _ in scan_line(store.db, line, line + number(5))] == [line + number(6)]
    assert places(store.db, line) == (5, 6)
    assert places(store.db, b"i" + first) == (9, 9)
    assert places(store.db, b"q" + number(9)) == (0, 0)
