"""The streams of a running broker, for the operator."""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.admin.listing import Listing, Selection
from vmq.config.streams import StreamOptions
from vmq.streams.serving.opening import load_libraries

if TYPE_CHECKING:
    from vmq.clustering.raft.service import GroupService
    from vmq.clustering.streams.service import Streams
    from vmq.ports import BrokerView
    from vmq.streams.catalog import Catalog, Stream


#: Seconds that the nodes of a cluster have to say what they have of a stream.
_PATIENCE = 1.0
#: Seconds that a stream with copies has to be placed.
_PLACING = 10.0
#: Seconds that a move has to be decided.
_DECIDING = 10.0
#: Seconds that the files of a stream have to go.
_DELETING = 10.0
#: Partitions of a stream that are looked at between two passes of the loop.
_SLICE = 128
#: Copies of each partition of a stream, if there are so many nodes and nobody says another number.
_REPLICAS = 3


class StreamRow(Struct):
    """A stream, as this node has it. `gathered`, `dropped` and `refused` count messages since the broker's start."""

    stream: str
    #: "config" or "command".
    origin: str
    #: Messages still go into it: the configuration has not lost it.
    fed: bool
    filters: str
    partitions: int
    #: How many of them this node owns, or leads, of a replicated stream; null where it is in no cluster.
    owned: int | None
    #: Of a replicated stream: partitions without a leader, and with a replica that cannot be reached; else null.
    leaderless: int | None
    under_replicated: int | None
    #: Likewise: those that get other copies, and those of which this node's copy counts for nothing yet.
    moving: int | None
    abstaining: int | None
    messages: int
    bytes: int
    gathered: int
    dropped: int
    refused: int


class PartitionRow(Struct):
    """One partition of a stream: its offsets, messages, files. What only a node knows that does not answer is null."""

    partition: int
    #: The node that has it; empty where the broker is in no cluster, and of a replicated stream (`leader`, `replicas`).
    owner: str
    earliest: int | None
    end: int | None
    messages: int | None
    #: Of another node's it is null.
    segments: int | None
    bytes: int | None
    #: Of a replicated stream: the node that leads it, empty if none is known; and the nodes that have copies.
    leader: str = ""
    replicas: list[str] = []
    #: Those of them that do not count yet, for they lack what the others have; and who has a copy that is to go.
    joining: list[str] = []
    leaving: list[str] = []
    #: Of what this node has a replica of: the term of its group; and, where it leads, the offsets that others lack.
    term: int | None = None
    #: Null: nobody knows, for that node has not answered this leader yet.
    behind: dict[str, int | None] = {}
    #: Offsets that no copy had whole, and an operator has given up: first, and the one behind the last.
    given_up: list[tuple[int, int]] = []


class ColumnRow(Struct):
    """What rows did not give a typed column: those without a value for it, and those with one of another type.

    `rows` are those looked at: all of this node's sealed segments that have their columns beside them, and of what
    comes behind those the newest 10,000.
    """

    column: str
    rows: int
    missing: int
    unfit: int


class StreamDetails(Struct):
    """One stream with its options and partitions. Of a cluster's, messages and bytes are of all nodes that answer.

    The option `acks` is what counts, where none was given, too. `columns`: of a stream with a schema.
    `invalid`: those of their rows whose payload is no JSON.
    """

    stream: str
    origin: str
    fed: bool
    filters: str
    messages: int
    bytes: int
    gathered: int
    dropped: int
    refused: int
    options: StreamOptions
    partitions: list[PartitionRow]
    columns: list[ColumnRow] = []
    invalid: int = 0


def list_streams(broker: "BrokerView", selection: Selection | None = None) -> "Listing[StreamRow]":
    """All streams; none where none were ever made. Clients are served in between, however many partitions there are."""
    return Listing(StreamRow, _rows(broker), selection)


def _rows(broker: "BrokerView") -> Iterator[StreamRow | None]:
    if broker.streaming is None:
        return
    from vmq.streams import admin

    streams = broker.streaming.catalog.streams
    for name in sorted(streams):
        if (stream := streams.get(name)) is not None:
            yield _row(broker, admin.row(stream))
            yield from repeat(None, len(stream.partitions))  # each was as much work as a row


def _row(broker: "BrokerView", row: dict[str, Any]) -> StreamRow:
    owned = None
    if broker.clustering is not None and broker.streaming is not None:
        stream = broker.streaming.catalog.streams.get(row["stream"])
        owned = 0 if stream is None else broker.clustering.streams.owners(stream).count(None)
    names = ("leaderless", "under_replicated", "moving", "abstaining")
    state: dict[str, int | None] = dict.fromkeys(names)
    groups = None if broker.clustering is None else broker.clustering.streams.replicas.groups
    if groups is not None and groups.places.covers(row["stream"]):
        found = groups.places.figures(row["stream"])
        owned, state = found["led"], {each: found[each] for each in state}
    return msgspec.convert({**row, "owned": owned, **state}, StreamRow)


