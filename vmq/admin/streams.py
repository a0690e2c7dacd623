"""The streams of a running broker, for the operator."""

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.config_streams import StreamOptions

if TYPE_CHECKING:
    from vmq.broker import Broker
    from vmq.streams.catalog import Catalog, Stream


class StreamRow(Struct):
    """A stream. `gathered`, `dropped` and `refused` count messages since the broker's start."""

    stream: str
    #: "config" or "command".
    origin: str
    #: Messages still go into it: the configuration has not lost it.
    fed: bool
    filters: str
    partitions: int
    messages: int
    bytes: int
    gathered: int
    dropped: int
    refused: int


class PartitionRow(Struct):
    """One partition of a stream: its offsets, and its files."""

    partition: int
    earliest: int
    end: int
    segments: int
    bytes: int


class StreamDetails(Struct):
    """One stream with its options and partitions."""

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


def list_streams(broker: "Broker") -> list[StreamRow]:
    """All streams; none where none were ever made."""
    if broker.streaming is None:
        return []
    from vmq.streams import admin

    return msgspec.convert(admin.list_streams(broker.streaming.catalog), list[StreamRow])


def show_stream(broker: "Broker", name: str) -> StreamDetails:
    """One stream.

    Raises:
        NotFoundError: there is none of this name.
    """
    catalog = _catalog(broker, name)
    from vmq.streams import admin

    return msgspec.convert(admin.show_stream(catalog, name), StreamDetails)


def find_stream(broker: "Broker", name: str) -> "Stream":
    """One stream, to be read.

    Raises:
        NotFoundError: there is none of this name.
    """
    return _catalog(broker, name).streams[name]


def create_stream(broker: "Broker", name: str, options: dict[str, Any]) -> StreamRow:
    """Makes a stream, which stays after a restart.

    Raises:
        RefusedError: there is one of this name, or streams cannot be used here.
        AdminError: the name or an option is wrong; the text says what is accepted.
    """
    try:
        streaming = broker.open_streams()
    except RuntimeError as error:
        raise RefusedError(str(error)) from error
    from vmq.streams import admin
    from vmq.streams.errors import StreamError

    if name in streaming.catalog.streams:
        raise RefusedError(f"there is a stream {name!r} already")
    try:
        return msgspec.convert(admin.create_stream(streaming.catalog, name, options), StreamRow)
    except StreamError as error:
        raise AdminError(str(error)) from error
    except OSError as error:
        raise RefusedError(f"cannot make the stream: {error.strerror or error}") from error


def delete_stream(broker: "Broker", name: str) -> StreamRow:
    """Deletes a stream with its messages; returns what it was.

    Raises:
        NotFoundError: there is none of this name.
        RefusedError: the configuration names it.
    """
    catalog = _catalog(broker, name)
    from vmq.streams import admin
    from vmq.streams.errors import StreamError

    try:
        return msgspec.convert(admin.delete_stream(catalog, name), StreamRow)
    except StreamError as error:
        raise RefusedError(str(error)) from error


def _catalog(broker: "Broker", name: str) -> "Catalog":
    """The catalog that has a stream."""
    known = [] if broker.streaming is None else sorted(broker.streaming.catalog.streams)
    if broker.streaming is None or name not in known:
        there = ", ".join(known[:20]) or "none"
        raise NotFoundError(f"there is no stream {name!r}; there are: {there}")
    return broker.streaming.catalog
