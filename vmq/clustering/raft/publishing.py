"""What the meta group has to know, out of the metadata, and what it has decided, copied into them for all nodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from vmq.clustering.raft.decisions import Known, WantedStream
from vmq.clustering.raft.meta import MetaDecisions
from vmq.clustering.raft.picture import GroupPicture
from vmq.clustering.raft.places import Key
from vmq.clustering.raft.records import SYSTEM, GroupRecords, Lead, ReplicaPlace

if TYPE_CHECKING:
    from vmq.streams.catalog import Stream


def known_of(
    records: GroupRecords,
    hosts: tuple[str, ...],
    replicated: "Iterable[Stream]",
    leads: Iterable[tuple[str, Lead]],
    labels: Mapping[str, str],
    begun_by: "Callable[[Stream], tuple[str, ...] | None]",
) -> Known:
    """What the meta group's leader has to know.

    Of a stream of which there is one copy it has to know when the owners are ready; `begun_by`: see `Converter.begun`.
    """
    streams = {}
    for each in replicated:
        begun = begun_by(each)
        if begun is not None:
            wanted = WantedStream(len(each.partitions), each.options.replicas, begun)
            streams[each.name] = wanted
    gone = frozenset(parts[0] for parts, _ in records.all("gone"))
    voters = {group: (lead.voters, lead.term) for group, lead in leads}
    limits = records.limits()
    return Known(hosts, streams, gone, voters, moves_of(records), labels, limits)


def moves_of(records: GroupRecords) -> dict[str, tuple[str, ...]]:
    """Where groups are to go that have not arrived."""
    return {
        parts[0]: tuple(raw.decode(errors="replace").split("\0"))
        for parts, raw in records.all("move")
    }


def publish(decided: MetaDecisions, records: GroupRecords, picture: GroupPicture) -> None:
    """Copies where partitions are, and clears away what was asked for and is done."""
    before = picture.places
    names = {stream_id: name for name, (stream_id, _, _) in decided.streams.items()}
    for group, found in decided.groups.items():
        stream_id, _, number = group.rpartition("/")
        old = before.get((names[stream_id], int(number)))
        if old is None or (old.group, old.voters) != (group, found.wanted):
            place = ReplicaPlace(decided.at, group, found.first, found.wanted)
            records.write(place, "place", names[stream_id], number)
    for key, old in list(_gone(decided, before)):
        if key[1] >= decided.streams.get(key[0], ("", 0))[1] and old.at < decided.at:
            records.delete("place", key[0], str(key[1]))
    for group in _ended(decided, picture):
        records.delete("lead", group)
    for parts, _ in list(records.all("begin")):
        if parts[:1] and parts[0] in decided.streams:
            records.delete("begin", *parts)
    for parts, _ in list(records.all("gone")):
        if parts[0] not in names:
            records.delete("gone", *parts)
    for parts, raw in list(records.all("move")):
        now = decided.groups.get(parts[0])
        is_there = parts[0].rpartition("/")[0] in names
        asked = tuple(raw.decode(errors="replace").split("\0"))
        if not is_there or (now and now.voters == now.wanted == asked):
            records.delete("move", *parts)
    for kind in ("wish", "loss"):
        for parts, _ in list(records.all(kind)):
            owner = parts[0].rpartition("/")[0]
            if owner not in names and owner not in SYSTEM:
                records.delete(kind, *parts)


def _gone(
    decided: MetaDecisions, places: Mapping[Key, ReplicaPlace]
) -> Iterator[tuple[Key, ReplicaPlace]]:
    """Places of partitions that may be no more."""
    if decided.is_whole:
        yield from places.items()
        return
    for name, _, partitions in decided.gone:
        for number in range(partitions):
            if (name, number) in places:
                yield (name, number), places[name, number]


def _ended(decided: MetaDecisions, picture: GroupPicture) -> set[str]:
    """Groups of which a leader is known that are no more."""
    if decided.is_whole:
        return picture.leads.keys() - decided.groups.keys()
    ended = {f"{each}/{number}" for _, each, count in decided.gone for number in range(count)}
    return ended & picture.leads.keys()
