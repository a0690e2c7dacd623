"""What outboxes remember of other nodes' stores."""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from vmq.store.lines import scan
from vmq.store.store import Store, StoreError

PEER: Final = b"n"


class KnownPeer(Struct, array_like=True):
    """What is remembered of another node's store for as long as something may wait for it."""

    name: int


def put_known(store: Store, peer: str, known: KnownPeer) -> None:
    """Writes what is known of a node's store."""
    store.put(PEER + peer.encode(), msgspec.msgpack.encode(known))


def forget_known(store: Store, peer: str) -> None:
    """The node is no member any more, and nothing waits for it."""
    store.delete(PEER + peer.encode())


def stored_known(store: Store) -> Iterator[tuple[str, KnownPeer]]:
    """What is known of each node's store.

    Raises:
        StoreError: a record is none, which only a damaged store shows.
    """
    for key, value in scan(store.db, PEER):
        try:
            yield key[1:].decode(), msgspec.msgpack.decode(value, type=KnownPeer)
        except ValueError:
            raise StoreError(f"key {key[:40]!r} is none of another node's store") from None
