"""What is copied of durable sessions: records of their owner's store, in the form in which they travel.

On the path of every message that is copied, and so compiled.
"""

from typing import Final

from vmq.store.entries import FLAG_GROUP, FLAG_NOTE, FLAG_REF, FLAG_RELEASED, NOTE

#: What is copied of a session: its subscriptions, entries that wait and that are in flight, QoS 2 packet ids received,
#: messages that it holds while it moves, and (the rest of its key is empty) since when it is offline.
#: Records are sent in the order of `RECORDS`: what a message comes to be in front of what it was, so that one that
#: waits and is sent meanwhile is at no time missing where the copy that is corrected is an old one.
SUBSCRIPTION: Final = ord("u")
WAITING: Final = ord("q")
INFLIGHT: Final = ord("i")
RECEIVED: Final = ord("x")
HELD: Final = ord("h")
SINCE: Final = ord("s")
ENTRIES: Final = b"qi"
RECORDS: Final = b"uxiqh"

#: Flags of an entry that holds its message, and nothing else.
_PLAIN: Final = frozenset((b"\1", b"\2", b"\5", b"\6"))
_ENTRY_KEY: Final = 17
#: In front of such a message's topic.
_HEAD: Final = 5


def check_changes(changes: list[tuple[bytes, bytes | None]], bodies: list[bytes]) -> None:
    """Refuses records that no owner has.

    Raises:
        ValueError: the fault is remote.
    """
    for body in bodies:
        if len(body) < 3 or len(body) < 2 + int.from_bytes(body[:2], "big"):
            raise ValueError("an ill-formed message")
    for key, value in changes:
        kind = key[0]
        if kind in ENTRIES:
            if value is not None and value[:1] in _PLAIN and len(key) == _ENTRY_KEY:
                size = len(value)
                if size >= _HEAD and size >= _HEAD + (value[3] << 8 | value[4]):
                    continue  # most are so
            if len(key) != 17 or (value is not None and not _is_entry(value, len(bodies))):
                raise ValueError("an ill-formed entry of a queue")
        elif kind == SUBSCRIPTION:
            if len(key) < 10 or (value is not None and value not in (b"\0", b"\1", b"\2")):
                raise ValueError("an ill-formed subscription")
        elif kind == HELD:
            if len(key) != 17 or (value is not None and not _is_held(value, len(bodies))):
                raise ValueError("an ill-formed held message")
        elif kind == RECEIVED:
            if len(key) != 11 or value:
                raise ValueError("an ill-formed packet id")
        elif kind != SINCE or len(key) != 9 or value is None or len(value) != 8:
            raise ValueError("a record that is none of a session")


def check_places(*places: bytes) -> None:
    """Refuses places that no record can have.

    Raises:
        ValueError: the fault is remote.
    """
    for place in places:
        if place and place[0] not in RECORDS:
            raise ValueError("a place of no record")


def _is_held(value: bytes, bodies: int) -> bool:
    """Whether it is the name of a node, and an entry that holds its message."""
    entry = value.partition(b"\0")[2]
    return _is_entry(entry, bodies) and not entry[0] & FLAG_REF


def _is_entry(value: bytes, bodies: int) -> bool:
    """Whether it is as in `vmq.store.store`, its message among so many bodies if it names one."""
    if len(value) < 3 or value[0] & 3 == 0 or value[0] & 3 == 3 or value[0] > 127:
        return False
    flags = value[0]
    if flags & FLAG_RELEASED:
        return len(value) >= 3
    tail = 0
    if flags & FLAG_NOTE:
        if len(value) < 5 + NOTE:
            return False
        value = value[:-NOTE]
    if flags & FLAG_GROUP:
        tail = 2 + int.from_bytes(value[-2:], "big")
    if flags & FLAG_REF:
        return len(value) == 11 + tail and int.from_bytes(value[3:11], "big") < bodies
    return len(value) >= 5 + tail + int.from_bytes(value[3:5], "big")
