"""An owner that was given up for dead comes back: what others have of its sessions already must not come twice.

Its sessions have other owners now, to which it hands them over (`vmq.clustering.takeover.machine`). Such an owner has
made its session of a copy, and what is in both is told apart by its places, which a copy has from its owner and keeps.

**The owner before** may have gone on delivering. It says what it still has of what the copy had (`undone`), and the new
owner takes the rest out of its session (`take_out`). Whatever the owner before lacks is done, dropped, or on its way to
the new one by other means. But who has lost the end of its disk does not know what became of that, and says nothing.

**Then** it takes out of its own what the new owner has (`strip`): that one said whose copy it was and how far it
reached, the marks say what it may have lacked (`vmq.clustering.replication.lag`). The order counts: who has stripped
its session cannot say any more what of it is done. So the new owner notes with what it takes out that it has heard all.

Where something is not known, nothing is taken out: better twice than never.
"""

from collections import deque
from collections.abc import Iterator

from vmq.clustering.messages.ranges import Range, outside, ranges_of
from vmq.clustering.messages.replication import MAX_RANGES, Provenance
from vmq.clustering.replication.lag import EVERYTHING, Place
from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.subscriber import Subscriber
from vmq.store.lines import scan_line
from vmq.store.store import Store


def undone(store: Store, session: bytes, origin: Provenance) -> tuple[list[Range], list[Range]]:
    """What a session still has of what was in a copy of it: places of what waits, and of what is in flight.

    A few places more may be named, if there would be too many ranges.
    """
    return (
        ranges_of(_places(store, b"q" + session, origin.waiting), MAX_RANGES),
        ranges_of(_places(store, b"i" + session, origin.inflight), MAX_RANGES),
    )


def done_waiting(
    store: Store, session: bytes, origin: Provenance, undone: list[Range]
) -> Iterator[bytes]:
    """The keys of what waits in a session that was made of a copy, and is done."""
    prefix = b"q" + session
    for place in outside(_places(store, prefix, origin.waiting), undone):
        yield prefix + place.to_bytes(8, "big")


def done_inflight(
    store: Store, session: bytes, origin: Provenance, undone: list[Range]
) -> Iterator[bytes]:
    """The same of what is in flight: of use as long as nobody was sent any of it."""
    prefix = b"i" + session
    for place in outside(_places(store, prefix, origin.inflight), undone):
        yield prefix + place.to_bytes(8, "big")


def take_out(store: Store, keys: list[bytes]) -> None:
    """Deletes those of the entries that are there still."""
    for key in keys:
        raw = store.get(key)
        if raw is not None:
            store.purge_record(key, raw)


def guard(queue: Queue, origin: Provenance) -> None:
    """No message of this session's own gets the place of one of the copy, which may be free by now."""
    queue.least_seq = origin.waiting
    queue.next_seq = max(queue.next_seq, origin.waiting)
    queue.next_order = max(queue.next_order, origin.inflight)


def count_waiting(store: Store, queue: Queue) -> None:
    """The queue knows again what of it is in the store only, after entries were taken out of that."""
    there = _places(store, b"q" + queue.session)
    known = set(there)
    pending = deque(each for each in queue.pending or () if each.seq in known)
    queue.pending = pending or None
    queue.count_memory()
    loaded = {each.seq for each in pending}
    _set_places(queue, [place for place in there if place not in loaded])


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
    for delivery in queue.inflight.values():
        if delivery.order not in inflight:
            queue.inflight.remove(delivery)
    queue.count_inflight()
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


def _places(store: Store, prefix: bytes, end: int = 1 << 64) -> list[int]:
    """The places of a session's records of a kind before an end, in rising order."""
    keys = {key for key in _keys(store, prefix) if not store.is_deleted(key)}
    return sorted(place for key in keys if (place := int.from_bytes(key[9:], "big")) < end)


def _keys(store: Store, prefix: bytes) -> Iterator[bytes]:
    """The keys that begin so, those of commits under way too."""
    for key, _ in scan_line(store.db, prefix):
        yield key
    yield from [key for key in store.uncommitted(prefix[1:]) if key.startswith(prefix)]


def waiting_places(store: Store, session: bytes) -> list[int]:
    """The places of all that waits in a session, in rising order."""
    return _places(store, b"q" + session)


def _set_places(queue: Queue, waiting: list[int]) -> None:
    queue.backlog = len(waiting)
    queue.first = waiting[0] if waiting else 0
    queue.last = waiting[-1] if waiting else 0
