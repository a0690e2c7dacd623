"""Dots, node clocks and the hybrid logical clock: how nodes know what they have seen.

Every write gets a **dot**, the pair (incarnation, counter): which life of which node wrote it, and as
which of its writes. An incarnation is a number that no other node and no other life of a node has; its
counter goes up by one with each write and is on disk before anybody hears of the write. A dot therefore
names one write, for ever.

A **node clock** is the set of dots that a node has seen. Replication delivers nearly everything in order,
so the set is nearly always "all dots of a up to 900, all of b up to 70", and is kept as that: runs of
consecutive counters, per incarnation. A gap is a write that got lost on its way here. This is the
server-wide clock of Goncalves, Almeida, Baquero and Fonte, "DottedDB: Anti-Entropy without Merkle Trees,
Deletes without Tombstones" (2017): one clock a node in place of one version vector a key and of a Merkle tree
over all of them. Two nodes compare clocks, which costs the same however many keys there are, and what
one has and the other lacks is a difference of sets, of which each dot leads to its key.

All of it rests on one promise, called **honesty** here: if a dot of key K is in the clock of a node, the
node has what K held in that write, or knows that it was overwritten or deleted. A node that loses writes in a
power failure loses the clock that covers them in the same transaction, and then counts on as a new
incarnation, since it may have forgotten dots that others know. A node that is told "you now have everything that I
have" adds the other's clock to its own at the end of the exchange, not in its course.

A dot says nothing about which of two writes is newer. Where neither saw the other, the **hybrid logical clock**
decides (Kulkarni et al. 2014): milliseconds of the wall clock, moved ahead of everything that was seen, so that a
later write has a higher time however wrong the clocks are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from vmq_cluster.errors import MalformedError

#: (incarnation, counter); counters begin at 1.
Dot = tuple[int, int]

#: Boundaries of runs, ascending: [first, end, first, end ...], each end exclusive.
Runs = list[int]

#: The low bits of a hybrid time count events within one millisecond.
LOGICAL_BITS: Final = 16

#: Integers on the wire and on disk are no higher; counters less, so that there is room above each.
MAX_NUMBER: Final = 2**63 - 1
MAX_COUNTER: Final = 2**62

#: No clock is ahead by so many milliseconds (100 years): what says so is made up.
FAR_AHEAD: Final = 100 * 366 * 86_400 * 1000


def add_run(runs: Runs, first: int, end: int) -> None:
    """Adds the counters from `first` to before `end`; runs that touch become one."""
    left = bisect_left(runs, first)
    right = bisect_right(runs, end)
    middle = []
    if left % 2 == 0:
        middle.append(first)
    if right % 2 == 0:
        middle.append(end)
    runs[left:right] = middle


def subtract(one: Runs, other: Runs) -> Runs:
    """The counters that are in `one` and not in `other`."""
    if not other:
        return list(one)
    left: Runs = []
    for index in range(0, len(one), 2):
        first, end = one[index], one[index + 1]
        at = bisect_right(other, first)
        if at % 2:  # `first` lies in a run of the other
            first = other[at]
            at += 1
        while first < end:
            stop = other[at] if at < len(other) else end
            left += [first, min(stop, end)]
            first = other[at + 1] if at + 1 < len(other) else end
            at += 2
    return left


def intersect(one: Runs, other: Runs) -> Runs:
    """The counters that are in both."""
    return subtract(one, subtract(one, other))


class NodeClock:
    """A set of dots: per incarnation, runs of counters."""

    __slots__ = ("runs",)

    def __init__(self, runs: dict[int, Runs] | None = None) -> None:
        #: Incarnations that have at least one dot.
        self.runs: dict[int, Runs] = {} if runs is None else runs

    def __contains__(self, dot: Dot) -> bool:
        runs = self.runs.get(dot[0])
        return runs is not None and bisect_right(runs, dot[1]) % 2 == 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeClock) and self.runs == other.runs

    __hash__ = None  # type: ignore[assignment]  # a clock changes

    def __repr__(self) -> str:
        return f"NodeClock({self.runs})"

    def copy(self) -> "NodeClock":
        return NodeClock({incarnation: list(runs) for incarnation, runs in self.runs.items()})

    def add(self, dot: Dot) -> bool:
        """Returns whether the dot is new."""
        runs = self.runs.get(dot[0])
        if runs is None:
            self.runs[dot[0]] = [dot[1], dot[1] + 1]
            return True
        if runs[-1] == dot[1]:  # the next one: nearly always
            runs[-1] += 1
            return True
        if bisect_right(runs, dot[1]) % 2:
            return False
        add_run(runs, dot[1], dot[1] + 1)
        return True

    def merge(self, other: "NodeClock") -> list[int]:
        """Adds all dots of the other; returns the incarnations that changed."""
        changed = []
        for incarnation, theirs in other.runs.items():
            ours = self.runs.get(incarnation)
            if ours is None:
                self.runs[incarnation] = list(theirs)
            elif ours == theirs:
                continue
            else:
                before = list(ours)
                for index in range(0, len(theirs), 2):
                    add_run(ours, theirs[index], theirs[index + 1])
                if ours == before:
                    continue
            changed.append(incarnation)
        return changed

    def base(self, incarnation: int) -> int:
        """The counter up to which nothing is missing; 0 if the first dot is."""
        runs = self.runs.get(incarnation)
        return runs[1] - 1 if runs and runs[0] == 1 else 0

    def last(self, incarnation: int) -> int:
        """The highest counter seen, 0 if none was."""
        runs = self.runs.get(incarnation)
        return runs[-1] - 1 if runs else 0

    def dominates(self, other: "NodeClock") -> bool:
        """Whether it holds every dot of the other."""
        return not any(True for _ in other.beyond(self))

    def beyond(self, other: "NodeClock") -> Iterator[tuple[int, Runs]]:
        """What the other lacks, by incarnation in ascending order."""
        for incarnation in sorted(self.runs):
            ours = self.runs[incarnation]
            theirs = other.runs.get(incarnation)
            if theirs is None:
                yield incarnation, list(ours)
            elif ours != theirs:
                rest = subtract(ours, theirs)
                if rest:
                    yield incarnation, rest

    def common(self, other: "NodeClock") -> "NodeClock":
        """The dots that are in both."""
        shared = {}
        for incarnation, ours in self.runs.items():
            theirs = other.runs.get(incarnation)
            if theirs is not None:
                runs = list(ours) if ours == theirs else intersect(ours, theirs)
                if runs:
                    shared[incarnation] = runs
        return NodeClock(shared)

    @classmethod
    def checked(cls, runs: dict[int, Runs]) -> "NodeClock":
        """A clock that came from a peer.

        Raises:
            MalformedError: it is no set of runs.
        """
        for boundaries in runs.values():
            previous = 0
            for boundary in boundaries:
                if boundary <= previous:
                    raise MalformedError("a node clock whose runs do not ascend")
                previous = boundary
            if not boundaries or len(boundaries) % 2:
                raise MalformedError("a node clock with a run that has no end")
        return cls(runs)


class HybridClock:
    """Gives times that rise with everything seen, close to the wall clock."""

    __slots__ = ("last", "wall")

    def __init__(self, wall: Callable[[], int], last: int = 0) -> None:
        """`wall` answers with milliseconds; it may jump and be wrong."""
        self.wall = wall
        self.last = last

    def next(self) -> int:
        """A time higher than all that were given or seen."""
        self.last = max(self.wall() << LOGICAL_BITS, self.last + 1)
        return self.last

    def observe(self, time: int) -> None:
        """Takes note of another's time."""
        self.last = max(self.last, time)

    def ahead(self, time: int) -> int:
        """How many milliseconds a time is ahead of the wall clock."""
        return (time >> LOGICAL_BITS) - self.wall()
