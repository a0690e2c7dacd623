"""The coordinator of the groups of a cluster: the leader of their log, as a machine.

Nothing that it decides leaves it before an entry of the log is committed that it proposed after it had heard what it
decides from. So what it grants was granted while it led: another coordinator, elected later, waits for `WAIT` seconds
from its election before it gives anybody what it has not heard of, and every lease of an earlier one is over by then.
Who has what is in no entry: the members say so themselves to a new coordinator.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from vmq.streams.groups.deciding import decide_steps, place_before
from vmq.streams.groups.machine import Effect, GivePartition, GroupMachine, TakePartition
from vmq.streams.groups.records import (
    FRESH,
    KEPT,
    BeginAll,
    Confirm,
    EndAll,
    ForgetPlace,
    GroupKey,
    GroupPlace,
    GroupPlaces,
    PutPlace,
    Row,
    pairs,
    place_row,
)
from vmq.streams.groups.share import LEASE
from vmq.streams.groups.steps import DecidedStep, decided_of
from vmq.streams.groups.talk import (
    MOST_FOUND,
    Answer,
    AskGroups,
    ChangeGroup,
    FoundGroup,
    FoundGroups,
    GivenPartition,
    Grant,
    GroupBeat,
    GroupChanged,
    GroupHold,
    SeenMember,
)

#: Seconds after which a node that says nothing has no lease any more, though its clock be slower by a fifth.
WAIT: Final = 1.2 * LEASE
#: Groups, and numbers of partitions of all of them, that are kept.
MOST: Final = 10_000
MOST_NUMBERS: Final = 300_000
#: Beats that one entry answers, and places that it writes again.
_AT_ONCE: Final = 500
_AGAIN: Final = 500
#: Seconds between two looks at what nobody uses.
_SWEEP: Final = 600.0

Answers = list[tuple[str, Answer]]


class LedNode:
    """A node that has members of a group."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.number = 0
        self.heard = 0.0
        #: By the names that the machine knows.
        self.members: dict[str, SeenMember] = {}


class LedGroup:
    """A group that has members."""

    def __init__(self, machine: GroupMachine) -> None:
        self.machine = machine
        self.nodes: dict[str, LedNode] = {}
        #: The partitions of nodes that have changed.
        self.changed: set[str] = set()

    def obey(self, effects: list[Effect]) -> None:
        """Nodes are told by what their grants say; noted is whose do."""
        for effect in effects:
            if isinstance(effect, GivePartition | TakePartition):
                self.changed.add(node_of(effect.member))

    def drop(self, node: str) -> None:
        """A node's members are gone."""
        for member in self.nodes.pop(node).members:
            self.obey(self.machine.leave(member))


