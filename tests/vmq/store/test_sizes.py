"""What the messages of sessions have on disk is counted, and known again after a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmq.test_store_model import LARGE, check_sizes, commit, delivery, message, send
from vmq.store.opening import open_store
from vmq.store.sizes import DRIFT, Sizes
from vmq.store.store import Store

SESSION = b"\0\0\0\0\0\0\0\1"
OTHER = b"\0\0\0\0\0\0\0\2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(path, "os", lambda: None)
    yield store
    store.db.close()


def again(store: Store, path: Path) -> Store:
    """The process was killed, and starts anew."""
    store.db.close()
    return open_store(path, "os", lambda: None)


def test_a_body_that_several_sessions_hold_counts_once_for_all_and_in_full_for_each(
    store: Store,
) -> None:
    made = message(LARGE, share=True)
    first, second = delivery(made, 1), delivery(made, 1)
    store.put_waiting(SESSION, first)
    alone = store.sizes.total
    store.put_waiting(OTHER, second)
    assert store.sizes.total - alone < 50 < len(LARGE) < alone
    assert store.sizes.of(SESSION) == store.sizes.of(OTHER) == alone
    store.remove_waiting(SESSION, first)
    commit(store)
    check_sizes(store)
    assert store.sizes.total == alone
    store.remove_waiting(OTHER, second)
    commit(store)
    check_sizes(store)
    assert store.sizes.total == 0


def test_what_is_sent_and_released_counts_less_and_less(store: Store) -> None:
    made = delivery(message(LARGE), 1, 2)
    made.since = 1
    store.put_waiting(SESSION, made)
    send(store, SESSION, made, 1, 1)
    commit(store)
    check_sizes(store)
    store.put_released(SESSION, made, 2)
    commit(store)
    check_sizes(store)
    assert 0 < store.sizes.total < 10
    store.remove_inflight(SESSION, made)
    assert store.sizes.total == store.sizes.of(SESSION) == 0


def test_sizes_are_known_after_a_crash(store: Store, path: Path) -> None:
    for seq in range(1, 301):
        store.put_waiting(SESSION, delivery(message(bytes(1000), share=seq % 2 == 0), seq))
        commit(store)
    total, size = store.sizes.total, store.sizes.of(SESSION)
    assert total == size > 300_000
    store = again(store, path)
    assert store.sizes.total == total
    assert 0 <= size - store.sizes.of(SESSION) <= DRIFT
    store.db.close()


def test_sizes_are_counted_where_nothing_is_noted(store: Store, path: Path) -> None:
    shared = message(LARGE, share=True)
    for seq, session in enumerate((SESSION, OTHER), 1):
        store.put_waiting(session, delivery(shared, seq))
        store.put_waiting(session, delivery(message(), 10 + seq))
    commit(store)
    sizes = {each: store.sizes.of(each) for each in store.sizes.sessions}
    total = store.sizes.total
    for key, _ in list(store.db.iterator(prefix=b"b")):
        store.db.delete(key)
    store = again(store, path)
    assert store.sizes.total == total
    assert {each: store.sizes.of(each) for each in store.sizes.sessions} == sizes
    store.db.close()


def test_an_ended_session_counts_until_its_records_are_gone(store: Store) -> None:
    for seq in range(100):
        store.put_waiting(SESSION, delivery(message(LARGE), seq + 1))
    commit(store)
    store.end_session("c", SESSION)
    while store.purge_step(SESSION, 10):
        commit(store)
    commit(store)
    check_sizes(store)
    assert store.sizes.total == 0
    assert SESSION not in store.sizes.sessions
    assert list(store.db.iterator(prefix=b"b")) == [(b"b", bytes(8))]


def test_a_size_is_never_below_nothing() -> None:
    sizes = Sizes()
    assert not sizes.count(SESSION, -5)
    assert sizes.of(SESSION) == 0
    assert sizes.count(SESSION, DRIFT + 1)


def test_a_session_that_comes_again_counts_from_nothing() -> None:
    sizes = Sizes()
    sizes.count(SESSION, 5)
    assert not sizes.forget(SESSION)
    sizes.count(SESSION, 7)
    assert sizes.of(SESSION) == 7
    sizes.known(SESSION, 100)
    sizes.count(SESSION, 7)
    assert sizes.of(SESSION) == 107
    sizes.count(OTHER, 1)
    sizes.count(bytes(bytearray(SESSION)), 3)  # equal, and not the same object
    assert (sizes.of(SESSION), sizes.of(OTHER)) == (110, 1)
