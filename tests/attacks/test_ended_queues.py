"""A session with a very long queue ends: deleting it walks over each record once, in small steps."""

from pathlib import Path

from tests.attacks.size import size
from tests.support.walked import WalkedDb
from tests.vmq.test_store_model import commit, delivery, message
from vmq.persistence.purging import PURGE_STEP
from vmq.store.opening import ended_sessions, open_store


def test_a_long_queue_that_ends_is_walked_over_once(tmp_path: Path) -> None:
    count = size(20_000, 2_000_000)
    store = open_store(tmp_path / "store", "os", lambda: None)
    session = store.create_session("gone")
    for seq in range(1, count + 1):
        store.put_waiting(session, delivery(message(), seq))
        if seq % 10_000 == 0:
            commit(store)
    commit(store)
    store.end_session("gone", session)
    commit(store)
    store.db = db = WalkedDb(store.db)
    walked = 0
    more = True
    while more:
        before = store.writes
        more = store.purge_step(session, PURGE_STEP)
        assert store.writes - before <= PURGE_STEP + 10
        commit(store)
        step = db.take()
        assert step <= PURGE_STEP + 10
        walked += step
    assert walked <= count * 1.1
    assert ended_sessions(store) == []
    db.close()