class GroupCoordinator:
    """All groups, as long as this node leads their log.

    Args:
        wall: milliseconds since 1970.
    """

    def __init__(self, wall: Callable[[], int]) -> None:
        self.wall = wall
        #: That in which this node leads; 0: it does not.
        self.term = 0
        self.kept = GroupPlaces()
        self.groups: dict[GroupKey, LedGroup] = {}
        self.frozen_until = 0.0
        #: Groups of which an earlier coordinator may have given something to somebody.
        self.old: set[GroupKey] = set()
        self.generation = 0
        self.serial = 0
        #: What was heard and is in no entry yet; then in the one that is under way.
        self.beats: dict[tuple[str, GroupKey], tuple[GroupBeat, float]] = {}
        self.changes: list[tuple[str, ChangeGroup]] = []
        self.under_way: _Entry | None = None
        #: What is still to be written again.
        self.again: list[GroupKey] | None = None
        self._begins = False
        self.swept = 0.0

    # Leading

    def lead(self, term: int, places: dict[GroupKey, GroupPlace], now: float) -> None:
        """This node leads the log, all of which up to here made these places."""
        self.resign()
        self.term = term
        self.kept = GroupPlaces(places)
        self.old = set(places)
        self.frozen_until = now + WAIT
        self.generation = self.serial = term << 32
        self.swept = now

    def resign(self) -> None:
        """It leads no more: nobody is answered."""
        self.term = 0
        self.groups.clear()
        self.beats.clear()
        self.changes.clear()
        self.under_way = self.again = None
        self.kept = GroupPlaces()

    # What is said

    def on_beat(self, node: str, beat: GroupBeat, now: float) -> None:
        """A node says what its members have."""
        if not self.term:
            return
        key = GroupKey(beat.group, beat.reads)
        before = self.beats.get((node, key))
        if before is None or (before[0].boot, before[0].number) < (beat.boot, beat.number):
            self.beats[node, key] = beat, now

    def on_change(self, node: str, change: ChangeGroup) -> None:
        """An operator wants a group elsewhere, or gone."""
        if self.term and len(self.changes) < MOST:
            self.changes.append((node, change))

    def on_ask(self, asked: AskGroups) -> Iterator[FoundGroups]:
        """Which groups there are, in parts."""
        if not self.term:
            return
        keys = sorted(key for key in self.kept.places if asked.group in ("", key.group))
        for at in range(0, len(keys) or 1, MOST_FOUND):
            found = [self._found(key) for key in keys[at : at + MOST_FOUND]]
            yield FoundGroups(asked.question, found, at + MOST_FOUND >= len(keys))

    def _found(self, key: GroupKey) -> FoundGroup:
        positions, stream = pairs(self.kept.places[key].positions), self.kept.places[key].stream
        group = self.groups.get(key)
        if group is None:
            return FoundGroup(*key, positions, stream=stream)
        members = {
            name: each for node in group.nodes.values() for name, each in node.members.items()
        }
        holders = [
            (number, members[hold.member].client)
            for number, hold in sorted(group.machine.holds.items())
        ]
        waiting = [members[name].client for name in group.machine.standing_by()]
        return FoundGroup(*key, positions, list(members.values()), holders, waiting, stream)

    def rewrite(self) -> None:
        """The log is long: all places are to be written again."""
        if self.term and self.again is None:
            self.again = list(self.kept.places)
            self._begins = True

    # Entries

    def is_due(self, now: float) -> bool:
        """Whether an entry is to be proposed."""
        if not self.term or self.under_way is not None:
            return False
        return bool(
            self.beats
            or self.changes
            or self.again is not None
            or now - self.swept >= _SWEEP
            or any(self._silent(group, now) for group in self.groups.values())
        )

    def propose(self, now: float) -> list[Row]:
        """The rows of an entry that is to be committed; then `committed` or `failed` follows."""
        beats = dict(islice(self.beats.items(), _AT_ONCE))
        entry = _Entry(now, beats, self.changes)
        self.beats = {each: beat for each, beat in self.beats.items() if each not in beats}
        self.changes = []
        self.under_way = entry
        rows = [Confirm(), *self._written_again()]
        for (node, key), (beat, _) in entry.beats.items():
            row = self._moved(node, key, beat, entry)
            if row is not None:
                rows.append(row)
        rows += self._changed(entry)
        if now - self.swept >= _SWEEP:
            self.swept = now
            oldest = self.wall() - KEPT
            unused = [key for key, place in self.kept.places.items() if place.used < oldest]
            rows += [ForgetPlace(*key) for key in unused if key not in self.groups]
        entry.rows = rows
        return rows

    def _written_again(self) -> Iterator[Row]:
        if self.again is None:
            return
        if self._begins:
            self._begins = False
            yield BeginAll()
        now, self.again = self.again[:_AGAIN], self.again[_AGAIN:]
        for key in now:
            place = self.kept.places.get(key)
            if place is not None:
                yield place_row(key, place)
        if not self.again:
            self.again = None
            yield EndAll()

    def _moved(self, node: str, key: GroupKey, beat: GroupBeat, entry: "_Entry") -> PutPlace | None:
        """Where a group is by what a node says; nothing new is no row."""
        known = entry.places.get(key) or self.kept.places.get(key)
        group = self.groups.get(key)
        others = group is not None and bool(group.nodes.keys() - {node})
        before, error = place_before(beat, known, others)
        if before is None:
            if not beat.members:
                return None
            error = self._no_room(beat)
        if error:
            entry.errors[node, key] = error
            return None
        if before is None:
            steps = {} if known is None else known.steps
            before = GroupPlace({}, {}, {}, -KEPT, steps, beat.stream)
            positions = dict(beat.starts)
            if known is not None:
                entry.anew.add(key)
        else:
            positions = dict(before.positions)
        deliveries, generations = dict(before.deliveries), dict(before.generations)
        for hold in (*beat.holds, *beat.released):
            number = hold.partition
            said = hold.generation, hold.position
            if said < (generations.get(number, 0), positions.get(number, 0)):
                continue  # it comes late
            if key not in entry.anew and self._counts(node, key, beat, hold, entry.at):
                positions[number], generations[number] = hold.position, hold.generation
                deliveries.pop(number, None)
                if hold.deliveries:
                    deliveries[number] = hold.deliveries
        numbers = positions, deliveries, generations
        stream = beat.stream or before.stream
        place = GroupPlace(*numbers, max(0, self.wall()), dict(before.steps), stream)
        if key in entry.anew or not self._may_be_others(key, entry.at):
            machine = None if group is None or key in entry.anew else group.machine
            decide_steps(beat, place, machine, lambda member: name_of(node, member))
        if place._replace(used=before.used) == before and place.used - before.used < FRESH:
            return None
        entry.places[key] = place
        return place_row(key, place)

    def _may_be_others(self, key: GroupKey, now: float) -> bool:
        """Whether partitions may be somebody's of whom this coordinator has not heard."""
        group = self.groups.get(key)
        if group is None:
            return key in self.old and now < self.frozen_until
        return group.machine.is_frozen

    def _no_room(self, beat: GroupBeat) -> str:
        """Why a group cannot begin, if so."""
        places = self.kept.places
        if (
            len(places) >= MOST
            or sum(len(each.positions) for each in places.values()) >= MOST_NUMBERS
        ):
            return (
                f"{len(places)} groups are kept already: vmq group delete those that nobody needs"
            )
        starts = {number for number, _ in beat.starts}
        missing = [str(each) for each in range(beat.partitions) if each not in starts]
        if missing:
            return f"partition {', '.join(missing[:10])} does not answer: a new group begins when all do"
        return ""

    def _counts(
        self, node: str, key: GroupKey, beat: GroupBeat, hold: GroupHold, now: float
    ) -> bool:
        """Whether a member has what it says that it has."""
        group = self.groups.get(key)
        member = name_of(node, hold.member)
        if group is None:
            return key in self.old and now < self.frozen_until
        known = group.nodes.get(node)
        if known is not None and (beat.boot, beat.number) < (known.boot, known.number):
            return False
        if group.machine.may_commit(member, hold.partition, hold.generation):
            return True
        other = group.machine.holds.get(hold.partition)
        is_later = other is None or other.generation < hold.generation
        return group.machine.is_frozen and is_later and hold.generation < self.term << 32

    def _changed(self, entry: "_Entry") -> Iterator[Row]:
        for node, change in entry.changes:
            key = GroupKey(change.group, change.reads)
            before = self.kept.places.get(key)
            error = ""
            if before is None:
                error = f"there is no group {change.group!r} that reads this"
            elif key in self.groups or any(
                key == each and beat.members for (_, each), (beat, _) in entry.beats.items()
            ):
                error = f"group {change.group!r} has members; accepted: when they have gone"
            elif change.positions is None:
                yield ForgetPlace(*key)
            else:
                place = before._replace(positions=dict(change.positions), deliveries={})
                stream = change.stream or before.stream
                yield place_row(key, place._replace(used=self.wall(), stream=stream))
            entry.answers.append((node, GroupChanged(change.question, error)))

    def _silent(self, group: LedGroup, now: float) -> list[str]:
        """The nodes whose leases are over."""
        return [name for name, node in group.nodes.items() if now - node.heard > WAIT]

    # What follows

    def failed(self) -> Answers:
        """The entry is not committed, as far as is known: nodes say all again."""
        entry, self.under_way = self.under_way, None
        if entry is None:
            return []
        text = "it is not known whether that was done: try again"
        return [(node, GroupChanged(each.question, text)) for node, each in entry.changes]

    def committed(self) -> Answers:
        """The entry is: what was said before it holds, and is answered."""
        entry, self.under_way = self.under_way, None
        if entry is None or not self.term:
            return []
        self.kept.apply(entry.rows)
        answers: Answers = list(entry.answers)
        for key in entry.anew:  # what members had in the stream that was deleted is nobody's
            self.old.discard(key)
            self._drop_group(key)
        numbers: dict[tuple[str, GroupKey], int] = {}
        for (node, key), (beat, heard) in entry.beats.items():
            if (node, key) in entry.errors or self._hear(node, key, beat, heard):
                numbers[node, key] = beat.number
        for key, group in list(self.groups.items()):
            self._settle(key, group, entry)
        for key, group in self.groups.items():
            for node in group.nodes:
                if (node, key) in numbers or node in group.changed:
                    number = numbers.pop((node, key), 0)
                    answers.append((node, self._grant(node, key, number, entry)))
            group.changed.clear()
        for (node, key), number in numbers.items():
            error = entry.errors.get((node, key), "")
            steps = self._decided(node, key, entry)
            answers.append((node, Grant(number, self._next_serial(), *key, [], error, steps)))
        for key in [key for key, group in self.groups.items() if not group.nodes]:
            self._drop_group(key)
        return answers

    def _drop_group(self, key: GroupKey) -> None:
        if (group := self.groups.pop(key, None)) is not None:
            self.generation = max(self.generation, group.machine.generation)

    def _hear(self, node: str, key: GroupKey, beat: GroupBeat, heard: float) -> bool:
        """A node's members are these, and have this; False: it says so late."""
        group = self.groups.get(key)
        if group is None:
            if not beat.members:
                return True
            group = self.groups[key] = LedGroup(GroupMachine(beat.partitions, self.generation))
            group.machine.is_frozen = key in self.old
        known = group.nodes.get(node)
        if known is not None and (beat.boot, beat.number) < (known.boot, known.number):
            return False
        if known is not None and known.boot < beat.boot:
            group.drop(node)  # what it had ended with its process
            known = None
        if known is None:
            known = group.nodes[node] = LedNode(beat.boot)
        known.number, known.heard = beat.number, heard
        self._hear_of_members(node, group, known, beat)
        group.obey(group.machine.grow(beat.partitions))
        if not known.members:
            del group.nodes[node]
        return True

    def _hear_of_members(self, node: str, group: LedGroup, known: LedNode, beat: GroupBeat) -> None:
        machine = group.machine
        before = known.members
        known.members = {name_of(node, each.name): each for each in beat.members}
        for name in known.members:
            if name not in before:
                group.obey(machine.join(name))
        if machine.is_frozen:
            for hold in beat.holds:
                machine.adopt(name_of(node, hold.member), hold.partition, hold.generation)
        for name, each in known.members.items():
            if each.is_stalled and not machine.members[name]:
                group.obey(machine.stall(name))
            elif machine.members[name] and not each.is_stalled:
                group.obey(machine.recover(name))
        for name in before:
            if name not in known.members:
                group.obey(machine.leave(name))
        for hold in beat.released:
            member = name_of(node, hold.member)
            if machine.may_commit(member, hold.partition, hold.generation):
                group.obey(machine.release(member, hold.partition, hold.generation))

    def _settle(self, key: GroupKey, group: LedGroup, entry: "_Entry") -> None:
        """Who was silent when the entry was proposed has nothing; who has not spoken up by then has nothing, either."""
        for node in self._silent(group, entry.at):
            group.drop(node)
        if group.machine.is_frozen and entry.at >= self.frozen_until:
            self.old.discard(key)
            group.obey(group.machine.thaw())

    def _grant(self, node: str, key: GroupKey, number: int, entry: "_Entry") -> Grant:
        place = self.kept.places.get(key) or GroupPlace({}, {}, {}, 0, {})
        given = [
            GivenPartition(
                partition,
                hold.generation,
                hold.member.partition("\0")[2],
                place.positions.get(partition, 0),
                place.deliveries.get(partition, 0),
                hold.is_leaving,
            )
            for partition, hold in sorted(self.groups[key].machine.holds.items())
            if node_of(hold.member) == node
        ]
        steps = self._decided(node, key, entry)
        return Grant(number, self._next_serial(), *key, given, "", steps)

    def _decided(self, node: str, key: GroupKey, entry: "_Entry") -> list[DecidedStep]:
        """What is decided of what a node asked for."""
        if (node, key) not in entry.beats:
            return []
        place = self.kept.places.get(key)
        return decided_of(None if place is None else place.steps, entry.beats[node, key][0].steps)

    def _next_serial(self) -> int:
        self.serial += 1
        return self.serial


class _Entry:
    """What one entry was made from."""

    def __init__(
        self,
        at: float,
        beats: dict[tuple[str, GroupKey], tuple[GroupBeat, float]],
        changes: list[tuple[str, ChangeGroup]],
    ) -> None:
        self.at = at
        self.beats = beats
        self.changes = changes
        self.rows: list[Row] = []
        #: Where groups are by it.
        self.places: dict[GroupKey, GroupPlace] = {}
        #: Those that begin anew, in another stream of the name.
        self.anew: set[GroupKey] = set()
        self.answers: Answers = []
        self.errors: dict[tuple[str, GroupKey], str] = {}


def name_of(node: str, member: str) -> str:
    """A member's name in the cluster."""
    return f"{node}\0{member}"


def node_of(member: str) -> str:
    """The node that has a member."""
    return member.partition("\0")[0]
