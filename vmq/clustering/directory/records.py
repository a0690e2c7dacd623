"""Subscriber records: what every node knows of every session, in the replicated metadata.

The key names the session by mountpoint and client id; the value says which node owns it, since when, and what it
subscribes to. Only the owner writes a record. Who takes a session over becomes its owner by a record that is `since`
later than the one it found (`taken_over`), whatever the clocks say.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

#: The prefix of the metadata under which the records are.
SUBSCRIBERS: Final = "vmq.subscribers"
#: That of retained messages: mountpoint, NUL, topic -> QoS (1 byte), payload.
RETAINED: Final = "vmq.retained"

_SEPARATOR: Final = "\0"  # in no client id and no mountpoint [MQTT-1.5.3-2]
_NUL: Final = b"\0"
_PIECE_WORDS: Final = 4
#: The digits of a piece's number, with which its key ends.
NUMBER: Final = 8


class RecordError(ValueError):
    """What is under a key of the metadata is no record of a subscriber."""


class Record(Struct, array_like=True, frozen=True):
    """One session. `since` is when its owner became that: milliseconds of the owner's wall clock, or later."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    since: Annotated[int, Meta(ge=0, lt=1 << 62)]
    clean: bool
    #: QoS by filter; shared ones are whole, `$share/name/filter`.
    subscriptions: dict[str, Annotated[int, Meta(ge=0, le=2)]]
    #: Whether its client is connected; kept up to date for members of share groups only, the others always are.
    online: bool = True
    #: Which pieces (`vmq.clustering.directory.pieces`) hold the rest of the subscriptions, if one piece does not hold
    #: all. It is another each time a node begins to write them: so the pieces of one side of a split never count on the
    #: other.
    pieces: Annotated[str, Meta(max_length=300)] = ""
    #: Empty; it was the node that had the session before.
    source: Annotated[str, Meta(max_length=255)] = ""
    #: The user whose durable session it is; empty: nobody's, or of a node that does not say.
    user: Annotated[str, Meta(max_length=65_535)] = ""
    #: Its durable session is in a slot (`vmq.clustering.slots`), which gets what is published at QoS 1 and 2 for
    #: subscriptions of these; its node gets what is of QoS 0.
    is_in_slot: bool = False

    def like(self, subscriptions: dict[str, int]) -> "Record":
        """A session of the same owner and kind that subscribes to just this."""
        same = Record(self.node, self.since, self.clean, subscriptions, self.online)
        return msgspec.structs.replace(same, is_in_slot=self.is_in_slot)


_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")
_DECODER: Final = msgspec.msgpack.Decoder(Record)


def encode_key(mountpoint: str, client_id: str) -> bytes:
    """The key of a session's record."""
    return (mountpoint + _SEPARATOR + client_id).encode()


def decode_key(key: bytes) -> tuple[str, str]:
    """Mountpoint and client id.

    Raises:
        RecordError: it is no key of a record.
    """
    try:
        mountpoint, separator, client_id = key.decode().partition(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise RecordError(f"{key!r} is no subscriber: {error}") from None
    if not separator or _SEPARATOR in client_id:
        raise RecordError(f"{key!r} is no subscriber")
    return mountpoint, client_id


def encode_piece(key: bytes, pieces: str, number: int) -> bytes:
    """The key of a piece of the session that has a key; they follow it in the order of keys."""
    return pieces_of(key, pieces) + b"%0*x" % (NUMBER, number)


def pieces_of(key: bytes, pieces: str) -> bytes:
    """What the keys of a session's pieces begin with."""
    return key + _NUL + pieces.encode() + _NUL


def decode_piece(key: bytes) -> tuple[bytes, str, int] | None:
    """The key of the session, which pieces, and the number of this one; None if it is no piece's key."""
    words = key.split(_NUL)
    if len(words) != _PIECE_WORDS or len(words[-1]) != NUMBER:
        return None
    mountpoint, client_id, pieces, number = words
    try:
        return mountpoint + _NUL + client_id, pieces.decode(), int(number, 16)
    except ValueError:
        return None


def encode(record: Record) -> bytes:
    """A record for the metadata: equal records are equal bytes."""
    return _ENCODER.encode(record)


def decode(raw: bytes) -> Record:
    """A record out of the metadata.

    Raises:
        RecordError: it is none.
    """
    try:
        return _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        raise RecordError(f"no record of a subscriber: {error}") from None


def merge(one: bytes, other: bytes) -> bytes:
    """The record that is true of two that were written at the same time, as on both sides of a split.

    The newest session wins as a whole. By the time of the metadata's write it would be the session that subscribed
    last, and by a union of the subscriptions what one side unsubscribed would be back.
    """
    return max(one, other, key=_rank)


def _rank(raw: bytes) -> tuple[int, str, bytes]:
    """The order of records; what is none comes before all."""
    try:
        record = decode(raw)
    except RecordError:
        return (-1, "", raw)
    return (record.since, record.node, raw)


def taken_over(
    before: Record | None,
    node: str,
    now: int,
    clean: bool,
    subscriptions: dict[str, int],
) -> Record:
    """The record with which a node becomes the owner of a session that had the record `before`."""
    since = now if before is None else max(now, before.since + 1)
    return Record(node, since, clean, subscriptions)
