"""The records of ended sessions, in a broker that goes on, and in one that stops meanwhile."""

from pathlib import Path

from tests.support.until import until
from tests.support.wire import (
    DISCONNECT_BYTES,
    subscribe_packet,
)
from tests.vmq.sockets import config_in, peer_of
from vmq.broker import Broker
from vmq.store_open import ended_sessions


async def purged(broker: Broker) -> None:
    """Waits until nothing is left in the store of the sessions that ended."""
    assert broker._core is not None
    store = broker._core.store
    assert store is not None
    await until(lambda: not list(store.db.iterator(prefix=b"q")) and not ended_sessions(store))


async def test_an_ended_session_is_deleted_from_the_store(embedded: Broker) -> None:
    async with peer_of(embedded) as peer:
        await peer.connect("c", clean=False)
        peer.send(subscribe_packet(1, ("a", 1)), DISCONNECT_BYTES)
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
        async with peer_of(broker) as peer:
            await peer.connect("c", clean=False)
            peer.send(subscribe_packet(1, ("a", 1)), DISCONNECT_BYTES)
            await peer.rest()
        await broker.publish("a", b"x", qos=1)
        async with peer_of(broker) as peer:
            await peer.connect("c", clean=True)
            await broker.stop()
    async with Broker(config) as broker:
        await purged(broker)
