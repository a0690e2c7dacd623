"""What the meta group decides: streams, their partitions, each group's members, stores that are gone, and moves.

It is a group like any other, of up to five voters, whose rows are commands; this is what they make of it, the same on
each replica. Gossip carries hints of leaders, never decisions: with gossiped definitions two sides of a split would
each make a stream `s`, each remove the others, and each be its own majority. A group's members change by its own log
only: what stands here as `wanted` is what its leader is asked for, and reports when it is done.
"""

from collections import Counter
from collections.abc import ItemsView, Set

import msgspec
from msgspec import Struct

from vmq_cluster.raft.placement import apart, place_all

#: Voters of the meta group at most.
MAX_VOTERS = 5


class RefusedError(Exception):
    """A command that cannot be: every replica refuses it alike."""


class MakeStream(Struct, tag=1, array_like=True, frozen=True):
    """A stream that was not there. The id is random: a stream that is made anew under a name is another one."""

    name: str
    id: str
    partitions: int
    replicas: int
    #: The hosts that begin its groups alone, for each has the only copy of what there was before; "": nobody has any.
    begun: tuple[str, ...] = ()


class AddPartitions(Struct, tag=2, array_like=True, frozen=True):
    """The stream gets more partitions, `count` in all."""

    name: str
    count: int


class DeleteStream(Struct, tag=3, array_like=True, frozen=True):
    """The stream of this id is gone with all its groups."""

    name: str
    id: str


class SetHosts(Struct, tag=4, array_like=True, frozen=True):
    """These nodes take replicas from now on; what others have stays until it is moved.

    `labels`: what each shares a disk or a machine with, by a name that those others have, too; none: each is alone.
    `limits`: how many replicas each takes; 0, or none: as many as there are.
    """

    hosts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    limits: tuple[int, ...] = ()


class Move(Struct, tag=5, array_like=True, frozen=True):
    """A group is to have these voters."""

    group: str
    voters: tuple[str, ...]


class Moved(Struct, tag=6, array_like=True, frozen=True):
    """A group's leader says which voters its log names, committed; the term tells old news from new."""

    group: str
    voters: tuple[str, ...]
    term: int


class RetireStore(Struct, tag=7, array_like=True, frozen=True):
    """This store hands in nothing more: producers' tables forget it."""

    store: str


class SetReplicas(Struct, tag=8, array_like=True, frozen=True):
    """The stream gets another number of replicas; its groups move to have them, a few at a time."""

    name: str
    replicas: int


Command = (
    SetReplicas | MakeStream | AddPartitions | DeleteStream | SetHosts | Move | Moved | RetireStore
)

_decoder = msgspec.msgpack.Decoder(Command)


def encode(command: Command) -> bytes:
    """A command as a row of the meta group."""
    return msgspec.msgpack.encode(command)


class Placement(Struct, frozen=True):
    """The members of a group: as they are, as they are wanted, the term of the last news, and who began it."""

    voters: tuple[str, ...]
    wanted: tuple[str, ...]
    term: int = 0
    #: Its first members, each of which begins its log with them.
    first: tuple[str, ...] = ()


class Stream(Struct):
    """What is decided of a stream."""

    id: str
    partitions: int
    replicas: int


