"""The log of one replica, as the machine sees it: a port, which the segments of a partition meet.

**What the one who writes it owes.** `append`, `cut`, `install` and `reset` change what `read` gives at once, in
memory at least; `safe` follows when it is as durable as the group promises (memory: at once; os: written; fsync:
synced), and then the group is told (`Group.on_safe`). A sync that began before a cut says nothing about what was
appended behind it. After a start the log has everything that was ever `safe`, or says that it `forgot`.

What a log begins with is never forgotten: its first batch counts as `safe` when it is synced, whatever was promised.
(Else a group that was just made, all of whose replicas lose their power, has nothing to go on from. Who its members are
it knows from its ballot, also where its log has forgotten that.)

Batches keep their offsets for ever. What `read` gives byte for byte is what `append` got.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from vmq_cluster.raft.messages import Batch, Mark, SealedFile


class Log(Protocol):
    """Batches by offset. Whatever fails raises `OSError`: the host then closes this group (`Failed`)."""

    @property
    def damage(self) -> Sequence[tuple[int, int]]:
        """Committed offsets that cannot be read here, as (first, end)."""

    @property
    def first(self) -> int:
        """The first offset that is kept."""

    @property
    def end(self) -> int:
        """The offset behind the last."""

    @property
    def safe(self) -> int:
        """How far the log is as durable as was promised."""

    @property
    def committed(self) -> int:
        """How far it was known to be committed when that was last written down; a hint, never more than is true."""

    @property
    def loose(self) -> int:
        """From here on batches can be read one by one; before it are sealed files, which may have been merged."""

    @property
    def is_full(self) -> bool:
        """Whether the next batch is to begin a new segment."""

    def make(
        self, offset: int, term: int, kind: int, marks: tuple[Mark, ...], rows: Sequence[Any]
    ) -> Batch:
        """A batch for this place in the log; a control batch has one row, its bytes."""

    def blank(self, first: int, end: int, term: int) -> Batch:
        """A batch of rows of which none is left, for offsets of one term: what `mend` gets where nobody has them."""

    def append(self, batches: Sequence[Batch]) -> None:
        """Puts batches behind the last. A batch of kind `STATE` begins a segment."""

    def cut(self, offset: int) -> None:
        """Forgets everything from an offset on. Open readers keep what they see.

        It is not committed; but after an unclean election elsewhere it may have been. Then the log may end before the
        offset: what was merged is forgotten whole.
        """

    def read(self, offset: int, limit: int) -> list[Batch]:
        """Batches from the one with this offset on, about so many bytes, one at least; none where damage begins.

        Behind damage it goes on: what is whole of a segment can be read.
        """

    def gap(self, offset: int) -> int:
        """Up to where nothing can be read from an offset on, that is in the log; itself, if that can be."""

    def replay(self, end: int) -> Iterator[Batch]:
        """The segment that holds the offset before `end`: its batches before `end`, the first of kind `STATE`."""

    def commit(self, end: int) -> None:
        """So much is committed: segments that are committed whole are sealed."""

    def trim(self, first: int) -> None:
        """Deletes segments that end at this offset or before."""

    def files(self, offset: int) -> list[SealedFile]:
        """The sealed segments from the one with this offset on, in order; from the first if it is gone."""

    def read_file(self, file: SealedFile, position: int, limit: int) -> bytes:
        """A piece of one; nothing if it is not there any more."""

    def write_aside(self, file: SealedFile, position: int, data: bytes) -> int:
        """Keeps a piece of another's file until it is whole; returns how much of it is there, from its beginning."""

    def install(self, file: SealedFile) -> bool:
        """A file is there whole: checks it, and puts it in place of all from its first offset on, synced.

        Returns whether it was good; else it is gone.
        """

    def reset(self, offset: int) -> None:
        """Forgets everything: the log begins, and ends, at an offset."""

    def mend(self, batches: Sequence[Batch]) -> bool:
        """Puts committed batches in the place of damaged ones; returns whether it could use them yet."""