async def show_stream(broker: "BrokerView", name: str) -> StreamDetails:
    """One stream.

    Raises:
        NotFoundError: there is none of this name.
    """
    catalog = _catalog(broker, name)
    from vmq.streams import admin

    stream = catalog.streams[name]
    columns: dict[str, Any] = {}
    if stream.options.schema:
        columns = await asyncio.to_thread(admin.show_columns, catalog, stream)
    if catalog.streams.get(name) is not stream:  # it was deleted meanwhile
        return await show_stream(broker, name)
    found = {**admin.show_stream(catalog, name), **columns, "partitions": []}
    details = msgspec.convert(found, StreamDetails)
    for number, partition in enumerate(list(stream.partitions)):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        details.partitions.append(PartitionRow(owner="", **admin.partition_row(partition)))
    given = details.options
    acks = given.acknowledged_by if given.replicas > 1 else given.acks or "leader"
    details.options = msgspec.structs.replace(given, acks=acks)
    if broker.clustering is not None:
        await _ask_owners(broker.clustering.streams, stream, details)
    return details


async def _ask_owners(streams: "Streams", stream: "Stream", details: StreamDetails) -> None:
    """Completes what a node of a cluster knows of a stream."""
    owners = streams.owners(stream)
    groups = streams.replicas.groups
    if groups is not None:
        places = groups.places
        for row in details.partitions:
            if row.partition % _SLICE == 0:
                await asyncio.sleep(0)
            row.leader = places.leader(stream.name, row.partition)
            row.replicas = places.replicas(stream.name, row.partition)
            row.joining, row.leaving = groups.picture.change_of((stream.name, row.partition))
            standing = places.standing(stream.name, row.partition)
            if standing is not None:
                row.term, row.behind = standing.term, dict(standing.behind)
                row.given_up = list(standing.given_up)
    found = {}
    if streams.places is not None and any(owners):
        found = await streams.places.ask(stream.name, -1, _PATIENCE)
    for row, owner in zip(details.partitions, owners, strict=False):
        if not stream.is_replicated:
            row.owner = streams.own_name if owner is None else owner
        if owner is not None:
            row.segments = None
            nothing = None, None, None, None
            extent = found.get(row.partition, nothing)
            row.earliest, row.end, row.bytes, row.messages = extent
    details.messages = sum(row.messages or 0 for row in details.partitions)
    details.bytes = sum(row.bytes or 0 for row in details.partitions)


def find_stream(broker: "BrokerView", name: str) -> "Stream":
    """One stream, to be read.

    Raises:
        NotFoundError: there is none of this name.
    """
    return _catalog(broker, name).streams[name]


async def create_stream(broker: "BrokerView", name: str, options: dict[str, Any]) -> StreamRow:
    """Makes a stream, which stays after a restart; in a cluster with copies, if the options do not say how many.

    Raises:
        RefusedError: there is one of this name, streams cannot be used here, or its copies cannot be placed now.
        AdminError: the name or an option is wrong; the text says what is accepted.
    """
    try:
        await load_libraries()
        streaming = broker.open_streams()
    except RuntimeError as error:
        raise RefusedError(str(error)) from error
    from vmq.streams import admin
    from vmq.streams.log.errors import StreamError

    if name in streaming.catalog.streams:
        raise RefusedError(f"there is a stream {name!r} already")
    options = {**_copies(broker, options), **options}
    await streaming.catalog.leaving.see_off(name)
    try:
        if lacking := _lacking_room(broker, name, options):
            raise RefusedError(lacking)
        row = await admin.create_stream(streaming.catalog, name, options)
    except StreamError as error:
        raise AdminError(str(error)) from error
    except OSError as error:
        raise RefusedError(f"cannot make the stream: {error.strerror or error}") from error
    if broker.clustering is not None:
        lacking = await broker.clustering.streams.replicas.settle(name, _PLACING)
        if lacking:
            if name in streaming.catalog.streams:
                admin.delete_stream(streaming.catalog, name)
            raise RefusedError(lacking)
        await broker.clustering.streams.introductions.tell_all(name, _PLACING)
    return _row(broker, row)


