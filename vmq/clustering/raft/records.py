"""What the cluster's metadata say of groups: hints of leaders, and copies of what the meta group has decided.

All keys are under one prefix, their parts parted by NUL. Nothing here decides anything: a copy says up to where of the
meta group's log it is, and the later one stands.

- `node NODE`: the node's name in groups, which is another one when it has lost its disk.
- `meta`: the cluster's meta group: its id, who began it, and when. Of two the earlier one stands.
- `place STREAM NUMBER`: the group of a partition, and who has its replicas.
- `lead GROUP`: who leads a group, with which voters.
- `gone ID`: the stream of this id was deleted, whose groups the meta group is to forget.
- `move GROUP`: where an operator wants a group.
- `wish GROUP`: whom an operator wants to lead it.
- `begin STREAM NUMBER`: the owner of a partition of one copy, whose log is to be its group's.
- `host NODE`: what the node shares a disk or a machine with.
- `limit NODE`: how many partitions it takes, 0: as many as there are.
- `loss GROUP`: an operator knows of what may be lost of a group, up to a term.
- `readers`: there are consumer groups, and with them the meta group.
"""

from collections.abc import Collection
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.clustering.delivery.drained import drained_nodes
from vmq_cluster.keyed_records import Records, decode, encode
from vmq_cluster.node import ClusterNode

GROUPS: Final = "vmq.groups"

_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=255)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]


class MetaRecord(Struct, array_like=True, frozen=True):
    """The meta group of the cluster."""

    #: Milliseconds since 1970.
    since: _Count
    id: _Name
    first: _Name

    @property
    def group(self) -> str:
        """Its name."""
        return f"meta/{self.id}"

    @property
    def cursors(self) -> str:
        """That of the log of consumer groups (`vmq.clustering.raft.cursors`)."""
        return f"cursors/{self.id}"


class ReplicaPlace(Struct, array_like=True, frozen=True):
    """Where a partition is: its group, who began that, who is to have it, and how old the news is."""

    at: _Count
    group: _Name
    first: _Names
    voters: _Names


class Lead(Struct, array_like=True, frozen=True):
    """Who leads a group."""

    term: _Count
    leader: _Name
    voters: _Names


class Loss(Struct, array_like=True, frozen=True):
    """Up to which term an operator knows what may be lost of a group."""

    term: _Count


#: What the ids of groups of no stream begin with.
SYSTEM: Final = frozenset({"meta", "cursors"})


def node_of(name: str) -> str:
    """The node that has a name in groups."""
    return name.rpartition("@")[0]


def _number(raw: bytes) -> int:
    try:
        found = msgspec.json.decode(raw)
        return int(found[0]) if isinstance(found, list) and found else -1
    except (ValueError, TypeError, RecursionError):
        return -1


def merge(one: bytes, other: bytes) -> bytes:
    """Which of two values stands that were written at the same time: news the later, the meta group the earlier."""
    if _is_meta(one) and _is_meta(other):
        return min((_number(one), one), (_number(other), other))[1]
    return max((_number(one), one), (_number(other), other))[1]


def _is_meta(raw: bytes) -> bool:
    return decode(raw, MetaRecord) is not None


class GroupRecords(Records):
    """What stands there.

    Args:
        node: the node.
    """

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node, GROUPS, "a group")

    def write(self, record: Struct, *parts: str) -> None:
        """Writes a record, unless what stands there is newer."""
        before = self.get(*parts)
        raw = encode(record)
        if before is None or _number(before) < _number(raw):
            self.put(raw, *parts)

    def write_lead(self, group: str, lead: Lead) -> None:
        """Says who leads a group, unless a later leader is known."""
        before = decode(self.get("lead", group), Lead)
        if before is None or before.term <= lead.term:
            self.put(encode(lead), "lead", group)

    def meta(self) -> MetaRecord | None:
        """The meta group, if there is one."""
        return decode(self.get("meta"), MetaRecord)

    def labels(self) -> dict[str, str]:
        """What nodes share a disk or a machine with, by their names in groups."""
        names = self.nodes()
        return {
            names[parts[0]]: raw.decode(errors="replace")
            for parts, raw in self.all("host")
            if len(parts) == 1 and parts[0] in names
        }

    def limits(self) -> dict[str, int]:
        """How many partitions nodes take, by their names in groups; of those that take all 0, or nothing."""
        names = self.nodes()
        return {
            names[parts[0]]: int(raw)
            for parts, raw in self.all("limit")
            if len(parts) == 1 and parts[0] in names and raw.isdigit()
        }

    def accepted(self) -> dict[str, int]:
        """Up to which term an operator knows what may be lost of groups."""
        return {
            parts[0]: each.term for parts, each in self.records("loss", Loss) if len(parts) == 1
        }

    def offer(self, node: str, name: str, host: str, limit: int) -> None:
        """A node takes replicas: its name in groups, what it shares a disk or a machine with, and how many it takes."""
        self.put(name.encode(), "node", node)
        self.put(host.encode(), "host", node)
        self.put(b"%d" % limit, "limit", node)

    def members(self) -> Collection[str]:
        """The nodes of the cluster that have not been removed."""
        return self.node.members if self.node.is_running else ()

    def drained(self) -> Collection[str]:
        """The nodes that give away what they come to lead."""
        return drained_nodes(self.node) if self.node.is_running else ()

    def nodes(self) -> dict[str, str]:
        """The names in groups of nodes, by node."""
        found = {}
        for parts, raw in self.all("node"):
            name = raw.decode(errors="replace")
            if len(parts) == 1 and node_of(name) == parts[0]:
                found[parts[0]] = name
        return found
