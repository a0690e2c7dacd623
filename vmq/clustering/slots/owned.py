"""What an owner has: a slot's state in a lineage, and the order in which it becomes safe."""

from collections import deque
from collections.abc import Callable

from vmq.clustering.messages.slots import SlotView
from vmq.clustering.slots.copies import RecentKeys, RecordSet, StoredRuns
from vmq.clustering.slots.flow import FlowRun
from vmq.clustering.slots.followers import FollowerSet
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.records import take_changes
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import Lineage


class OwnedSlot:
    """One slot in one lineage, which is of this incarnation.

    What is written is **safe** when it is on this disk and on every follower's; where nobody is in reach who could
    follow, what there is counts.

    Args:
        disk: the records of the state, which are whole.
    """

    def __init__(
        self, here: LocalNode, slot: int, view: SlotView, state: SlotState, disk: RecordSet
    ) -> None:
        self.here = here
        self.slot = slot
        self.view = view
        self.state = state
        state.limits = here.limits
        self.disk = disk
        #: That of the last set of records of the slot.
        self.last_number = disk.number
        base = state.lineage, state.version
        self.followers = FollowerSet(here, slot, base, disk.recent.keys())
        disk.recent = RecentKeys()
        state.reader = StoredRuns(here.effects, disk)
        state.begin(view.lineage)
        #: Versions and the commits of this disk with them.
        self._commits: deque[tuple[int, int]] = deque()
        self._stored = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        #: What follows when a client has all of a run, for as long as somebody has patience.
        self._awaited: dict[FlowRun, Callable[[], None]] = {}
        #: The version when it was last looked whether followers are behind.
        self.looked_version: int = 0

    #: Who has no fork, and what it has of the slot.
    cleared: dict[int, tuple[Lineage, int]]

    def serves(self, store: int) -> bool:
        """Whether it takes anything that comes by way of a store."""
        raise NotImplementedError

    def has_heard(self, stores: list[int]) -> bool:
        """Whether each of these has handed in what it has."""
        return all(each in self.cleared for each in stores)

    def has_all_forks(self) -> bool:
        """Whether every member has handed in what it has, and accepted this lineage."""
        return len(self.cleared) == len(self.here.reach.peers)

    def heirs(self) -> list[int]:
        """Who could own it when this node leaves: nodes of other hosts before those of its own."""
        fit = self.here.reach.fit()
        return fit if fit or not self.here.leaves_host else self.here.reach.heirs()

    def when_safe(self, action: Callable[[], None]) -> None:
        """Does something when all that was changed so far is safe; never if the lineage ends before."""
        self._waiting.append((self.version_now(), action))

    def when_had(self, run: FlowRun, action: Callable[[], None]) -> None:
        """Does something when a client has all of a run, or it is safe; never if the lineage ends before.

        What nobody lacks any more needs not be safe: with the node of its publisher and client nothing is lost that
        anybody has not. Most is acknowledged within milliseconds, and then it is in no record, on no disk.
        """
        run.is_awaited = True
        self._awaited[run] = action

    def awaits(self) -> bool:
        """Whether there are such runs."""
        return bool(self._awaited)

    def awaited(self) -> int:
        """Messages of such runs that clients do not have yet."""
        return sum([run.count - run.done for run in self._awaited])

    def are_far(self) -> bool:
        """Whether all of these clients are connected elsewhere."""
        return all(run.front != self.here.store for run in self._awaited)

    def hurry(self) -> None:
        """Clients take too long: all of it is to be safe."""
        awaited, self._awaited = self._awaited, {}
        for action in awaited.values():
            self.when_safe(action)

    def tell_had(self) -> None:
        """Does what follows when clients have what was awaited."""
        if self.state.had:
            had, self.state.had = self.state.had, []
            for run in had:
                action = self._awaited.pop(run, None)
                if action is not None:
                    action()

    def version_now(self) -> int:
        """The version that has all that was changed so far."""
        return self.state.version + 1 if self.state.has_changed() else self.state.version

    def safe_version(self) -> int:
        """The version up to which everything is safe; -1: a follower is missing that there could be."""
        followers = self.view.followers
        if not followers:
            reach = self.here.reach
            wanted = self.here.replicas > 1 and (reach.fit() or not reach.is_settled())
            return -1 if wanted else self._stored
        return min(self._stored, self.followers.confirmed(followers))

    def waits(self) -> bool:
        """Whether something is not safe yet that somebody waits for."""
        return bool(self._waiting)

    def release(self, is_due: bool = True) -> None:
        """The turn is over: what it changed becomes a version, and what waited for safe ones is done.

        What is not due, and nobody waits for, becomes one later, with what is.
        """
        while True:
            if is_due or (self._waiting and self._waiting[-1][0] > self.state.version):
                self.publish()
            is_due = False
            while self._commits and self._commits[0][1] <= self.here.effects.stored:
                self._stored = self._commits.popleft()[0]
            safe = self.safe_version()
            self.followers.are_safe(safe)
            if not self._waiting or self._waiting[0][0] > safe:
                return
            while self._waiting and self._waiting[0][0] <= safe:
                self._waiting.popleft()[1]()

    def publish(self) -> None:
        """Writes what has changed as one version, to the disk and to the followers."""
        if not self.state.has_changed():
            return
        self.state.close()
        records = take_changes(self.state)
        for key, value in records:
            self.disk.put(self.here.effects, key, value)
        self.disk.lineage, self.disk.version = self.state.lineage, self.state.version
        self._commits.append((self.state.version, self.here.effects.commit()))
        self.followers.publish(self.view, self.state.version, records)