def _lacking_room(broker: "BrokerView", name: str, options: dict[str, Any]) -> str:
    """Why the nodes of a cluster have no room for a stream; "" if they have."""
    if broker.clustering is None:
        return ""
    from vmq.streams import admin

    wanted = admin.checked(name, options)
    return broker.clustering.streams.lacking_room(name, range(wanted.partitions), wanted.replicas)


def _copies(broker: "BrokerView", options: dict[str, Any]) -> dict[str, Any]:
    """How many copies a stream gets where nobody says it, and who has a message before it is acknowledged.

    Workers of one machine share its disk, and keep none for each other. Of two copies a quorum would need both.
    """
    if broker.clustering is None or broker.share is not None:
        return {}
    found = min(_REPLICAS, len(broker.clustering.streams.members))
    return {"replicas": options.get("replicas", found)}


async def delete_stream(broker: "BrokerView", name: str) -> StreamRow:
    """Deletes a stream with its messages; returns what it was, when its files are gone or a while has gone by.

    Raises:
        NotFoundError: there is none of this name.
        RefusedError: the configuration names it, or the disk fails: it may be there again after a restart.
    """
    catalog = _catalog(broker, name)
    from vmq.streams import admin
    from vmq.streams.log.errors import StreamError

    try:
        row, done = admin.delete_stream(catalog, name)
    except StreamError as error:
        raise RefusedError(str(error)) from error
    deleted = _row(broker, row)
    gone = asyncio.wrap_future(done)
    await asyncio.wait([gone], timeout=_DELETING)
    if gone.done() and isinstance(failure := gone.exception(), OSError):
        raise RefusedError(f"cannot delete the stream's files: {failure.strerror or failure}")
    return deleted


async def alter_stream(broker: "BrokerView", name: str, changes: Mapping[str, Any]) -> StreamRow:
    """Has a stream keep other messages, or get another number of copies, while it is read and written.

    New partitions of a replicated stream are placed and led when this returns, or a while has gone by.

    Args:
        broker: the broker.
        name: the stream's.
        changes: the options that change; copies come in the background.

    Raises:
        NotFoundError: there is no such stream.
        RefusedError: an option is wrong or stands in the configuration, or there are not so many hosts.
    """
    catalog = _catalog(broker, name)
    stream, clustering = catalog.streams[name], broker.clustering
    in_cluster = clustering is not None and broker.share is None
    kept = {option: value for option, value in changes.items() if option != "replicas"}
    wrong = _why_not(stream, kept) if kept else ""
    if "partitions" in kept and not wrong:
        wrong = _why_no_more(broker, stream, kept["partitions"])
    if "replicas" in changes and not wrong:
        wrong = f"stream {name!r} is on this broker alone: copies take a cluster"
        if clustering is not None and in_cluster:
            wrong = clustering.streams.set_replicas(stream, changes["replicas"])
    if "partitions" in kept and not wrong:
        wrong = await _grow(catalog, name, kept["partitions"])
    if kept and not wrong:
        if clustering is not None and in_cluster:
            wrong = clustering.streams.set_options(stream, kept)
        else:
            catalog.adopt(name, msgspec.structs.replace(stream.options, **kept), stream.origin)
    if wrong or not changes:
        raise RefusedError(wrong or "nothing is to change; accepted: an option of the stream")
    if clustering is not None and "partitions" in kept:
        await clustering.streams.replicas.settle(name, _PLACING)
    return _shown(broker, name)


async def _grow(catalog: "Catalog", name: str, count: int) -> str:
    """Opens the partitions that a stream is to have more; returns why it cannot, "" if it has them."""
    from vmq.streams.growing import grow
    from vmq.streams.log.errors import StreamError

    try:
        await grow(catalog.leaving, catalog.get(name), count)
    except StreamError as error:
        return str(error)
    except OSError as error:
        return f"cannot make the partitions: {error.strerror or error}"
    return ""


def _why_not(stream: "Stream", changes: Mapping[str, Any]) -> str:
    """Why a stream cannot have other options; "" if it can."""
    from vmq.config.streams import from_plain

    if stream.fed and stream.origin != "command":
        where = "the configuration" if stream.origin == "config" else "a plugin's section"
        return f"stream {stream.name!r} stands in {where}: its options are changed there"
    try:
        from_plain(stream.name, {**msgspec.to_builtins(stream.options), **changes})
    except ValueError as error:
        return str(error)
    return ""


def _why_no_more(broker: "BrokerView", stream: "Stream", count: int) -> str:
    """Why a stream cannot have so many partitions; "" if it can."""
    more = range(len(stream.partitions), count)
    if count < more.start:
        return f"stream {stream.name!r} has {more.start} partitions, and none goes: accepted: that, or more"
    if broker.clustering is None:
        return _catalog(broker, stream.name).lacking_room(len(more))
    return broker.clustering.streams.lacking_room(stream.name, more, stream.options.replicas)