class Definitions:
    """The state that the meta group's commands make."""

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = ()
        #: What each of them shares a disk or a machine with.
        self.labels: dict[str, str] = {}
        #: How many replicas each takes, where that is bounded.
        self.limits: dict[str, int] = {}
        self.streams: dict[str, Stream] = {}
        self.groups: dict[str, Placement] = {}
        self.retired: set[str] = set()
        #: The groups that are wanted on the same nodes, by stream: of thousands of groups there are few such sets.
        self._sets: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        self._moving: set[str] = set()
        self._changed: set[str] = set()

    def apply(self, row: bytes) -> None:
        """Does what a committed row says. Raises `RefusedError`, and then nothing has changed."""
        command = _decoder.decode(row)
        match command:
            case MakeStream():
                self._make(command)
            case AddPartitions():
                self._grow(command)
            case DeleteStream():
                self._delete(command)
            case SetHosts():
                self.hosts = tuple(sorted(set(command.hosts)))
                self.labels = dict(zip(command.hosts, command.labels, strict=False))
                limits = zip(command.hosts, command.limits, strict=False)
                self.limits = {host: most for host, most in limits if most}
            case Move():
                self._move(command)
            case Moved():
                self._moved(command)
            case SetReplicas():
                self._set_replicas(command)
            case RetireStore():
                self.retired.add(command.store)

    def label(self, host: str) -> str:
        """What a node shares a disk or a machine with."""
        return self.labels.get(host, host)

    @property
    def room(self) -> int:
        """How many replicas of a group there can be, each on a host of its own."""
        return len(apart(self.hosts, self.labels))

    def moving(self) -> dict[str, tuple[str, ...]]:
        """The groups whose members are not yet those that are wanted."""
        return {name: self.groups[name].wanted for name in self._moving}

    def sets(self) -> ItemsView[tuple[str, tuple[str, ...]], Set[str]]:
        """The groups that are wanted on the same nodes, by their stream's id and these."""
        return self._sets.items()

    def take_changed(self) -> set[str]:
        """The groups that were made, changed or deleted since this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def _put(self, group: str, placement: Placement | None) -> None:
        """All that becomes of groups goes through here; None: it is no more."""
        stream = group.rpartition("/")[0]
        before = self.groups.pop(group, None)
        if before is not None:
            alike = self._sets[stream, before.wanted]
            alike.discard(group)
            if not alike:
                del self._sets[stream, before.wanted]
        self._moving.discard(group)
        if placement is not None:
            self.groups[group] = placement
            self._sets.setdefault((stream, placement.wanted), set()).add(group)
            if placement.wanted != placement.voters:
                self._moving.add(group)
        self._changed.add(group)

    def _make(self, command: MakeStream) -> None:
        if command.name in self.streams:
            raise RefusedError(f"there is a stream {command.name!r}")
        if command.partitions < 1 or command.replicas < 1:
            raise RefusedError("a stream has at least one partition, and that one replica")
        if self.room < command.replicas:
            raise RefusedError(
                f"{command.replicas} replicas need as many hosts: {self.room} are known"
            )
        placed = self.placed(command.id, 0, command.partitions, command.replicas)
        self.streams[command.name] = Stream(command.id, command.partitions, command.replicas)
        self._place(placed)
        for number, host in enumerate(command.begun[: command.partitions]):
            if host:
                group = f"{command.id}/{number}"
                wanted = apart((host, *self.groups[group].wanted), self.labels)
                alone = (host,)
                self._put(group, Placement(alone, tuple(wanted[: command.replicas]), 0, alone))

    def _set_replicas(self, command: SetReplicas) -> None:
        stream = self.streams.get(command.name)
        if stream is None or command.replicas < 1 or self.room < command.replicas:
            raise RefusedError(
                f"{command.name!r} is no stream that can have {command.replicas} replicas"
            )
        stream.replicas = command.replicas

    def _grow(self, command: AddPartitions) -> None:
        stream = self.streams.get(command.name)
        if stream is None or command.count <= stream.partitions:
            raise RefusedError(
                f"{command.name!r} is no stream that can have {command.count} partitions"
            )
        placed = self.placed(stream.id, stream.partitions, command.count, stream.replicas)
        stream.partitions = command.count
        self._place(placed)

    def placed(self, made: str, begin: int, end: int, replicas: int) -> dict[str, tuple[str, ...]]:
        """Where partitions of a stream of this id go. Raises `RefusedError` if there is no room for them."""
        groups = [f"{made}/{number}" for number in range(begin, end)]
        found = place_all(groups, self.hosts, replicas, self.labels, self.free())
        if any(len(voters) < replicas for voters in found.values()):
            raise RefusedError("nodes have as many replicas as they take")
        return found

    def free(self) -> dict[str, int]:
        """How many replicas nodes take yet, those that do not take as many as there are."""
        if not self.limits:
            return {}
        had: Counter[str] = Counter()
        for (_, nodes), groups in self._sets.items():
            for node in nodes:
                had[node] += len(groups)
        return {host: most - had[host] for host, most in self.limits.items()}

    def _place(self, placed: dict[str, tuple[str, ...]]) -> None:
        for group, voters in placed.items():
            self._put(group, Placement(voters, voters, 0, voters))

    def _delete(self, command: DeleteStream) -> None:
        stream = self.streams.get(command.name)
        if stream is None or stream.id != command.id:
            raise RefusedError(f"there is no stream {command.name!r} of this id")
        del self.streams[command.name]
        for number in range(stream.partitions):
            self._put(f"{stream.id}/{number}", None)

    def _move(self, command: Move) -> None:
        group = self.groups.get(command.group)
        if group is None or not command.voters:
            raise RefusedError(f"{command.group!r} is no group that can move there")
        if len(apart(command.voters, self.labels)) < len(command.voters):
            raise RefusedError("a host has one replica of a group")
        self._put(command.group, msgspec.structs.replace(group, wanted=command.voters))

    def _moved(self, command: Moved) -> None:
        group = self.groups.get(command.group)
        if group is None or command.term < group.term:
            raise RefusedError("that is old news")
        placement = msgspec.structs.replace(group, voters=command.voters, term=command.term)
        self._put(command.group, placement)
