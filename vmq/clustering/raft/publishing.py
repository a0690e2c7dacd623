"""What the meta group has to know, out of the metadata, and what it has decided, copied into them for all nodes."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from vmq.clustering.raft.decisions import Known, WantedStream
from vmq.clustering.raft.meta import MetaDecisions
from vmq.clustering.raft.picture import GroupPicture
from vmq.clustering.raft.places import Key
from vmq.clustering.raft.records import GroupRecords, Lead, ReplicaPlace

if TYPE_CHECKING:
    from vmq.streams.catalog import Stream


def known_of(
    records: GroupRecords,
    hosts: tuple[str, ...],
    replicated: "Iterable[Stream]",
    leads: Mapping[str, Lead],
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
    voters = {group: (lead.voters, lead.term) for group, lead in leads.items()}
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
    placed: set[Key] = set()
    before = picture.places
    for name, (stream_id, partitions, _) in decided.streams.items():
        for number in range(partitions):
            group = f"{stream_id}/{number}"
            found = decided.groups[group]
            key = (name, number)
            placed.add(key)
            old = before.get(key)
            if old is None or (old.group, old.voters) != (group, found.wanted):
                place = ReplicaPlace(decided.at, group, found.first, found.wanted)
                records.write(place, "place", name, str(number))
    for (name, number), old in list(before.items()):
        if (name, number) not in placed and old.at < decided.at:
            records.delete("place", name, str(number))
    for parts, _ in list(records.all("begin")):
        if parts[:1] and parts[0] in decided.streams:
            records.delete("begin", *parts)
    ids = {each[0] for each in decided.streams.values()}
    for parts, _ in list(records.all("gone")):
        if parts[0] not in ids:
            records.delete("gone", *parts)
    for parts, raw in list(records.all("move")):
        now = decided.groups.get(parts[0])
        if now is None or "\0".join(now.voters) == raw.decode(errors="replace"):
            records.delete("move", *parts)
    for group in picture.leads.keys() - decided.groups.keys():
        records.delete("lead", group)
    for parts, _ in list(records.all("wish")):
        if parts[0] not in decided.groups:
            records.delete("wish", *parts)
