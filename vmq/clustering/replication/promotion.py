"""A copy becomes a session of this broker: one record more, and one less.

What its queue holds stays where it is, however long it is.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from vmq.clustering.messages.replication import Provenance
from vmq.clustering.replication.follower import COPY, Follower, SessionCopy
from vmq.mqtt.message import Delivery
from vmq.store.entries import StoredSession, split_scope
from vmq.store.lines import places, scan_line
from vmq.store.opening import read_ends
from vmq.store.store import Store

#: A session's number -> `Provenance`.
WHENCE: Final = b"w"

#: Messages of a copy that are read at a time.
_STEP: Final = 500


_WHENCE: Final = msgspec.msgpack.Decoder(Provenance)
_ENCODER: Final = msgspec.msgpack.Encoder()


def promote(
    store: Store,
    copies: Follower,
    copy: SessionCopy,
    node: str,
    now_ms: int,
    owner: str | None = None,
) -> StoredSession:
    """Makes a copy, all of which is committed, a session; for `Registry.restore`.

    Other copies of the same session are deleted here; elsewhere they go when the record has another owner.

    Args:
        store: the broker's.
        copies: those that are here.
        copy: one of them.
        node: whose copy it was.
        now_ms: since when the session counts as offline, if it was online.
        owner: the user whose session it is; None: nobody knows.
    """
    head = copy.head
    copies.take(copy)
    for other in copies.of_client(head.scoped_id):
        if other.head.owner == head.owner:
            copies.drop(other)
    offline_at = head.offline_at or now_ms
    store.put_session(head.scoped_id, copy.number, offline_at, owner)
    store.delete(COPY + copy.number)
    note_whence(store, copy.number, copies, copy, node, offline_at)
    mountpoint, client_id = split_scope(head.scoped_id.encode())
    stored = StoredSession(mountpoint, client_id.decode(), copy.number, offline_at, owner)
    for key, value in scan_line(store.db, b"u" + copy.number):
        stored.subscriptions.append((key[9:].decode(), value[0]))
    read_ends(store.db, stored)
    for packet_id in store.load_received(copy.number):
        # The copy had it maybe before anybody else had the message, which died with the owner. A client that was not
        # answered sends again, and that must count: better twice than never.
        store.remove_received(copy.number, packet_id)
    for key, value in list(scan_line(store.db, b"h" + copy.number)):
        # It was to wait for what never comes now.
        stored.last += 1
        stored.first = stored.first or stored.last
        entry = value.partition(b"\0")[2]
        store.put(b"q" + copy.number + stored.last.to_bytes(8, "big"), entry)
        store.count_raw(copy.number, entry, True)
        store.delete(key)
    return stored


def note_whence(
    store: Store,
    session: bytes,
    copies: Follower,
    copy: SessionCopy,
    node: str,
    away_since: int = 0,
) -> None:
    """A session of this broker has now what a node's copy had; of one that was not whole nothing is known.

    All of the copy is committed, as it was when it was taken. `away_since` is when the client of a session went that
    has it all in the places where it was; 0: it has it elsewhere.
    """
    head = copy.head
    if not head.complete:
        return
    waiting, inflight = (places(store.db, kind + copy.number)[1] + 1 for kind in (b"q", b"i"))
    origin = Provenance(
        head.owner,
        head.session,
        node,
        head.life,
        copies.at(copy),
        waiting,
        inflight,
        is_open=away_since > 0,
        away_since=away_since,
    )
    store.put(WHENCE + session, _ENCODER.encode(origin))


def contents(store: Store, copy: SessionCopy) -> Iterator[list[Delivery]]:
    """The messages of a copy, all of which is committed: some at a time, those in flight first.

    Raises:
        Exception: LevelDB's, where a record cannot be read.
    """
    found: list[Delivery] = []
    for kind in (b"i", b"q", b"h"):
        for _, value in scan_line(store.db, kind + copy.number):
            raw = value.partition(b"\0")[2] if kind == b"h" else value
            delivery = store.read_entry(raw)
            if delivery is not None:
                found.append(delivery)
            if len(found) >= _STEP:
                yield found
                found = []
    yield found


def whence(store: Store, session: bytes) -> Provenance | None:
    """What a session was before; None: it was always this broker's, or came here from its living owner.

    Raises:
        StoreError: the record cannot be read.
    """
    raw = store.get(WHENCE + session)
    return None if raw is None else _WHENCE.decode(raw)


def close(store: Store, session: bytes) -> None:
    """What of the copy is done has been said, or is not to be heard any more: see `Provenance.is_open`."""
    origin = whence(store, session)
    if origin is not None and origin.is_open:
        closed = msgspec.structs.replace(origin, is_open=False)
        store.put(WHENCE + session, _ENCODER.encode(closed))
