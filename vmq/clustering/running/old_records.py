"""What stores of nodes had before sessions were in slots: copies of others' sessions, and what waited for others."""

from typing import Final

import msgspec
from msgspec import Struct

from vmq.clustering.messages.publishes import RemotePublish

#: Before the number of a copy; and before the origin of what was kept for it, its store, and whom it was for.
COPY: Final = b"k"
KEPT: Final = b"d"
#: What is of no use without them: how far copies were, what they lacked, and whose they were.
ABOUT_COPIES: Final = (b"e", b"a", b"w", b"lcopied")


class CopyHeader(Struct, array_like=True):
    """Whose session a copy is of, and how good the copy is."""

    owner: str
    session: bytes
    scoped_id: str
    #: The life of the owner's store in which it was made.
    life: int
    offline_at: int
    complete: bool = False
    #: The owner's commit after which it got no changes; None: it got them.
    frozen_at: int | None = None


class HintedPublish(Struct, array_like=True, frozen=True):
    """A publish, and the clients at its owner whose sessions get it."""

    publish: RemotePublish
    clients: list[str]


class HintRecord(Struct, array_like=True, frozen=True):
    """A batch that one node kept for another."""

    messages: list[HintedPublish]
    keepers: list[str]


decode_copy: Final = msgspec.msgpack.Decoder(CopyHeader).decode
decode_hints: Final = msgspec.msgpack.Decoder(HintRecord).decode
