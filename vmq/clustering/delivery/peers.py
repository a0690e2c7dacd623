"""What outboxes remember of other nodes: the names of their stores, for as long as something may wait for them."""

from collections.abc import Iterator
from typing import Final

import msgspec

from vmq.store.lines import scan
from vmq.store.store import Store, StoreError

PEER: Final = b"n"


def put_name(store: Store, peer: str, name: int) -> None:
    """Writes the name of a node's store."""
    store.put(PEER + peer.encode(), msgspec.msgpack.encode((name,)))


def forget_name(store: Store, peer: str) -> None:
    """The node is no member any more, and nothing waits for it."""
    store.delete(PEER + peer.encode())


def stored_names(store: Store) -> Iterator[tuple[str, int]]:
    """Each node with the name of its store.

    Raises:
        StoreError: a record is none, which only a damaged store shows.
    """
    for key, value in scan(store.db, PEER):
        try:
            yield key[1:].decode(), msgspec.msgpack.decode(value, type=tuple[int])[0]
        except ValueError:
            raise StoreError(f"key {key[:40]!r} is none of another node's store") from None
