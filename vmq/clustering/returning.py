"""An owner that was given up for dead comes back: what others have of its sessions already must not come twice.

Its sessions have other owners now, to which it hands them over (`vmq.clustering.moving`). What the copy had of which
such an owner made its session is taken out first: the owner says whose copy it was and how far it reached, the marks
say what that one may have lacked (`vmq.clustering.marks`). Without an answer nothing is taken out: better twice than
never.
"""

from collections.abc import Iterator

from vmq.clustering.marks import EVERYTHING, Place
from vmq.core import Core
from vmq.queue import Queue
from vmq.registry import Subscriber
from vmq.store import Store


def strip(core: Core, subscriber: Subscriber, lacks: Place) -> int:
    """Takes out of a session, whose client is away, what a copy had; returns how many messages are left.

    Args:
        core: the broker's.
        subscriber: the session.
        lacks: the places of what waits and of what is in flight from which on the copy may have lacked it.
    """
    store = core.store
    assert store is not None, "a node has a store"
    queue = subscriber.queue
    queue.load_inflight()
    session = queue.session
    if lacks != EVERYTHING:
        # The client may have released them since, and published others under them.
        received = subscriber.received_ids(core)
        for packet_id in received:
            store.remove_received(session, packet_id)
        received.clear()
    waiting = _strip_kind(store, b"q" + session, lacks[0])
    inflight = set(_strip_kind(store, b"i" + session, lacks[1]))
    queue.inflight = {
        packet_id: delivery
        for packet_id, delivery in queue.inflight.items()
        if delivery.order in inflight
    }
    _set_places(queue, waiting)
    return len(waiting) + len(queue.inflight)


def _strip_kind(store: Store, prefix: bytes, first: int) -> list[int]:
    """Deletes a session's records of a kind before a place; returns the places of the rest."""
    left = []
    for key in sorted(set(_keys(store, prefix))):
        raw = store.get(key)
        if raw is None:
            continue
        place = int.from_bytes(key[9:], "big")
        # What is not committed has come since.
        if key in store.dirty or place >= first:
            left.append(place)
        else:
            store.purge_record(key, raw)
    return left


def _keys(store: Store, prefix: bytes) -> Iterator[bytes]:
    """The keys that begin so, those of commits under way too."""
    for key, _ in store.db.iterator(prefix=prefix):
        yield key
    for uncommitted in (store.writing, store.dirty):
        yield from [key for key in uncommitted if key.startswith(prefix)]


def _set_places(queue: Queue, waiting: list[int]) -> None:
    queue.backlog = len(waiting)
    queue.first = waiting[0] if waiting else 0
    queue.last = waiting[-1] if waiting else 0