async def move_partition(
    broker: "BrokerView", name: str, partition: int, to: list[str]
) -> StreamRow:
    """Has a replicated partition go to other nodes; returns when that is decided, and it goes on in the background.

    Raises:
        NotFoundError: there is no such stream.
        RefusedError: its partitions are not replicated, or it cannot go there.
    """
    groups = _groups(broker, name)
    assert broker.clustering is not None
    before = groups.places.replicas(name, partition)
    lacking = broker.clustering.streams.lacking_room_at(each for each in to if each not in before)
    wrong = lacking or groups.requests.move(name, partition, to)
    if wrong:
        raise RefusedError(wrong)
    until = asyncio.get_running_loop().time() + _DECIDING
    while groups.places.replicas(name, partition) != to:
        if asyncio.get_running_loop().time() >= until:
            raise RefusedError(
                "it is noted, and goes on by itself, but is not decided yet: most nodes that decide "
                "where replicas are cannot be reached, or much is being moved"
            )
        await asyncio.sleep(0.02)
    return _shown(broker, name)


async def transfer_partition(broker: "BrokerView", name: str, partition: int, to: str) -> StreamRow:
    """Has another of a partition's replicas lead it; returns when it does.

    Raises:
        NotFoundError: there is no such stream.
        RefusedError: its partitions are not replicated, that node has no replica or cannot be reached, or does not
            lead yet after a while.
    """
    wrong = await _groups(broker, name).requests.transfer(name, partition, to)
    if wrong:
        raise RefusedError(wrong)
    return _shown(broker, name)


async def recover_stream(
    broker: "BrokerView", name: str, partition: int | None, *, force: bool = False
) -> StreamRow:
    """Has partitions whose majority is lost go on with this node's copies alone: what only others had is lost.

    `force`: also if most copies could be reached a moment ago.

    Raises:
        NotFoundError: there is no such stream.
        RefusedError: its partitions are not replicated, or a partition needs no such thing, or cannot go on here.
    """
    wrong = await _groups(broker, name).recover(name, partition, force=force)
    if wrong:
        raise RefusedError(wrong)
    return _shown(broker, name)


async def accept_loss(broker: "BrokerView", name: str, partition: int | None) -> StreamRow:
    """Notes that an operator knows what may be lost of a stream: no node's health names that any more.

    What no copy has whole is given up, in partitions that this node leads.

    Raises:
        NotFoundError: there is no such stream.
        RefusedError: its partitions are not replicated, or nothing of it may be lost as far as this node knows; or
            somebody has what is damaged here, or may have it.
    """
    wrong = await _groups(broker, name).requests.accept_loss(name, partition)
    if wrong:
        raise RefusedError(wrong)
    return _shown(broker, name)


async def rebalance_stream(broker: "BrokerView", name: str) -> StreamRow:
    """Has the replicas of a stream lead alike, those that can be reached: by preference the one that was placed first.

    Raises:
        NotFoundError: there is no such stream.
        RefusedError: its partitions are not replicated, or not all are led so after a while.
    """
    wrong = await _groups(broker, name).requests.rebalance(name)
    if wrong:
        raise RefusedError(wrong)
    return _shown(broker, name)


def _groups(broker: "BrokerView", name: str) -> "GroupService":
    stream = _catalog(broker, name).streams[name]
    groups = None if broker.clustering is None else broker.clustering.streams.replicas.groups
    if groups is None or not stream.is_replicated:
        raise RefusedError(f"one node has each partition of stream {name!r}: it has no replicas")
    return groups


def _shown(broker: "BrokerView", name: str) -> StreamRow:
    from vmq.streams import admin

    return _row(broker, admin.row(_catalog(broker, name).streams[name]))


def scrub_stream(broker: "BrokerView", name: str) -> StreamRow:
    """Has what this process has of a stream looked at before all others; `Broker.health` tells what is found.

    Raises:
        NotFoundError: there is none of this name.
    """
    catalog = _catalog(broker, name)
    from vmq.streams import admin

    return _row(broker, admin.scrub_stream(catalog, name))


def _catalog(broker: "BrokerView", name: str) -> "Catalog":
    """The catalog that has a stream."""
    known = [] if broker.streaming is None else sorted(broker.streaming.catalog.streams)
    if broker.streaming is None or name not in known:
        there = ", ".join(known[:20]) or "none"
        raise NotFoundError(f"there is no stream {name!r}; there are: {there}")
    return broker.streaming.catalog
