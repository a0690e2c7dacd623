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

import logging
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from vmq.clustering.delivery.drained import drained_nodes
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

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


S = TypeVar("S", bound=Struct)
#: What the ids of groups of no stream begin with.
SYSTEM: Final = frozenset({"meta", "cursors"})
_KINDS: Final = frozenset(
    {"node", "meta", "place", "lead", "gone", "move", "wish"}
    | {"begin", "host", "limit", "loss", "readers"}
)


def node_of(name: str) -> str:
    """The node that has a name in groups."""
    return name.rpartition("@")[0]


def key_of(*parts: str) -> bytes:
    """A key of the metadata."""
    return "\0".join(parts).encode()


def parts_of(key: bytes) -> list[str]:
    """The parts of a key; none where it is no key."""
    try:
        parts = key.decode().split("\0")
    except UnicodeDecodeError:
        return []
    return parts if parts[0] in _KINDS else []


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


def decode(raw: bytes | None, kind: type[S]) -> S | None:
    """A record out of the metadata; None if it is none."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError):
        return None


class GroupRecords:
    """What stands there; of a node that does not run there is nothing.

    Args:
        node: the node.
    """

    def __init__(self, node: ClusterNode) -> None:
        self._node: Final = node

    @property
    def is_there(self) -> bool:
        """Whether the node runs."""
        return self._node.is_running

    def get(self, *parts: str) -> bytes | None:
        """What stands under a key."""
        return self._node.get(GROUPS, key_of(*parts)) if self._node.is_running else None

    def put(self, value: bytes, *parts: str) -> None:
        """Writes something, if it is not there already."""
        if not self._node.is_running or self.get(*parts) == value:
            return
        try:
            self._node.put(GROUPS, key_of(*parts), value)
        except ClusterError as error:
            log.error("other nodes do not learn of a group: %s", error)

    def write(self, record: Struct, *parts: str) -> None:
        """Writes a record, unless what stands there is newer."""
        before = self.get(*parts)
        raw = msgspec.json.encode(record)
        if before is None or _number(before) < _number(raw):
            self.put(raw, *parts)

    def write_lead(self, group: str, lead: Lead) -> None:
        """Says who leads a group, unless a later leader is known."""
        before = decode(self.get("lead", group), Lead)
        if before is None or before.term <= lead.term:
            self.put(msgspec.json.encode(lead), "lead", group)

    def delete(self, *parts: str) -> None:
        """Deletes what stands under a key."""
        if self.get(*parts) is not None:
            self._node.delete(GROUPS, key_of(*parts))

    def all(self, kind: str) -> Iterator[tuple[list[str], bytes]]:
        """Keys of one kind, without it, and what stands there."""
        if self._node.is_running:
            for key, value in list(self._node.items(GROUPS, kind.encode())):
                parts = parts_of(key)
                if parts and parts[0] == kind and value:
                    yield parts[1:], value

    def records(self, kind: str, form: type[S]) -> Iterator[tuple[list[str], S]]:
        """The same as records, those that are."""
        for parts, raw in self.all(kind):
            found: Any = decode(raw, form)
            if found is not None:
                yield parts, found

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
        return self._node.members if self._node.is_running else ()

    def drained(self) -> Collection[str]:
        """The nodes that give away what they come to lead."""
        return drained_nodes(self._node) if self._node.is_running else ()

    def nodes(self) -> dict[str, str]:
        """The names in groups of nodes, by node."""
        found = {}
        for parts, raw in self.all("node"):
            name = raw.decode(errors="replace")
            if len(parts) == 1 and node_of(name) == parts[0]:
                found[parts[0]] = name
        return found
