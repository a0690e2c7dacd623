"""The records of the replicated metadata in the storage, by the first byte of their key.

    e full key               -> siblings and context           see `vmq_cluster.metadata.entries`
    d incarnation counter    -> full key                       of each sibling's dot
    d incarnation end        ->                                 behind all of them: see `end_of_dots`
    t incarnation counter    -> full key                       of those among them that are deletions
    c incarnation            -> runs                           this node's clock
    h incarnation            -> runs                           the horizon: see `vmq_cluster.metadata.collector`

Numbers have 8 bytes, big-endian, so that records sort by number. A full key is the length of the prefix (1), the
prefix, the key.
"""

from typing import Final

import msgspec

from vmq_cluster.clocks import Dot, NodeClock, Runs
from vmq_cluster.errors import ClusterError, StorageError
from vmq_cluster.messages import MAX_KEY
from vmq_cluster.storage import Transaction, after_prefix

ENTRY: Final = b"e"
DOT: Final = b"d"
DELETED: Final = b"t"
CLOCK: Final = b"c"
HORIZON: Final = b"h"

#: Behind every dot.
NO_DELETION: Final[Dot] = ((1 << 64) - 1, (1 << 64) - 1)

_RUNS = msgspec.msgpack.Decoder(Runs)


def full_key(prefix: str, key: bytes) -> bytes:
    """The name of a key in the storage and on the wire.

    Raises:
        ClusterError: the prefix or the key is too long.
    """
    head = prefix.encode()
    if len(head) > 255:
        raise ClusterError(f"a prefix of {len(head)} bytes; the limit is 255")
    made = bytes([len(head)]) + head + key
    if len(made) > MAX_KEY:
        raise ClusterError(f"a key of {len(key)} bytes; the limit is {MAX_KEY}, with its prefix")
    return made


def split_key(key: bytes) -> tuple[str, bytes]:
    """The prefix and the key; a prefix that is no text has no watchers and no readers."""
    end = 1 + key[0]
    return key[1:end].decode(errors="replace"), key[end:]


def keys_of(prefix: str, begin: bytes = b"") -> tuple[bytes, bytes]:
    """The range of the entries with this prefix whose keys begin so."""
    first = ENTRY + full_key(prefix, begin)
    return first, after_text(first)


def after_text(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`, which holds a text or nothing at its end."""
    return prefix + b"\xff" * (MAX_KEY + 1) if prefix[-1] == 255 else after_prefix(prefix)


def dot_key(kind: bytes, dot: Dot) -> bytes:
    """The key of the record of a dot."""
    return kind + dot[0].to_bytes(8, "big") + dot[1].to_bytes(8, "big")


def end_of_dots(incarnation: int) -> bytes:
    """The key of a record behind all dots of an incarnation, which is there as soon as one of them was.

    LevelDB walks over everything that was deleted up to the next record that is there, wherever a range ends. Who has
    read the last dots of one incarnation is not to walk over those that the next one has outlived.
    """
    return DOT + incarnation.to_bytes(8, "big") + b"\xff" * 9


def dot_of(key: bytes) -> Dot:
    """The dot in a key of kind DOT or DELETED."""
    return int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")


def load_clock(transaction: Transaction, kind: bytes) -> NodeClock:
    """A clock from the storage."""
    clock = NodeClock()
    for key, raw in transaction.scan(kind, after_prefix(kind)):
        try:
            clock.runs[int.from_bytes(key[1:9], "big")] = _RUNS.decode(raw)
        except msgspec.DecodeError as error:
            raise StorageError(f"a record of the node's clock is damaged: {error}") from None
    return clock


def save_clock(
    transaction: Transaction, kind: bytes, clock: NodeClock, incarnations: set[int]
) -> None:
    """Writes what changed of a clock."""
    for incarnation in incarnations:
        key = kind + incarnation.to_bytes(8, "big")
        transaction.put(key, msgspec.msgpack.encode(clock.runs[incarnation]))
