"""A consumer group in this broker: gives its members partitions, and keeps how far it is.

The coordinator is `vmq.streams.groups.machine`; in a cluster it is elsewhere, and this broker has a part of the group
(`vmq.streams.groups.share`). A member has partitions, which it reads from where the group is in them. What it has not
acknowledged when a partition leaves it, the next one gets again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from vmq.streams.catalog import Stream
from vmq.streams.groups.machine import Effect, GivePartition, GroupMachine, LosePartition
from vmq.streams.groups.share import GroupShare
from vmq.streams.reader_places import NOWHERE, CursorKey, Place
from vmq.streams.replay.group_request import GroupRequest

log = logging.getLogger("vmq.streams")

#: Seconds without a PUBACK after which a member is stalled, and that one has to settle what it gives back.
ACK_TIMEOUT: Final = 60.0
SETTLING: Final = 5.0
#: How often a row is given to members before it is passed over.
MAX_DELIVERIES: Final = 20


class GivenBack(NamedTuple):
    """How far a member came in a partition, and the first row that it got and did not acknowledge (-1: none)."""

    done: int
    waiting: int = -1


class PartitionMember(Protocol):
    """A member, as its group knows it: a client of MQTT (`vmq.streams.replay.member`), or a program (`.program`)."""

    name: str
    generations: dict[int, int]
    #: Until when (monotonic) it has to settle what it is to give back.
    leaving: dict[int, float]
    #: Since when it has acknowledged nothing, while something waits for that.
    quiet_since: float
    is_stalled: bool

    @property
    def client_id(self) -> str:
        """Who it is, for people."""

    def give(self, partition: int, start: int, generation: int) -> None:
        """It has a partition from now on."""

    def take_away(self, partition: int, until: float) -> None:
        """It is to give a partition back: nothing more of it goes out."""

    def lose(self, partition: int) -> GivenBack:
        """It has a partition no more."""

    def is_waiting(self, partition: int | None = None) -> bool:
        """Whether it has something, of a partition or at all, that it has not acknowledged."""

    def may_give_back(self, partition: int) -> bool:
        """Whether it can lose a partition now."""

    def positions(self) -> Mapping[int, int]:
        """How far it is."""

    def ends(self) -> Mapping[int, int]:
        """Where its partitions end, as far as it has looked."""

    def moved(self) -> int:
        """Rows by which it is further than at `settle`."""

    def settle(self) -> None:
        """Where it is is being kept."""

    def end(self, why: str) -> None:
        """It cannot be a member any more."""


class ConsumerGroup:
    """One group that has members.

    Args:
        request: what its members asked for.
        stream: what they read.
        place: where it is, as far as this broker decides that; else this broker's part of it.
        clock: monotonic seconds.
        on_poison: told of a row that is passed over: partition and offset.
    """

    def __init__(
        self,
        request: GroupRequest,
        stream: Stream,
        place: Place | GroupShare,
        clock: Callable[[], float],
        on_poison: "Callable[[ConsumerGroup, int, int], None]",
    ) -> None:
        self.request = request
        self.stream = stream
        self.clock = clock
        self.on_poison = on_poison
        self.members: dict[str, PartitionMember] = {}
        self.kept = NOWHERE
        self.share: GroupShare | None = None
        self.machine: GroupMachine | GroupShare
        if isinstance(place, GroupShare):
            self.machine = self.share = place
            place.grow(len(stream.partitions))
            self.positions, self.deliveries = place.positions, place.deliveries
        else:
            self.machine = GroupMachine(len(stream.partitions))
            self.positions, self.deliveries = dict(place.positions), dict(place.deliveries)
            self.kept = place
        #: Rows by which members moved before they went.
        self.moved_before = 0

    @property
    def key(self) -> CursorKey | None:
        """Under what this broker keeps its place; None: the coordinator does, or its stream was deleted."""
        return self.request.key() if self.share is None and not self.stream.gone else None

    # Members come and go

    def join(self, member: PartitionMember) -> None:
        """A client has subscribed."""
        self.members[member.name] = member
        self.obey(self.machine.join(member.name))
        if member.name in self.machine.standing_by():
            text = "group=%s stream=%s: client=%s stands by, each partition has a member"
            log.info(text, self.request.group, self.stream.name, member.client_id)

    def leave(self, member: PartitionMember) -> None:
        """It is gone: others have at once what it had."""
        for number in self.machine.of(member.name):
            self.take_back(number, member.lose(number))
        del self.members[member.name]
        self.obey(self.machine.leave(member.name))

    def obey(self, effects: Iterable[Effect]) -> None:
        """Does what the coordinator says."""
        for effect in effects:
            member = self.members[effect.member]
            if isinstance(effect, LosePartition):
                self.positions[effect.partition] = member.lose(effect.partition).done
            elif isinstance(effect, GivePartition):
                start = self.positions.setdefault(effect.partition, 0)
                member.give(effect.partition, start, effect.generation)
            else:
                member.take_away(effect.partition, self.clock() + SETTLING)
        for member in list(self.members.values()):
            self.release_settled(member)

    def release_settled(self, member: PartitionMember) -> None:
        """What a member is to give back goes to others once it has settled it, or its time is up."""
        now = self.clock()
        effects: list[Effect] = []
        for number, until in list(member.leaving.items()):
            if (now < until and member.is_waiting(number)) or not member.may_give_back(number):
                continue
            generation = member.generations[number]
            self.take_back(number, member.lose(number))
            effects += self.machine.release(member.name, number, generation)
        if effects:
            self.obey(effects)

    def take_back(self, number: int, given: GivenBack) -> None:
        """A partition has left its member."""
        before = self.positions.get(number, 0)
        self.positions[number] = given.done
        self.moved_before += given.done - before
        if given.done > before:
            self.deliveries.pop(number, None)
        if given.waiting < 0:
            return
        count = self.deliveries[number] = self.deliveries.get(number, 0) + 1
        if count >= MAX_DELIVERIES:
            del self.deliveries[number]
            self.positions[number] = given.waiting + 1
            self.on_poison(self, number, given.waiting)

    # Time

    def look(self) -> None:
        """To be called every second or so."""
        now = self.clock()
        if len(self.stream.partitions) > self.machine.partitions:
            self.obey(self.machine.grow(len(self.stream.partitions)))
        for member in list(self.members.values()):
            self.release_settled(member)
            if member.is_stalled or not member.is_waiting():
                member.quiet_since = now
            elif now - member.quiet_since > ACK_TIMEOUT:
                self.stall(member)

    def stall(self, member: PartitionMember) -> None:
        """A member acknowledges nothing: others have its partitions until it does."""
        text = "group=%s stream=%s: client=%s has acknowledged nothing for %d s, others have its partitions"
        log.warning(text, self.request.group, self.stream.name, member.client_id, ACK_TIMEOUT)
        for number in self.machine.of(member.name):
            self.take_back(number, member.lose(number))
        member.is_stalled = True
        self.obey(self.machine.stall(member.name))

    def on_acknowledged(self, member: PartitionMember) -> None:
        """A member has acknowledged something, of before or of now."""
        member.quiet_since = self.clock()
        if member.is_stalled:
            member.is_stalled = False
            self.obey(self.machine.recover(member.name))
        elif member.leaving:
            self.release_settled(member)

    # In a cluster (`vmq.streams.groups.port`)

    def may_send(self) -> bool:
        """Whether its members may send now: in a cluster while this node has a lease."""
        share = self.share
        if share is None or self.clock() < share.lease_until:
            return True
        self.obey(share.expire(self.clock()))
        return False

    def progress(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        return self.place()

    def clients(self) -> dict[str, str]:
        return {name: member.client_id for name, member in self.members.items()}

    def refuse(self, why: str) -> None:
        for member in list(self.members.values()):
            member.end(why)

    # How far it is

    def place(self) -> Place:
        positions = dict(self.positions)
        for member in self.members.values():
            positions |= member.positions()
        return Place(positions, dict(self.deliveries))

    def moved(self) -> int:
        return self.moved_before + sum(each.moved() for each in self.members.values())

    def settle(self) -> None:
        """Its place is being kept."""
        self.moved_before = 0
        for member in self.members.values():
            member.settle()

    def has_lost(self, partition: int, generation: int) -> bool:
        """Whether what was done in a generation counts for nothing: the coordinator has the partition elsewhere."""
        return self.share is not None and self.share.lost.get(partition) == generation

    def lag(self) -> dict[int, int]:
        """By partition: rows that are committed and not acknowledged; in a cluster of those that members here have."""
        positions = self.place().positions
        if self.share is not None:
            ends: dict[int, int] = {}
            for member in self.members.values():
                ends |= member.ends()
            return {
                number: max(0, ends.get(number, 0) - positions.get(number, 0))
                for number in self.share.holds
            }
        return {
            each.number: max(0, each.end - max(positions.get(each.number, 0), each.earliest))
            for each in self.stream.partitions
        }
