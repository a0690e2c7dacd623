"""What `vmq group list|show|reset|delete` ask of a running broker: groups that have members, and those that had."""

from typing import NamedTuple

from vmq.streams.catalog import Catalog, Stream
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.replay.cursors import CursorError, CursorKey, Place
from vmq.streams.replay.group import ConsumerGroup
from vmq.streams.replay.group_request import OWNER
from vmq.streams.replay.port import StreamReaders
from vmq.streams.replay.reading import ReplayReader


class GroupPlace(NamedTuple):
    """One cursor of a group: of what it reads, and where it is."""

    name: str
    stream: str
    filter: str
    where: str
    place: Place
    #: With its members; None: it has none now.
    group: ConsumerGroup | None
    key: CursorKey


class GroupPartition(NamedTuple):
    """How far a group is in a partition. `client`: whose it is now; empty: nobody's."""

    partition: int
    position: int
    end: int
    lag: int
    client: str


async def places_of(readers: StreamReaders, name: str | None = None) -> list[GroupPlace]:
    """The groups, or the cursors of one of them.

    Raises:
        StreamError: they cannot be read.
    """
    kept = await readers.keeping.listed(OWNER)
    found: dict[CursorKey, tuple[Place, ConsumerGroup | None]] = {
        key: (place, None) for key, _, place in kept
    }
    found |= {key: (group.place(), group) for key, group in readers.groups.all.items()}
    rows = []
    for key, (place, group) in sorted(found.items(), key=lambda each: each[0]):
        of = key.owner.removeprefix(OWNER)
        if name is None or of == name:
            stream, topics, where = key.name.split("\0", 2)
            rows.append(GroupPlace(of, stream, topics, where, place, group, key))
    return rows


def partitions_of(found: GroupPlace, catalog: Catalog) -> list[GroupPartition]:
    """How far it is in each partition; nothing of a stream that is gone."""
    stream = catalog.streams.get(found.stream)
    if stream is None:
        return []
    clients: dict[int, str] = {}
    if found.group is not None:
        for number, hold in found.group.machine.holds.items():
            clients[number] = found.group.members[hold.member].queue.client_id
    rows = []
    for each in stream.partitions:
        position = max(found.place.positions.get(each.number, 0), each.earliest)
        end = each.end
        client = clients.get(each.number, "")
        rows.append(GroupPartition(each.number, position, end, max(0, end - position), client))
    return rows


def idle(found: GroupPlace) -> None:
    """Looks whether nobody reads by a cursor.

    Raises:
        StreamError: somebody does.
    """
    if found.group is not None and found.group.members:
        raise StreamError(
            f"group {found.name!r} has {len(found.group.members)} members that read stream {found.stream!r}; "
            "accepted: when they have gone"
        )


async def reset(
    readers: StreamReaders, found: GroupPlace, stream: Stream, start: str | int
) -> GroupPlace:
    """Has a group begin elsewhere: `earliest`, `latest`, or a time in microseconds since 1970.

    Raises:
        StreamError: it has members, or the place cannot be kept.
    """
    idle(found)
    logs = LogsAnywhere(stream, readers.catalog.places)
    reader = ReplayReader(logs, stream.name, found.filter)
    begin = await readers.keeping.loop.run_in_executor(None, lambda: reader.begin(start))
    place = Place(begin, {})
    try:
        await readers.keeping.put(found.key, stream.name, place)
    except CursorError as error:
        raise StreamError(str(error)) from None
    return found._replace(place=place)


async def delete(readers: StreamReaders, found: GroupPlace) -> None:
    """Deletes a cursor of a group.

    Raises:
        StreamError: it has members.
    """
    idle(found)
    await readers.keeping.forget(found.key)
