"""What one node's members of a group have, where a coordinator elsewhere decides that: the node's side, as a machine.

It stands where `vmq.streams.groups.machine` does on a broker of its own, and is asked the same. What it is told is
handed to the coordinator with the next beat; what follows from that comes with a grant, or does not come.

The node's members send only while it has a lease. It counts from when the beat left that it answers, by this node's
clock, and ends before the coordinator gives what they have to others: bytes in a socket cannot be taken back.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Final

from vmq.streams.groups.machine import (
    Effect,
    GivePartition,
    LosePartition,
    PartitionHold,
    TakePartition,
)
from vmq.streams.groups.records import GroupKey, pairs
from vmq.streams.groups.steps import MOST_STEPS, PublishStep, StepMove, StepNumber
from vmq.streams.groups.talk import GivenPartition, Grant, GroupBeat, GroupHold, SeenMember

#: Seconds that a lease holds, and between two beats.
LEASE: Final = 5.0
BEAT: Final = 1.0
#: Beats of which an answer may still come.
_SENT: Final = 20


class GroupShare:
    """One node's part of a group.

    Args:
        key: which group.
        boot: the life of this node; higher than that of each earlier one.
        store: what keeps its members' steps.
        numbers: of steps; no two of a life are alike.
    """

    def __init__(
        self, key: GroupKey, boot: int, store: str = "", numbers: Iterator[int] | None = None
    ) -> None:
        self.key = key
        self.boot = boot
        self.store = store
        self.numbers = count(1) if numbers is None else numbers
        self.last_step: StepNumber = boot, 0
        #: What members publish with commits, until that is done; and what was decided of it.
        self.steps: dict[tuple[str, StepNumber], PublishStep] = {}
        #: Those of them whose messages are not on the disk yet: nobody is asked about these, nor about later ones.
        self.unready: set[tuple[str, StepNumber]] = set()
        self.decided: dict[tuple[str, StepNumber], bool] = {}
        self.partitions = 1
        #: Which stream of its name it reads, and where a group begins that is new.
        self.stream = ""
        self.starts: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.deliveries: dict[int, int] = {}
        #: True: it is stalled.
        self.members: dict[str, bool] = {}
        self.holds: dict[int, PartitionHold] = {}
        self.released: dict[int, GroupHold] = {}
        #: In which generation a partition was given back last: that is over, whatever a coordinator hears of it late.
        self.given_back: dict[int, int] = {}
        #: In which generation a partition was lost: a coordinator that heard of it too late gives it once more.
        self.lost: dict[int, int] = {}
        self.lease_until = float("-inf")
        self.serial = 0
        self.number = 0
        #: The last beat that was answered.
        self.answered = 0
        #: When beats left, by their numbers.
        self.sent: dict[int, float] = {}
        #: The coordinator is to hear at once.
        self.is_dirty = False
        #: The last beat that said that nobody is here was answered.
        self.is_over = False

    def begin(self, stream: str, starts: Mapping[int, int]) -> None:
        """Somebody is to join who reads this stream; a new group begins there.

        Where members were in another one of its name, which was deleted, says nothing of this one.
        """
        if stream != self.stream:
            for each in (self.positions, self.deliveries, self.holds, self.released):
                each.clear()
            self.stream = stream
        self.starts = dict(starts)

    # What happens here, as `GroupMachine` has it; nothing follows from it at once

    def join(self, member: str) -> list[Effect]:
        """A member has come."""
        self.members.setdefault(member, False)
        self.is_dirty = True
        self.is_over = False
        return []

    def leave(self, member: str) -> list[Effect]:
        """A member is gone, with all that it has."""
        self.members.pop(member, None)
        return self._give_back(member)

    def stall(self, member: str) -> list[Effect]:
        """A member does not acknowledge."""
        if member in self.members:
            self.members[member] = True
        return self._give_back(member)

    def recover(self, member: str) -> list[Effect]:
        """A stalled member has acknowledged."""
        if member in self.members:
            self.members[member] = False
        self.is_dirty = True
        return []

    def release(self, member: str, partition: int, generation: int) -> list[Effect]:
        """A member has given a partition back."""
        hold = self.holds.get(partition)
        if hold is not None and hold[:2] == (member, generation):
            self._release(partition)
        return []

    def grow(self, partitions: int) -> list[Effect]:
        """The stream has more partitions."""
        self.partitions = max(self.partitions, partitions)
        self.is_dirty = True
        return []

    def of(self, member: str) -> list[int]:
        """The partitions that a member has."""
        return sorted(number for number, hold in self.holds.items() if hold.member == member)

    def standing_by(self) -> list[str]:
        """The members that have nothing, as far as is known here: whoever has just come may get something yet."""
        return []

    def _give_back(self, member: str) -> list[Effect]:
        for number in self.of(member):
            self._release(number)
        self.is_dirty = True
        return []

    def _release(self, partition: int) -> None:
        hold = self.holds.pop(partition)
        self.given_back[partition] = hold.generation
        self.released[partition] = self._hold(partition, hold, self.positions, self.deliveries)
        self.is_dirty = True

    def _hold(
        self,
        partition: int,
        hold: PartitionHold,
        positions: Mapping[int, int],
        deliveries: Mapping[int, int],
    ) -> GroupHold:
        position, count = positions.get(partition, 0), deliveries.get(partition, 0)
        return GroupHold(partition, hold.generation, hold.member, position, count)

    # Commits that publish (`vmq.streams.groups.steps`)

    def new_step(
        self,
        member: str,
        moves: Sequence[StepMove],
        takes_over: tuple[str, StepNumber] | None = None,
    ) -> PublishStep:
        """A step that the coordinator hears of by `ask`, once its messages are on the disk."""
        self.last_step = self.boot, next(self.numbers)
        step = PublishStep(self.store, self.last_step, member, list(moves), takes_over)
        self.steps[step.store, step.number] = step
        self.unready.add((step.store, step.number))
        return step

    def ask(self, step: PublishStep) -> None:
        """The coordinator is to decide on a step, of this life or an earlier one."""
        self.steps[step.store, step.number] = step
        self.unready.discard((step.store, step.number))
        self.is_dirty = True
        self.is_over = False

    def finish(self, step: PublishStep) -> None:
        """It is refused, or published."""
        self.steps.pop((step.store, step.number), None)
        self.unready.discard((step.store, step.number))
        self.decided.pop((step.store, step.number), None)
        self.is_dirty = True

    def _asked(self) -> Iterator[PublishStep]:
        for name, step in sorted(self.steps.items()):
            if name in self.unready:
                return
            yield step

    def _oldest(self) -> StepNumber:
        own = [number for store, number in self.steps if store == self.store]
        boot, number = self.last_step
        return min(own, default=(boot, number + 1))

    # The coordinator

    def beat(
        self,
        now: float,
        positions: Mapping[int, int],
        deliveries: Mapping[int, int],
        clients: Mapping[str, str],
    ) -> GroupBeat:
        """What the coordinator is told. `clients`: of the members."""
        self.is_dirty = False
        self.number += 1
        self.sent[self.number] = now
        for number in list(self.sent)[:-_SENT]:
            del self.sent[number]
        members = [
            SeenMember(name, clients.get(name, ""), stalled)
            for name, stalled in self.members.items()
        ]
        holds = [
            self._hold(number, hold, positions, deliveries) for number, hold in self.holds.items()
        ]
        return GroupBeat(
            self.number,
            self.boot,
            *self.key,
            self.partitions,
            pairs(self.starts),
            members,
            holds,
            list(self.released.values()),
            self.store,
            list(islice(self._asked(), MOST_STEPS)),
            self._oldest(),
            self.stream,
        )

    def on_grant(self, grant: Grant, now: float) -> list[Effect]:
        """The coordinator has answered, or says what has changed."""
        if grant.serial <= self.serial:
            return []
        self.serial = grant.serial
        self.answered = max(self.answered, grant.number)
        sent = self.sent.pop(grant.number, None)
        if sent is not None:
            self.lease_until = max(self.lease_until, sent + LEASE)
            is_last = grant.number == self.number and not self.is_dirty
            self.is_over = is_last and not self.members and not self.steps
        for step in grant.steps:
            if (step.store, step.number) in self.steps:
                self.decided[step.store, step.number] = step.is_accepted
        given = {each.partition: each for each in grant.given}
        self.released = {
            number: each
            for number, each in self.released.items()
            if number in given and given[number].generation == each.generation
        }
        effects: list[Effect] = []
        for number, each in given.items():
            if number not in self.released and each.generation <= self.given_back.get(number, 0):
                hold = PartitionHold(each.member, each.generation)
                self.released[number] = self._hold(number, hold, self.positions, self.deliveries)
                self.is_dirty = True
        for number, hold in list(self.holds.items()):
            if number not in given or given[number].generation != hold.generation:
                del self.holds[number]
                self.lost[number] = hold.generation
                effects.append(LosePartition(hold.member, number))
        if now < self.lease_until:
            for number, each in given.items():
                if number not in self.released:
                    effects += self._take(number, PartitionHold(each.member, each.generation), each)
        return effects

    def _take(self, number: int, new: PartitionHold, given: GivenPartition) -> list[Effect]:
        hold = self.holds.get(number)
        if hold is None:
            start = given.start
            if self.lost.pop(number, 0) == given.generation:
                start = max(start, self.positions.get(number, 0))  # nobody else had it meanwhile
            self.positions[number] = start
            if given.deliveries:
                self.deliveries[number] = given.deliveries
            else:
                self.deliveries.pop(number, None)
            self.holds[number] = new
            if self.members.get(new.member, True):
                self._release(number)  # it is gone, or stalled: somebody else is to have it
                return []
            gives = GivePartition(new.member, number, new.generation)
            if not given.is_leaving:
                return [gives]
            self.holds[number] = new._replace(is_leaving=True)
            return [gives, TakePartition(new.member, number)]
        if given.is_leaving and not hold.is_leaving:
            self.holds[number] = hold._replace(is_leaving=True)
            return [TakePartition(hold.member, number)]
        return []

    def expire(self, now: float) -> list[Effect]:
        """Without a lease the members have nothing, and nothing to give back."""
        if now < self.lease_until:
            return []
        self.released.clear()
        self.lost |= {number: hold.generation for number, hold in self.holds.items()}
        effects: list[Effect] = [
            LosePartition(hold.member, number) for number, hold in self.holds.items()
        ]
        self.holds.clear()
        return effects
