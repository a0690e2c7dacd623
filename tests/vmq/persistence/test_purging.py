"""The records of ended sessions, in a broker that goes on, and in one that stops meanwhile."""

from pathlib import Path
from typing import Any

import plyvel
import pytest

from tests.support import wire as mqtt
from tests.support.stored import records_of
from tests.support.until import until
from tests.support.walked import WalkedDb
from tests.vmq.sockets import config_in, peer_of, session_of
from tests.vmq.test_store_model import commit, delivery, message
from vmq.broker import Broker
from vmq.persistence.purging import PURGE_STEP, SESSION_COST, Purger
from vmq.store.opening import ended_sessions, open_store
from vmq.store.store import Store


async def purged(broker: Broker) -> None:
    """Waits until nothing is left in the store of the sessions that ended."""
    store = broker.parts.store
    await until(lambda: not records_of(store.db, b"q") and not ended_sessions(store))


async def test_an_ended_session_is_deleted_from_the_store(embedded: Broker) -> None:
    async with session_of(embedded, "c", clean=False) as peer:
        peer.send(mqtt.subscribe_packet(1, ("a", 1)), mqtt.DISCONNECT_BYTES)
        await peer.rest()
    for number in range(20):
        await embedded.publish("a", b"%d" % number, qos=1)
    async with peer_of(embedded) as peer:
        await peer.connect("c", clean=True)
    await purged(embedded)


async def test_stopping_while_an_ended_session_is_deleted_goes_on_after_the_start(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    async with Broker(config) as broker:
        async with session_of(broker, "c", clean=False) as peer:
            peer.send(mqtt.subscribe_packet(1, ("a", 1)), mqtt.DISCONNECT_BYTES)
            await peer.rest()
        await broker.publish("a", b"x", qos=1)
        async with session_of(broker, "c", clean=True) as peer:
            await broker.stop()
    async with Broker(config) as broker:
        await purged(broker)


class NoCommitter:
    """Commits at once."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def finish_all(self) -> None:
        commit(self.store)


async def test_many_sessions_that_end_are_deleted_in_bounded_steps(tmp_path: Path) -> None:
    """As many as fit into a step go together, and none of them has to be looked for among the others."""
    store = open_store(tmp_path / "store", "os", lambda: None)
    sessions = [store.create_session(f"dev-{index}") for index in range(300)]
    for session in sessions:
        store.put_subscription(session, "a/#", 1)
        store.put_waiting(session, delivery(message(), 1))
    commit(store)
    for index, session in enumerate(sessions):
        store.end_session(f"dev-{index}", session)
    commit(store)
    db = store.db = WalkedDb(store.db)
    purger = Purger(store, NoCommitter(store))  # type: ignore[arg-type]
    for session in reversed(sessions):
        purger.add(session)
    steps = 0
    while ended_sessions(store):
        db.take()
        before = store.writes
        purger.step()
        assert store.writes - before <= PURGE_STEP + 10
        assert db.take() <= PURGE_STEP + 10
        commit(store)
        steps += 1
    assert steps <= 300 * (SESSION_COST + 10) / PURGE_STEP + 1
    assert list(db.db.iterator(include_value=False)) == [b"b", b"v"]
    store.db.close()


async def test_a_session_that_cannot_be_read_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "store", "os", lambda: None)
    bad, good = store.create_session("bad"), store.create_session("good")
    for session in (bad, good):
        store.put_waiting(session, delivery(message(), 1))
    commit(store)
    db = store.db

    class Damaged(WalkedDb):
        def iterator(self, **options: Any) -> Any:  # type: ignore[override]
            if options["start"][1:9] == bad:
                raise plyvel.CorruptionError(b"block checksum mismatch")
            return super().iterator(**options)

    store.end_session("bad", bad)
    store.end_session("good", good)
    commit(store)
    store.db = Damaged(db)
    purger = Purger(store, NoCommitter(store))  # type: ignore[arg-type]
    purger.add(bad)
    purger.add(good)
    purger.step()
    commit(store)
    assert "cannot delete an ended session: block checksum mismatch" in caplog.text
    assert {key[1:9] for key in db.iterator(include_value=False)} == {b"", bad}
    db.close()
