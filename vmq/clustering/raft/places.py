"""Where replicated partitions are, as one node sees it: who has them, who leads them, where they are read."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Final

from vmq.clustering.raft.records import Lead, ReplicaPlace, node_of
from vmq.clustering.raft.standing import OwnReplicas, Standing
from vmq.runtime.metrics import Family, Sample

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")

#: How many ranges of offsets are named of a partition.
_MOST_RANGES: Final = 10
#: How many groups are named that fail.
_MOST_FAILED: Final = 10

#: Figures, as metrics name and tell them.
_FAMILIES: Final = {
    "groups": ("stream_replicas", "Replicas of partitions that this node has."),
    "led": ("stream_leaders", "Replicated partitions that this node leads."),
    "leaderless": ("stream_leaderless", "Replicated partitions of which no leader is known."),
    "under_replicated": (
        "stream_under_replicated",
        "Replicated partitions of which fewer replicas can be reached than there are to be.",
    ),
    "moving": (
        "stream_moving",
        "Replicated partitions that are on their way to other nodes, or get more copies or fewer.",
    ),
    "abstaining": (
        "stream_abstaining",
        "Replicas of this node that may have forgotten: they count for nothing until they have caught up.",
    ),
    "lagging": ("stream_lagging", "Replicas that lack something of what this node leads."),
}

#: Stream and number of a partition.
Key = tuple[str, int]


class Places:
    """What is known. Readers' threads ask for single partitions while the event loop changes others.

    Args:
        name: this node's name in groups.
        catalog: the streams.
    """

    def __init__(self, name: str, catalog: "Catalog") -> None:
        self.name = name
        self._node = node_of(name)
        self._catalog = catalog
        self.places: dict[Key, ReplicaPlace] = {}
        self.keys: dict[str, Key] = {}
        #: Who leads each group, as far as is known.
        self.leaders: dict[str, str] = {}
        #: Who led groups of which no replica here knows the leader, as was told last.
        self._hints: dict[str, str] = {}
        #: The groups of partitions of which no leader is known.
        self._leaderless: set[str] = set()
        #: How many partitions of each stream are placed.
        self._placed: Counter[str] = Counter()
        #: Which partitions of a stream the same nodes have: of thousands of partitions there are few such sets.
        self._sets: dict[tuple[str, tuple[str, ...]], set[int]] = {}
        #: What this node's own replicas know of that.
        self.own: dict[str, str] = {}
        #: How this node's own replicas stand.
        self.here = OwnReplicas()
        #: The groups that are open here.
        self.open: dict[str, Key] = {}
        self.opened: dict[Key, str] = {}
        #: The nodes that can be reached.
        self.up: frozenset[str] = frozenset()
        #: The groups that get other copies, and on how many hosts there can be some.
        self.moving: Set[str] = frozenset()
        self.hosts = 0
        #: Of groups of which something may be lost: up to which term an operator has said that he knows.
        self.accepted: Mapping[str, int] = {}

    def put(self, changed: Mapping[Key, ReplicaPlace | None]) -> None:
        """These partitions have these places, or none any more."""
        for key, place in changed.items():
            before = self.places.get(key)
            if place == before:
                continue
            if before is not None:
                self._take_away(key, before, is_gone=place is None)
            if place is not None:
                self.places[key] = place
                self.keys[place.group] = key
                if not self.leaders.get(place.group):
                    self._leaderless.add(place.group)
                self._placed[key[0]] += 1
                self._sets.setdefault((key[0], place.voters), set()).add(key[1])

    def _take_away(self, key: Key, before: ReplicaPlace, *, is_gone: bool) -> None:
        if is_gone:
            del self.places[key]
            self._hints.pop(before.group, None)
        if self.keys.get(before.group) == key:
            del self.keys[before.group]
        self._leaderless.discard(before.group)
        self._placed[key[0]] -= 1
        numbers = self._sets[key[0], before.voters]
        numbers.discard(key[1])
        if not numbers:
            del self._sets[key[0], before.voters]

    def close(self, group: str) -> Key:
        """A group is open here no more; returns its partition."""
        key = self.open.pop(group)
        del self.opened[key]
        return key

    def lead(self, group: str, leader: str) -> None:
        """Somebody leads a group; "": nobody that is known."""
        self.leaders[group] = leader
        if leader:
            self._leaderless.discard(group)
        elif group in self.keys:
            self._leaderless.add(group)

    def hinted(self, group: str, leader: str) -> str:
        """Somebody led a group, as was told; returns whom to take for its leader: "" where it cannot be reached."""
        self._hints[group] = leader
        return leader if node_of(leader) in self.up else ""

    def wanted(self) -> "Iterator[Stream]":
        """The streams of which there are, or are to be, copies."""
        for stream in list(self._catalog.streams.values()):
            if stream.options.replicas > 1:
                yield stream

    def covers(self, stream: str) -> bool:
        """Whether a stream is replicated."""
        found = self._catalog.streams.get(stream)
        return found is not None and found.is_replicated

    def leader(self, stream: str, number: int) -> str:
        """The node that leads a partition; "" if none is known."""
        place = self.places.get((stream, number))
        return "" if place is None else node_of(self.leaders.get(place.group, ""))

    def leads_beside(self, group: str) -> str:
        """The other node in reach that leads a group; "" if none is known."""
        node = node_of(self.leaders.get(group, ""))
        return node if node in self.up else ""

    def replicas(self, stream: str, number: int) -> list[str]:
        """The nodes that have a partition."""
        place = self.places.get((stream, number))
        return [] if place is None else [node_of(each) for each in place.voters]

    def is_led_elsewhere(self) -> bool:
        """Whether other nodes lead all that this node has with others: where one is being elected it may be this."""
        return all(
            self.own.get(group, "") not in ("", self.name)
            for group, key in self.open.items()
            if (place := self.places.get(key)) is not None and len(place.voters) > 1
        )

    def unled(self, stream: str) -> list[int]:
        """The partitions of which no leader is known."""
        found = self._catalog.streams.get(stream)
        numbers = range(0 if found is None else len(found.partitions))
        return [number for number in numbers if not self.leader(stream, number)]

    def lacking(self, stream: str) -> str:
        """Which partitions of a stream are not placed, and what that takes; "" if all are."""
        found = self._catalog.streams.get(stream)
        if found is None or self._placed[stream] == len(found.partitions):
            return ""
        numbers = range(len(found.partitions))
        lacking = [number for number in numbers if (stream, number) not in self.places]
        if not lacking:
            return ""
        return (
            f"stream {stream!r}: {partitions_text(lacking)} not placed yet: that takes {found.options.replicas} "
            f"nodes that keep streams, each on a host of its own (known: {self.hosts}), and a majority of the "
            "meta group"
        )

    def why_unled(self, stream: str, unled: list[int]) -> str:
        """What partitions that are placed need to be led."""
        nodes = {each for number in unled for each in self.replicas(stream, number)}
        away = sorted(nodes - self.up - {self._node})
        hints = {node_of(self._hints.get(self.places[stream, each].group, "")) for each in unled}
        out = "that takes most of its nodes"
        if led := sorted(hints.intersection(away)):
            out += f", unless {', '.join(led)} leads as before, which this node does not reach"
        if away:
            out += f"; cannot be reached: {', '.join(away)}"
        return f"stream {stream!r}: {partitions_text(unled)} without a leader that this node knows: {out}"

    def is_here(self, stream: str, number: int) -> bool:
        """Whether a partition can be read on this node: its replica counts, and knows its leader."""
        place = self.places.get((stream, number))
        return place is not None and place.group in self.here.current

    def reader(self, stream: str, number: int) -> str | None:
        """The node where a partition is read; None: here, or nobody knows."""
        place = self.places.get((stream, number))
        if place is None or self.is_here(stream, number):
            return None
        names = (self.leaders.get(place.group, ""), *place.voters)
        others = [node for each in names if (node := node_of(each)) not in ("", self._node)]
        reached = [node for node in others if node in self.up]
        if not reached and place.group in self.open:
            return None  # what was committed is here all the same
        return next(iter(reached or others), None)

    def candidates(self, group: str) -> list[str]:
        """Whom to hand rows for a group, its leader first if that is known."""
        key = self.keys.get(group)
        voters: Iterable[str] = () if key is None else self.places[key].voters
        found = dict.fromkeys((self.leaders.get(group, ""), *voters))
        found.pop("", None)
        return list(found)

    def is_member(self, place: ReplicaPlace, lead: Lead | None) -> bool:
        """Whether this node is to have a replica, or still has one that counts."""
        return self.name in place.voters or self.name in (
            place.first if lead is None else lead.voters
        )

    # --- what is shown

    def standing(self, stream: str, number: int) -> Standing | None:
        """How this node's replica of a partition stands; None: it has none."""
        place = self.places.get((stream, number))
        return None if place is None else self.here.standings.get(place.group)

    def _of(self, stream: str) -> Iterator[ReplicaPlace]:
        """The partitions of a stream that are placed."""
        found = self._catalog.streams.get(stream)
        for number in range(0 if found is None else len(found.partitions)):
            place = self.places.get((stream, number))
            if place is not None:
                yield place

    def figures(self, stream: str = "") -> dict[str, int]:
        """Of all partitions or a stream's: how many are led here, lack a leader (or a place), or copies within reach.

        And how many get other copies, and how many replicas of this node may have forgotten, or, where it leads, lag.
        """
        found = {each: 0 for each in _FAMILIES if each != "groups"}
        found["under_replicated"] = sum(1 for _ in self._short(stream))
        found["moving"] = sum(
            stream in ("", self.keys[each][0]) for each in self.moving if each in self.keys
        )
        for each in self.wanted():
            if each.is_replicated and stream in ("", each.name):
                lacking = max(0, len(each.partitions) - self._placed[each.name])
                found["leaderless"] += lacking
                found["under_replicated"] += lacking
        for place in self._of(stream) if stream else self.places.values():
            standing = self.here.standings.get(place.group)
            found["abstaining"] += place.group in self.here.abstaining
            found["lagging"] += 0 if standing is None else len(standing.behind)
            leader = self.leaders.get(place.group, "")
            found["led"] += self.own.get(place.group) == self.name
            found["leaderless"] += not leader
        return found

    def _short(self, stream: str = "") -> Iterator[str]:
        """The groups of all partitions or a stream's of which fewer copies can be reached than there are to be."""
        there = self.up | {self._node}
        for (name, voters), numbers in self._sets.items():
            found = self._catalog.streams.get(name)
            if found is None or stream not in ("", name) or found.options.replicas < 2:
                continue
            count = sum(node_of(voter) in there for voter in voters)
            if count < max(found.options.replicas, len(voters)):
                last = len(found.partitions)
                yield from (self.places[name, each].group for each in numbers if each < last)

    def families(self) -> Iterator[Family]:
        """The figures of the groups, for metrics."""
        found = {"groups": len(self.open), **self.figures()}
        for what, (name, text) in _FAMILIES.items():
            yield Family(name, "gauge", text, (Sample((), found[what]),))

    def problems(self, meta_leader: str | None, failed: Mapping[str, str]) -> Iterator[str]:
        """What replicated streams cannot do now, as this node sees it.

        Args:
            meta_leader: as the service knows it.
            failed: groups of which something went wrong here, and what.
        """
        if meta_leader == "":
            yield "the meta group has no leader that this node knows: copies of streams are not made, and none moves"
        leaderless = self._numbers_of(self._leaderless)
        forgetful = self._numbers_of(self.here.abstaining)
        short = self._numbers_of(each for each in self._short() if each not in self._leaderless)
        for stream in self.wanted():
            name = stream.name
            if lacking := self.lacking(name):
                yield lacking
            if name in leaderless:
                yield self.why_unled(name, leaderless[name])
            if name in short:
                yield (
                    f"stream {name!r}: {partitions_text(short[name])}: fewer copies can be reached than the "
                    f"{stream.options.replicas} that it is to have"
                )
            if name in forgetful:
                yield (
                    f"stream {name!r}: {partitions_text(forgetful[name])}: this node's copy may have forgotten, "
                    "and counts for nothing until it has caught up"
                )
        for group in self.here.uncertain:
            if ranges := self._unaccepted(group):
                yield self._loss(group, _joined(ranges))
        yield from self._damaged()
        for group in list(failed)[:_MOST_FAILED]:
            yield f"{self._what(group)}: this node's copy fails, and is tried again: {failed[group]}"
        if (more := len(failed) - _MOST_FAILED) > 0:
            yield f"{more} more copies of this node fail"

    def _damaged(self) -> Iterator[str]:
        """What this node leads, and is damaged here: it keeps others from having copies."""
        for group, standing in self.here.standings.items():
            if standing.damage and group in self.keys:
                yield (
                    f"{self._what(group)}: offsets {_listed(standing.damage)} are damaged here, where it is led, and "
                    "fetched from whoever has them; if nobody does, it gets no new copies before "
                    "'vmq stream accept-loss' at this node gives them up"
                )

    def _unaccepted(self, group: str) -> list[tuple[int, int]]:
        accepted = self.accepted.get(group, 0)
        ranges = self.here.uncertain[group]
        return [(first, end) for first, end, term in ranges if term > accepted]

    def losses(self, stream: str, number: int | None) -> dict[str, int]:
        """Groups of which something may be lost that nobody has accepted, and the last term that said so.

        Of a stream or a partition of it; with a stream also those of no stream, as they are recovered with it.
        """
        found = {}
        for group in self.here.uncertain:
            name, at = self.keys.get(group, ("", None))
            is_meant = (name == stream and number in (None, at)) or (not name and number is None)
            if is_meant and self._unaccepted(group):
                found[group] = self.here.uncertain[group][-1][2]
        return found

    def tell_loss(self, group: str, first: int, end: int, given_up: bool) -> None:
        """Has the log say that offsets of a group may be lost, or are."""
        if given_up:
            what = self._what(group)
            log.warning("%s: offsets %d to %d are given up: no copy had them", what, first, end)
        else:
            log.error("%s", self._loss(group, [(first, end)]))

    def _loss(self, group: str, ranges: Iterable[tuple[int, int]]) -> str:
        return (
            f"{self._what(group)}: offsets {_listed(ranges)} may be lost: "
            "most of its replicas had forgotten, or were given up; "
            "'vmq stream accept-loss' once you know what that means for you"
        )

    def _what(self, group: str) -> str:
        key = self.keys.get(group)
        return f"group {group}" if key is None else f"stream {key[0]!r}, partition {key[1]}"

    def _numbers_of(self, groups: Iterable[str]) -> dict[str, list[int]]:
        """The partitions that groups are of, by stream."""
        found: dict[str, list[int]] = {}
        for name, number in sorted(self.keys[group] for group in groups if group in self.keys):
            found.setdefault(name, []).append(number)
        return found


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that meet joined to one; of too many the first ones are."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    if (more := len(found) - _MOST_RANGES) > 0:
        found[: more + 1] = [(found[0][0], found[more][1])]
    return found


def _listed(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{first} to {end}" for first, end in ranges)


def partitions_text(numbers: list[int]) -> str:
    """Partitions by their numbers, of many the first ones."""
    shown = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {shown}{more}"
