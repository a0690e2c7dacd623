"""What all machines of one node share: its identity, its clock, who is in reach, and where effects go."""

from collections.abc import Callable

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.flow import Given
from vmq.clustering.slots.limits import Limits
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import Incarnation, Lineage, store_of
from vmq_cluster.storage import Readable


class LocalFront:
    """The front of this node, for the owners of its slots; this one has no connections."""

    def take_messages(
        self, connection: int, lineage: Lineage, link: int, steps: list[Given]
    ) -> bool:
        """Messages for a connection, and nothing else; False: it is not attached so, as far as it knows."""
        return False


class LocalNode:
    """This node, for its machines.

    Args:
        incarnation: its store in this life of the broker.
        reach: its failure detector.
        replicas: how many hosts are to have each slot.
        window: how many messages may be under way to a client.
        part_bytes: about how large a part of a state is that is sent.
        disk: as in `Effects`.
        ahead: about how many messages of a client that is connected are in memory before they are sent.
    """

    def __init__(
        self,
        incarnation: Incarnation,
        reach: Reach,
        replicas: int = 2,
        window: int = 20,
        part_bytes: int = 1 << 16,
        disk: Readable | None = None,
        ahead: int = 64,
    ) -> None:
        self.incarnation = incarnation
        self.store = store_of(incarnation)
        self.reach = reach
        self.replicas = replicas
        self.limits = Limits(window)
        self.part_bytes = part_bytes
        self.ahead = ahead
        self.effects = Effects(disk)
        self.front = LocalFront()
        #: Milliseconds, by this node's own clock, which may go wrong.
        self.now: int = 0
        #: The greatest stamp that it knows of: a hybrid clock (Kulkarni et al. 2014). Messages carry it, so that what
        #: follows from what another node has stamped is stamped later, whatever the clocks say.
        self.clock: int = 0
        #: Messages that clients of this node have acknowledged in their turn.
        self.answered: int = 0
        #: Bytes of changes that its owners keep for followers.
        self.logged: int = 0
        #: Somebody wants to know of each message that is kept for a client who is away.
        self.tells_kept = False
        #: Another slot than this with connected members of a share group, or with any; -1: none is known.
        self.slot_for: Callable[[str, int, bool], int] = _no_slot
        #: Whether what concerns many slots goes on in this turn of the loop: it may go on in the next.
        self.has_time: Callable[[], bool] = _always
        #: It hands its slots over and gets no new ones.
        self.is_leaving = False
        #: Then nodes of its own host get them too: they stay.
        self.leaves_host = False

    def incarnation_of(self, store: int) -> Incarnation:
        """A store in the life that it has now, as far as this node knows; 0: it knows of none."""
        return self.incarnation if store == self.store else self.reach.incarnation(store)

    def is_there(self, incarnation: Incarnation) -> bool:
        """Whether a store is in reach, in the same life still."""
        store = store_of(incarnation)
        is_up = store == self.store or self.reach.is_up(store)
        return is_up and self.incarnation_of(store) == incarnation

    def time(self) -> int:
        """For stamps: this node's clock, but not behind others."""
        return max(self.now, self.clock)

    def agreed(self) -> int:
        """By which things expire: of the clocks in reach the middle one, of two the earlier.

        One clock that is hours ahead, here or elsewhere, ends nothing early then; stamps follow it (`time`).
        """
        clocks = sorted([self.now, *self.reach.clocks().values()])
        return clocks[(len(clocks) - 1) // 2]

    def heard_of(self, stamp: int) -> None:
        """Somebody has given this stamp."""
        self.clock = max(self.clock, stamp)

    def send(self, store: int, message: NodeMessage) -> None:
        """Sends a message, to this node itself too."""
        if store == self.store:
            self.effects.local.append(message)
        else:
            self.effects.send(store, message)


def _no_slot(group: str, but: int, is_any: bool) -> int:
    return -1


def _always() -> bool:
    return True
