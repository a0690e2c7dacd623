"""What an earlier life of this node had written is on its disk still: only of that it can say what became of it.

A machine that loses power loses the end of what was written with `store.durability = "os"`, and of what came last the
copies of sessions on other nodes then know more than their owner. LevelDB's log is read up to where it ends: if what a
commit wrote is there, so is what every commit of that life before it did. So a life notes the number of a commit in
it, each time that copies elsewhere are out of reach, and so get no later one.
"""

from typing import Final

import msgspec

from vmq.store import Store, StoreError

#: Lives of this node's store, each with a commit that is on the disk.
COMMITS: Final = b"lcommits"

#: Lives that are remembered.
_MAX_LIVES: Final = 8

_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[int, int]])
_ENCODER: Final = msgspec.msgpack.Encoder()


class Survival:
    """The commits of one store that are known to be on its disk."""

    def __init__(self, store: Store, life: int) -> None:
        """Reads what earlier lives noted.

        Raises:
            StoreError: the record cannot be read.
        """
        self._store = store
        self._life = life
        raw = store.get(COMMITS)
        try:
            self._lives = dict(_DECODER.decode(raw)) if raw is not None else {}
        except msgspec.DecodeError as error:
            raise StoreError(f"an ill-formed note of commits: {error}") from None

    def note(self) -> None:
        """The commit that gathers now says so itself."""
        self._lives[self._life] = self._store.number
        lives = sorted(self._lives.items())[-_MAX_LIVES:]
        self._store.put(COMMITS, _ENCODER.encode(lives))

    def has(self, life: int, commit: int) -> bool:
        """Whether all that was written up to a commit of a life is here, or was deleted since."""
        return life == self._life or commit <= self._lives.get(life, -1)
