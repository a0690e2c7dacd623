"""The consumer groups of a running broker, for the operator."""

from typing import TYPE_CHECKING

from msgspec import Struct

from vmq.admin.errors import AdminError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from vmq.ports import BrokerView
    from vmq.streams.replay.group_admin import GroupView
    from vmq.streams.serving.service import Streaming


class GroupRow(Struct):
    """A group, by what it reads.

    `lag` counts messages that are committed and not acknowledged; null: the stream is gone.
    """

    group: str
    stream: str
    filter: str
    where: str
    members: int
    lag: int | None


class GroupPartitionRow(Struct):
    """How far a group is in a partition. `client`: who has it now; empty: nobody."""

    partition: int
    position: int
    end: int
    lag: int
    client: str


class GroupDetails(Struct):
    """A group with its partitions and members; those that stand by, or are stalled, have no partition."""

    group: str
    stream: str
    filter: str
    where: str
    members: int
    lag: int | None
    partitions: list[GroupPartitionRow]
    standing_by: list[str]
    stalled: list[str]


async def list_groups(broker: "BrokerView") -> list[GroupRow]:
    """All groups that have members, or had some in the last days.

    Raises:
        AdminError: nobody who knows them answers.
    """
    if broker.streaming is None:
        return []
    found = await _groups_of(broker.streaming)
    return [await _row(broker.streaming, each) for each in found]


async def show_group(broker: "BrokerView", group: str, stream: str, topics: str) -> GroupDetails:
    """One group.

    Raises:
        NotFoundError: there is none of this name, or none that reads this.
        AdminError: it reads several things; the text says which.
    """
    found = await _find(broker, group, stream, topics)
    from vmq.streams.replay import group_admin

    streaming = _streaming(broker)
    row = await _row(streaming, found)
    partitions = await group_admin.partitions_of(streaming.readers, found)
    return GroupDetails(
        row.group,
        row.stream,
        row.filter,
        row.where,
        row.members,
        row.lag,
        [GroupPartitionRow(*each) for each in partitions],
        found.standing_by,
        found.stalled,
    )


async def reset_group(
    broker: "BrokerView", group: str, stream: str, topics: str, to: str
) -> GroupRow:
    """Has a group without members begin elsewhere.

    Raises:
        NotFoundError: there is none.
        AdminError: it reads several things, or `to` is no place.
        RefusedError: it has members.
    """
    found = await _find(broker, group, stream, topics)
    streaming = _streaming(broker)
    from vmq.mqtt.special import SpecialTopicError
    from vmq.streams.log.errors import StreamError
    from vmq.streams.replay import group_admin
    from vmq.streams.replay.request import read_start

    there = streaming.catalog.streams.get(found.stream)
    if there is None:
        raise NotFoundError(f"there is no stream {found.stream!r}")
    try:
        start = read_start(to, streaming.core.wall_clock())
    except SpecialTopicError as error:
        raise AdminError(str(error)) from None
    try:
        found = await group_admin.reset(streaming.readers, found, there, start)
    except StreamError as error:
        raise RefusedError(str(error)) from None
    return await _row(streaming, found)


async def delete_group(broker: "BrokerView", group: str, stream: str, topics: str) -> GroupRow:
    """Deletes the place of a group without members.

    Raises:
        NotFoundError: there is none.
        RefusedError: it has members.
    """
    found = await _find(broker, group, stream, topics)
    streaming = _streaming(broker)
    from vmq.streams.log.errors import StreamError
    from vmq.streams.replay import group_admin

    row = await _row(streaming, found)
    try:
        await group_admin.delete(streaming.readers, found)
    except StreamError as error:
        raise RefusedError(str(error)) from None
    return row


async def _row(streaming: "Streaming", found: "GroupView") -> GroupRow:
    from vmq.streams.replay import group_admin

    lag = None
    if found.stream in streaming.catalog.streams:
        partitions = await group_admin.partitions_of(streaming.readers, found)
        lag = sum(each.lag for each in partitions)
    return GroupRow(found.name, found.stream, found.filter, found.where, len(found.members), lag)


async def _groups_of(streaming: "Streaming", name: str = "") -> "list[GroupView]":
    from vmq.streams.log.errors import StreamError
    from vmq.streams.replay import group_admin

    try:
        return await group_admin.groups_of(streaming.readers, name)
    except StreamError as error:
        raise AdminError(str(error)) from None


def _streaming(broker: "BrokerView") -> "Streaming":
    if broker.streaming is None:
        raise NotFoundError("there are no streams")
    return broker.streaming


async def _find(broker: "BrokerView", group: str, stream: str, topics: str) -> "GroupView":
    found = await _groups_of(_streaming(broker), group)
    if not found:
        raise NotFoundError(f"there is no group {group!r:.100}")
    fitting = [
        each for each in found if stream in ("", each.stream) and topics in ("", each.filter)
    ]
    if len(fitting) == 1:
        return fitting[0]
    reads = "; ".join(f"stream {each.stream}, filter {each.filter}" for each in found[:20])
    if not fitting:
        raise NotFoundError(f"group {group!r:.100} does not read that; it reads: {reads}")
    raise AdminError(f"group {group!r:.100} reads several things, name stream and filter: {reads}")
