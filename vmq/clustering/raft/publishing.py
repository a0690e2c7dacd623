"""What the meta group has decided, copied into the metadata by its leader, for all nodes to follow."""

from vmq.clustering.raft.meta import MetaDecisions
from vmq.clustering.raft.records import GroupRecords, ReplicaPlace


def publish(decided: MetaDecisions, records: GroupRecords) -> None:
    """Copies where partitions are, and clears away what was asked for and is done."""
    placed: set[tuple[str, str]] = set()
    before = {(parts[0], parts[1]): each for parts, each in records.records("place", ReplicaPlace)}
    for name, (stream_id, partitions, _) in decided.streams.items():
        for number in range(partitions):
            group = f"{stream_id}/{number}"
            found = decided.groups[group]
            key = (name, str(number))
            placed.add(key)
            old = before.get(key)
            if old is None or (old.group, old.voters) != (group, found.wanted):
                records.write(
                    ReplicaPlace(decided.at, group, found.first, found.wanted), "place", *key
                )
    for key, old in before.items():
        if key not in placed and old.at < decided.at:
            records.delete("place", *key)
    ids = {each[0] for each in decided.streams.values()}
    for parts, _ in list(records.all("gone")):
        if parts[0] not in ids:
            records.delete("gone", *parts)
    for parts, raw in list(records.all("move")):
        now = decided.groups.get(parts[0])
        if now is None or "\0".join(now.voters) == raw.decode(errors="replace"):
            records.delete("move", *parts)
    for kind in ("lead", "wish"):
        for parts, _ in list(records.all(kind)):
            if parts[0] not in decided.groups:
                records.delete(kind, *parts)
