"""Who a node is: its name, its incarnation, its epoch.

The **name** is given by the operator and stays. The **incarnation** stands for a memory: it names the writes of a
node (see `vmq_cluster.clocks`), so it lives as long as the node is sure to remember all of them. It changes when
the disk is new, and when the last life ended in a way that may have cost it its last writes: not stopped cleanly,
and the machine has been booted since. The **epoch** changes with each start and numbers what only lives in memory:
frames, broadcasts, payloads of channels. Both rise from life to life; where a node that lost its disk and its clock
starts too low, its peers tell it so.

The **store** stands for the disk, and stays as long as that does: of two nodes with one name the later store has it.
The **cluster** is the one that the node belongs to, once that has one (`vmq_cluster.rollcall`).
"""

from typing import TYPE_CHECKING, Final

import msgspec

from vmq_cluster.clocks import FAR_AHEAD
from vmq_cluster.errors import ClusterError, StorageError
from vmq_cluster.messages import MAX_NAME, Name, Number, Positive
from vmq_cluster.storage import Transaction

if TYPE_CHECKING:
    from random import Random

_KEY: Final = b"i"
#: The low bits of an incarnation are random; those above are milliseconds, so that it rises.
RANDOM_BITS: Final = 20
_CLUSTER_BITS: Final = 62


class _Stored(msgspec.Struct, array_like=True):
    """What is on disk."""

    name: Name
    incarnation: Positive
    epoch: Positive
    #: Which boot of the machine; empty: unknown.
    boot: bytes
    #: Whether the node was stopped, so that nothing is missing.
    clean: bool
    #: 0: the record is of a version that had none.
    store: Number = 0
    cluster: Number = 0
    former: Number = 0


class Identity:
    """The identity of a running node, always as it is on disk."""

    def __init__(
        self, transaction: Transaction, name: str, boot: bytes, wall: int, random: "Random"
    ) -> None:
        """Begins a life: `boot` tells boots of the machine apart, `wall` is the time in milliseconds.

        Raises:
            ClusterError: the name is none, or the storage is another node's.
        """
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise ClusterError(f"a node cannot have the name {name!r}")
        self._transaction = transaction
        self._random = random
        self._boot = boot
        self.name = name
        #: 0: none yet.
        self.cluster = 0
        #: The incarnation that this one has followed by a start, and no other node has met this one since; 0: none. Who
        #: was taken out in that one does not know, and is out.
        self.former = 0
        #: No incarnation and no store is higher: what says so is made up, or of a clock that was far ahead.
        self.highest: Final = (wall + FAR_AHEAD) << RANDOM_BITS
        stored = self._load()
        #: Whether the clock was so far ahead in the last life that others cannot have heard this node.
        self.was_ahead = stored is not None and stored.epoch > wall + FAR_AHEAD
        if stored is None:
            self.epoch = max(wall, 1)
            self.incarnation = self.store = self._fresh(wall, 0)
        else:
            if stored.name != name:
                raise ClusterError(
                    f"the storage is that of node {stored.name!r}, not of {name!r}: a node keeps its name, and another "
                    "one needs a data directory of its own"
                )
            self.epoch = max(wall, 1 if self.was_ahead else stored.epoch + 1)
            self.store = stored.store or stored.incarnation
            self.cluster = stored.cluster
            self.former = stored.former
            intact = stored.clean or (boot != b"" and boot == stored.boot)
            if max(stored.incarnation, self.store) > self.highest:
                self.incarnation = self._fresh(wall, 0)
                self.store = min(self.store, self.incarnation)
            else:
                self.incarnation = stored.incarnation
                if not intact:
                    self.incarnation = self._fresh(wall, stored.incarnation)
                    self.former = self.former or stored.incarnation
        self._save(clean=False)

    def renew(self, wall: int, above: int) -> None:
        """Goes on under a new incarnation, above one that others know."""
        self.incarnation = self._fresh(wall, max(above, self.incarnation))
        self.former = 0
        self._save(clean=False)

    def met(self) -> None:
        """Another node knows this incarnation as that of a member."""
        if self.former:
            self.former = 0
            self._save(clean=False)

    def succeed(self, store: int) -> None:
        """This store, which is new, comes after one that had the name before."""
        self.store = self._fresh(0, store)
        self._save(clean=False)

    def belong_to(self, cluster: int) -> None:
        """The node's cluster is this one; 0: one that is founded herewith."""
        self.cluster = cluster or self._random.getrandbits(_CLUSTER_BITS) + 1
        self._save(clean=False)

    def outlive(self, epoch: int) -> None:
        """Goes on under an epoch above one that others have met."""
        self.epoch = max(self.epoch, epoch + 1)
        self._save(clean=False)

    def stopped(self) -> None:
        """Nothing is written any more: the next life may go on with this incarnation."""
        self._save(clean=True)

    def _fresh(self, wall: int, above: int) -> int:
        noise = self._random.getrandbits(RANDOM_BITS)
        return max(wall << RANDOM_BITS, above + 1) + noise + 1

    def _load(self) -> _Stored | None:
        raw = self._transaction.get(_KEY)
        if raw is None:
            return None
        try:
            return msgspec.msgpack.decode(raw, type=_Stored)
        except msgspec.DecodeError as error:
            raise StorageError(f"the record of the node's identity is damaged: {error}") from None

    def _save(self, clean: bool) -> None:
        lives = self.incarnation, self.epoch, self._boot
        stored = _Stored(self.name, *lives, clean, self.store, self.cluster, self.former)
        self._transaction.put(_KEY, msgspec.msgpack.encode(stored))
        self._transaction.sync()
