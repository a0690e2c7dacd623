"""What is stored of copies of other nodes' sessions besides their records."""

from typing import Final

import msgspec
from msgspec import Struct


class CopyHeader(Struct, array_like=True):
    """Whose session a copy is of, and how good the copy is."""

    owner: str
    session: bytes
    scoped_id: str
    #: The life of the owner's store in which it was made.
    life: int
    offline_at: int
    complete: bool = False
    #: The owner's commit after which it got no changes; None: it gets them.
    frozen_at: int | None = None


_HEADS: Final = msgspec.msgpack.Decoder(CopyHeader)
_LIVES: Final = msgspec.msgpack.Decoder(list[tuple[int, int, int]])

#: A head or lives, as they are stored.
encode_stored: Final = msgspec.msgpack.Encoder().encode
decode_head: Final = _HEADS.decode
#: The lives of an owner's store: each with the last number taken, and the owner's commit then.
decode_lives: Final = _LIVES.decode
