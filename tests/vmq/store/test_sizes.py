"""What the messages of sessions have on disk is counted, and known again after a restart."""

from pathlib import Path

from tests.vmq.test_store_model import LARGE, check_sizes, commit, delivery, message
from vmq.store.opening import open_store
from vmq.store.sizes import DRIFT, Sizes
from vmq.store.store import Store

SESSION = b"\0\0\0\0\0\0\0\1"
OTHER = b"\0\0\0\0\0\0\0\2"


def again(store: Store, folder: Path) -> Store:
    """The process was killed, and starts anew."""
    store.db.close()
    return open_store(folder / "store", "os", lambda: None)


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


def test_sizes_are_known_after_a_crash(store: Store, tmp_path: Path) -> None:
    for seq in range(1, 301):
        store.put_waiting(SESSION, delivery(message(bytes(1000), share=seq % 2 == 0), seq))
        commit(store)
    total, size = store.sizes.total, store.sizes.of(SESSION)
    assert total == size > 300_000
    store = again(store, tmp_path)
    assert store.sizes.total == total
    assert 0 <= size - store.sizes.of(SESSION) <= DRIFT
    store.db.close()


def test_sizes_are_counted_where_nothing_is_noted(store: Store, tmp_path: Path) -> None:
    shared = message(LARGE, share=True)
    for seq, session in enumerate((SESSION, OTHER), 1):
        store.put_waiting(session, delivery(shared, seq))
        store.put_waiting(session, delivery(message(), 10 + seq))
    commit(store)
    sizes = {each: store.sizes.of(each) for each in store.sizes.sessions}
    total = store.sizes.total
    for key, _ in list(store.db.iterator(prefix=b"b")):
        store.db.delete(key)
    store = again(store, tmp_path)
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
