"""What the leader of the meta group proposes next, given what was decided and what there is. Pure."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from vmq_cluster.raft.meta import (
    AddPartitions,
    Command,
    Definitions,
    DeleteStream,
    MakeStream,
    Move,
    Moved,
    Placement,
    RefusedError,
    SetHosts,
    SetReplicas,
)
from vmq_cluster.raft.placement import apart, order

#: Groups whose members change at the same time.
MOVING: Final = 8
#: Voters of the meta group: an even number of them is no safer than one less, but for two, who then both know all.
_VOTERS: Final = (0, 1, 2, 3, 3, 5)


@dataclass(frozen=True, slots=True)
class WantedStream:
    """A stream as the metadata define it."""

    partitions: int
    replicas: int
    #: Who begins each group alone, for it has the only copy; "" or none: nobody.
    begun: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What there is, as the metadata say.

    `hosts`: who takes replicas, by their names in groups. `labels`: what each shares a disk or a machine with.
    `gone`: ids of streams that were deleted. `members`: of groups of which that is news, the voters as the leader has
    them committed, and its term.
    """

    hosts: tuple[str, ...] = ()
    streams: Mapping[str, WantedStream] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    members: Mapping[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    #: Moves that an operator asked for: group -> voters.
    moves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: How many replicas each host takes; 0, or none: as many as there are.
    limits: Mapping[str, int] = field(default_factory=dict)


def new_id() -> str:
    """The id of a stream that is made."""
    return secrets.token_hex(8)


def next_commands(
    decided: Definitions, known: Known, make_id: Callable[[], str] = new_id
) -> list[Command]:
    """What is to be decided next, perhaps nothing; the rest follows when that is."""
    hosts = tuple(sorted(known.hosts))
    labels = tuple(known.labels.get(each, each) for each in hosts)
    limits = tuple(known.limits.get(each, 0) for each in hosts)
    before = tuple((decided.label(each), decided.limits.get(each, 0)) for each in hosts)
    if hosts != decided.hosts or tuple(zip(labels, limits, strict=True)) != before:
        return [SetHosts(hosts, labels, limits)]
    commands: list[Command] = [
        DeleteStream(name, stream.id)
        for name, stream in decided.streams.items()
        if stream.id in known.gone
    ]
    if commands:
        return commands
    commands += _streams(decided, known, make_id)
    commands += _news(decided, known)
    return commands or list(_moves(decided, known))


def _streams(decided: Definitions, known: Known, make_id: Callable[[], str]) -> Iterator[Command]:
    for name, wanted in sorted(known.streams.items()):
        stream = decided.streams.get(name)
        if stream is None:
            numbers = (wanted.partitions, wanted.replicas)
            is_room = decided.room >= wanted.replicas
            if is_room and _fits(decided, made := make_id(), 0, *numbers):
                yield MakeStream(name, made, *numbers, wanted.begun)
        elif wanted.replicas != stream.replicas:
            if decided.room >= wanted.replicas:
                yield SetReplicas(name, wanted.replicas)
        elif wanted.partitions > stream.partitions:
            numbers = (stream.partitions, wanted.partitions)
            if _fits(decided, stream.id, *numbers, stream.replicas):
                yield AddPartitions(name, wanted.partitions)


def _fits(decided: Definitions, made: str, begin: int, end: int, replicas: int) -> bool:
    try:
        decided.placed(made, begin, end, replicas)
    except RefusedError:
        return False
    return True


def _news(decided: Definitions, known: Known) -> Iterator[Command]:
    for group, (voters, term) in sorted(known.members.items()):
        placed = decided.groups.get(group)
        if placed is not None and placed.voters != voters and term >= placed.term:
            yield Moved(group, voters, term)


def _moves(decided: Definitions, known: Known) -> Iterator[Command]:
    """Replicas of hosts that are gone or were missing, and what an operator wants elsewhere, a few at a time."""
    room = MOVING - len(decided.moving())
    counts = {each.id: each.replicas for each in decided.streams.values()}
    free = decided.free()
    for group in _candidates(decided, known, counts, free):
        if room <= 0:
            return
        placed = decided.groups[group]
        count = counts.get(group.rpartition("/")[0], len(placed.wanted))
        voters = _better(group, placed, decided, count, _full(free))
        asked = known.moves.get(group)
        if asked is not None and set(asked) <= set(decided.hosts):
            voters = asked
        if voters != placed.wanted:
            room -= 1
            for node in free.keys() & {*voters} - {*placed.wanted}:
                free[node] -= 1
            yield Move(group, voters)


def _full(free: Mapping[str, int]) -> set[str]:
    return {node for node, left in free.items() if left <= 0}


def _candidates(
    decided: Definitions, known: Known, counts: Mapping[str, int], free: Mapping[str, int]
) -> Iterator[str]:
    """The groups that may have to move: looked for by the sets of nodes that groups have, which are few.

    `free` changes meanwhile.
    """
    hosts = set(decided.hosts)
    yield from sorted(known.moves.keys() & decided.groups.keys())
    for (stream, wanted), groups in sorted(decided.sets()):
        count = counts.get(stream, len(wanted))
        is_apart = len(apart(wanted, decided.labels)) == len(wanted)
        if len(wanted) == count and is_apart and hosts.issuperset(wanted):
            continue
        if hosts.difference(wanted) <= _full(free):
            # There is nobody else: what one of them cannot better none can.
            one = min(groups)
            if _better(one, decided.groups[one], decided, count, _full(free)) == wanted:
                continue
        yield from sorted(groups - known.moves.keys())


def _better(
    group: str, placed: Placement, decided: Definitions, count: int, full: set[str]
) -> tuple[str, ...]:
    """The voters that a group is to have, as many as its stream wants: others in the place of those that are gone.

    Nodes that are `full` get none that they do not have.
    """
    kept = [name for name in placed.wanted if name in decided.hosts]
    if len(kept) == count and len(apart(kept, decided.labels)) == count:
        return tuple(kept)
    others = (each for each in order(group, decided.hosts) if each not in full)
    found = apart((*kept, *others), decided.labels)
    return tuple(found[:count]) or placed.wanted


def meta_voters(
    voters: tuple[str, ...], hosts: tuple[str, ...], labels: Mapping[str, str] = {}
) -> tuple[str, ...]:
    """Who is to vote in the meta group: who does and is a host, and others up to the number that is wanted."""
    kept = [name for name in voters if name in hosts]
    found = apart((*kept, *order("meta", hosts)), labels)
    count = _VOTERS[min(len(found), len(_VOTERS) - 1)]
    return tuple(found[:count]) or voters
