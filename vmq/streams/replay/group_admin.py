"""What `vmq group list|show|reset|delete` ask of a running broker: groups that have members, and those that had."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vmq.streams.catalog import Catalog, Stream
from vmq.streams.groups.talk import FoundGroup
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.reader_places import CursorError, CursorKey, Place
from vmq.streams.replay.group import ConsumerGroup
from vmq.streams.replay.group_request import OWNER
from vmq.streams.replay.groups import group_key
from vmq.streams.replay.port import StreamReaders
from vmq.streams.replay.reading import ReplayReader

#: Seconds that the owners of partitions have to say where those end.
_PATIENCE = 3.0


class GroupView(NamedTuple):
    """One cursor of a group: of what it reads, where it is, and the clients of its members."""

    name: str
    stream: str
    filter: str
    where: str
    key: CursorKey
    positions: Mapping[int, int]
    members: list[str]
    #: Who has which partition.
    holders: Mapping[int, str]
    standing_by: list[str]
    stalled: list[str]


class GroupPartition(NamedTuple):
    """How far a group is in a partition. `client`: whose it is now; empty: nobody's."""

    partition: int
    position: int
    end: int
    lag: int
    client: str


async def groups_of(readers: StreamReaders, name: str = "") -> list[GroupView]:
    """The groups, or the cursors of one of them.

    Raises:
        StreamError: they cannot be read.
    """
    elsewhere = readers.catalog.groups
    if elsewhere is None:
        found = await _kept_here(readers)
    else:
        found = [
            _view(
                CursorKey(OWNER + each.group, each.reads),
                dict(each.positions),
                [member.client for member in each.members],
                dict(each.holders),
                list(each.standing_by),
                [member.client for member in each.members if member.is_stalled],
            )
            for each in await elsewhere.listed(name)
            if _is_there(readers.catalog, each)
        ]
    return sorted(each for each in found if name in ("", each.name))


def _is_there(catalog: Catalog, found: FoundGroup) -> bool:
    """Whether the stream that a group is in has not been deleted, as far as this node knows."""
    stream = catalog.streams.get(found.reads.partition("\0")[0])
    return found.stream in ("", None if stream is None else stream.ref.text)


async def _kept_here(readers: StreamReaders) -> list[GroupView]:
    kept = await readers.keeping.listed(OWNER)
    places = {key: place for key, _, place in kept}
    running = readers.groups.all
    return [
        _view(key, places[key].positions)
        if key not in running
        else _view(key, running[key].place().positions, *_members_of(running[key]))
        for key in places.keys() | running.keys()
    ]


def _members_of(group: ConsumerGroup) -> Iterator[object]:
    clients = group.clients()
    yield list(clients.values())
    yield {number: clients[hold.member] for number, hold in group.machine.holds.items()}
    stalled = {name for name, member in group.members.items() if member.is_stalled}
    yield [clients[name] for name in group.machine.standing_by() if name not in stalled]
    yield [clients[name] for name in stalled]


def _view(key: CursorKey, positions: Mapping[int, int], *members: object) -> GroupView:
    stream, topics, where = key.name.split("\0", 2)
    name = key.owner.removeprefix(OWNER)
    rest: tuple[object, ...] = members or ([], {}, [], [])
    return GroupView(name, stream, topics, where, key, positions, *rest)  # type: ignore[arg-type]


async def partitions_of(readers: StreamReaders, found: GroupView) -> list[GroupPartition]:
    """How far it is in each partition; nothing of a stream that is gone, or of partitions that do not answer."""
    stream = readers.catalog.streams.get(found.stream)
    if stream is None:
        return []
    logs = LogsAnywhere(stream, readers.catalog.places)
    numbers = range(logs.count())
    spans = await readers.keeping.loop.run_in_executor(None, logs.spans, numbers, _PATIENCE)
    rows = []
    for number, span in sorted(spans.items()):
        position = max(found.positions.get(number, 0), span.earliest)
        client = found.holders.get(number, "")
        lag = max(0, span.end - position)
        rows.append(GroupPartition(number, position, span.end, lag, client))
    return rows


def idle(found: GroupView) -> None:
    """Looks whether nobody reads by a cursor.

    Raises:
        StreamError: somebody does.
    """
    if found.members:
        raise StreamError(
            f"group {found.name!r} has {len(found.members)} members that read stream {found.stream!r}; "
            "accepted: when they have gone"
        )


async def reset(
    readers: StreamReaders, found: GroupView, stream: Stream, start: str | int
) -> GroupView:
    """Has a group begin elsewhere: `earliest`, `latest`, or a time in microseconds since 1970.

    Raises:
        StreamError: it has members, or the place cannot be kept.
    """
    idle(found)
    logs = LogsAnywhere(stream, readers.catalog.places)
    reader = ReplayReader(logs, stream.name, found.filter)
    begin = await readers.keeping.loop.run_in_executor(None, lambda: reader.begin(start))
    missing = [str(number) for number in range(logs.count()) if number not in begin]
    if missing:
        raise StreamError(
            f"partition {', '.join(missing)} of stream {stream.name!r} does not answer"
        )
    if readers.catalog.groups is not None:
        await readers.catalog.groups.change(group_key(found.key), begin, stream.ref.text)
        return found._replace(positions=begin)
    try:
        await readers.keeping.put(found.key, stream.ref, Place(begin, {}))
    except CursorError as error:
        raise StreamError(str(error)) from None
    return found._replace(positions=begin)


async def delete(readers: StreamReaders, found: GroupView) -> None:
    """Deletes a cursor of a group.

    Raises:
        StreamError: it has members.
    """
    idle(found)
    if readers.catalog.groups is not None:
        await readers.catalog.groups.change(group_key(found.key), None)
    else:
        await readers.keeping.forget(found.key)
