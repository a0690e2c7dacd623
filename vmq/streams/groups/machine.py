"""Who of a group has which partition: the coordinator, as a pure machine.

One member has a partition at a time. Members keep what they have as far as all have their fair share (sticky), and a
partition that has to move leaves its member first: what that has sent is acknowledged, or given up, before another one
begins (cooperative). A partition without a member has one at once, if there is somebody. Whenever a partition goes to a
member it gets another generation; who names an older one is fenced.
"""

from collections.abc import Iterator
from typing import NamedTuple


class GivePartition(NamedTuple):
    """A member has a partition from now on, in a generation."""

    member: str
    partition: int
    generation: int


class TakePartition(NamedTuple):
    """A member is to give a partition back (`GroupMachine.release`), once what it has sent is settled."""

    member: str
    partition: int


class LosePartition(NamedTuple):
    """A member has a partition no more, and what it does for it counts for nothing."""

    member: str
    partition: int


Effect = GivePartition | TakePartition | LosePartition


class PartitionHold(NamedTuple):
    """Who has a partition, in which generation, and whether he is to give it back."""

    member: str
    generation: int
    is_leaving: bool = False


class GroupMachine:
    """The coordinator of one group.

    Args:
        partitions: of its stream.
        generation: the last one that was given out before.
    """

    def __init__(self, partitions: int, generation: int = 0) -> None:
        self.partitions = partitions
        self.generation = generation
        #: In the order of their joining; True: it has not acknowledged for long, and gets nothing.
        self.members: dict[str, bool] = {}
        self.holds: dict[int, PartitionHold] = {}
        #: Others may have partitions of which this coordinator has not heard: it gives out none.
        self.is_frozen = False

    # What happens

    def join(self, member: str) -> list[Effect]:
        """A member has come."""
        self.members.setdefault(member, False)
        return list(self._balance())

    def leave(self, member: str) -> list[Effect]:
        """A member is gone, with all that it has."""
        self.members.pop(member, None)
        self._free(member)
        return list(self._balance())

    def stall(self, member: str) -> list[Effect]:
        """A member does not acknowledge: others have its partitions at once."""
        if member in self.members:
            self.members[member] = True
            self._free(member)
        return list(self._balance())

    def recover(self, member: str) -> list[Effect]:
        """A stalled member has acknowledged."""
        if member in self.members:
            self.members[member] = False
        return list(self._balance())

    def release(self, member: str, partition: int, generation: int) -> list[Effect]:
        """A member has given a partition back."""
        if self.may_commit(member, partition, generation):
            del self.holds[partition]
        return list(self._balance())

    def adopt(self, member: str, partition: int, generation: int) -> None:
        """A member has a partition of an earlier coordinator."""
        hold = self.holds.get(partition)
        if member in self.members and (hold is None or hold.generation < generation):
            self.holds[partition] = PartitionHold(member, generation)

    def thaw(self) -> list[Effect]:
        """Whoever has a partition has said so by now."""
        self.is_frozen = False
        return list(self._balance())

    def grow(self, partitions: int) -> list[Effect]:
        """The stream has more partitions."""
        self.partitions = max(self.partitions, partitions)
        return list(self._balance())

    # What holds

    def may_commit(self, member: str, partition: int, generation: int) -> bool:
        """Whether a member has a partition in this generation; else it is fenced."""
        hold = self.holds.get(partition)
        return hold is not None and hold[:2] == (member, generation)

    def of(self, member: str) -> list[int]:
        """The partitions that a member has."""
        return sorted(number for number, hold in self.holds.items() if hold.member == member)

    def standing_by(self) -> list[str]:
        """The members that have nothing."""
        holders = {hold.member for hold in self.holds.values()}
        return [member for member in self.members if member not in holders]

    # How

    def _free(self, member: str) -> None:
        for number in self.of(member):
            del self.holds[number]

    def _balance(self) -> Iterator[Effect]:
        """Gives out what nobody has, and takes back what is more than a fair share."""
        active = [member for member, is_stalled in self.members.items() if not is_stalled]
        if not active or self.is_frozen:
            return
        share, more = divmod(self.partitions, len(active))
        stays: dict[str, list[int]] = {member: [] for member in active}
        for number, hold in sorted(self.holds.items()):
            if not hold.is_leaving:
                stays[hold.member].append(number)
        # Who has most keeps the one more that some have.
        order = sorted(active, key=lambda member: -len(stays[member]))
        fair = {member: share + (place < more) for place, member in enumerate(order)}
        for member in active:
            for number in stays[member][fair[member] :]:
                self.holds[number] = self.holds[number]._replace(is_leaving=True)
                yield TakePartition(member, number)
        room = {member: fair[member] - len(stays[member][: fair[member]]) for member in active}
        for number in range(self.partitions):
            if number in self.holds:
                continue
            member = max(active, key=lambda each: room[each])
            if room[member] <= 0:
                return  # what is on its way back is somebody's fair share
            room[member] -= 1
            self.generation += 1
            self.holds[number] = PartitionHold(member, self.generation)
            yield GivePartition(member, number, self.generation)
