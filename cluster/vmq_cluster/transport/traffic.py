"""Bytes of frames that went to other nodes and came from them, by node."""

from collections.abc import Collection
from typing import Final

#: Who is meant by bytes of nodes that are no members, any more or yet: no broker may have this name.
STRANGERS: Final = "(no member)"


class Traffic:
    """What one link counts. A name that anybody may give himself has no place of its own."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {STRANGERS: 0}
        self.received: dict[str, int] = {STRANGERS: 0}

    def keep(self, members: Collection[str]) -> None:
        """These are the other members; of others nothing is told any more."""
        for counts in (self.sent, self.received):
            for name in counts.keys() - {*members, STRANGERS}:
                del counts[name]
            for name in members:
                counts.setdefault(name, 0)

    def went(self, name: str, size: int) -> None:
        """Bytes were handed over for a node."""
        self.sent[name if name in self.sent else STRANGERS] += size

    def came(self, name: str, size: int) -> None:
        """Bytes came from a node."""
        self.received[name if name in self.received else STRANGERS] += size
