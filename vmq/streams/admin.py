"""What `vmq stream create|list|show|delete` ask of a running broker: plain values in, plain rows out.

Called in the event loop, as `vmq.admin` is; the errors are texts for the person at the other end.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from vmq.config.streams import StreamOptions, from_plain
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.extents import messages_in
from vmq.streams.log.errors import StreamError
from vmq.streams.log.partition import Partition
from vmq.streams.log.typed import Unfit


def show_stream(catalog: Catalog, name: str) -> dict[str, Any]:
    """One stream: its row and its options.

    Raises:
        UnknownStreamError: there is none of this name.
    """
    stream = catalog.get(name)
    return {**row(stream), "options": msgspec.to_builtins(stream.options)}


def show_columns(catalog: Catalog, stream: Stream) -> dict[str, Any]:
    """What the typed columns of a stream lack. It reads rows: not for the event loop."""
    counts = catalog.columns.counts_with_newest(stream.partitions)
    columns = [
        {
            "column": name,
            "rows": counts.rows,
            **msgspec.to_builtins(counts.columns.get(name, Unfit())),
        }
        for name in stream.options.schema
    ]
    return {"columns": columns, "invalid": counts.invalid}


def partition_row(partition: Partition) -> dict[str, Any]:
    """One partition, as this process has it."""
    return {
        "partition": partition.number,
        "earliest": partition.earliest,
        "end": partition.end,
        "messages": messages_in(partition),
        "segments": len(partition.sealed) + 1,
        "bytes": partition.size,
    }


async def create_stream(catalog: Catalog, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a stream of options as they stand in the configuration; it stays after a restart.

    Raises:
        StreamError: the name is taken or unusable, or an option is wrong: the text says what is accepted.
    """
    return row(await catalog.create(name, checked(name, options)))


def checked(name: str, options: Mapping[str, Any]) -> StreamOptions:
    """Options as they stand in the configuration.

    Raises:
        StreamError: one is wrong: the text says what is accepted.
    """
    try:
        return from_plain(name, dict(options))
    except ValueError as error:
        raise StreamError(str(error)) from None


def delete_stream(catalog: Catalog, name: str) -> "tuple[dict[str, Any], Future[None]]":
    """Deletes a stream and its messages; returns the row that it had, and what is done when its files are gone.

    Raises:
        StreamError: there is none of this name, or the configuration would make it again.
    """
    deleted = row(catalog.get(name))
    return deleted, catalog.delete(name)


def scrub_stream(catalog: Catalog, name: str) -> dict[str, Any]:
    """Has the partitions of a stream looked at for damage before all others; returns its row.

    Raises:
        StreamError: there is none of this name.
    """
    stream = catalog.get(name)
    for partition in stream.partitions:
        catalog.scrubber.ask(partition)
    return row(stream)


def row(stream: Stream) -> dict[str, Any]:
    """A stream in a list. `gathered` counts since the broker's start, as do the losses."""
    return {
        "stream": stream.name,
        "origin": stream.origin,
        "fed": stream.fed,
        "filters": ", ".join(stream.options.filters),
        "partitions": len(stream.partitions),
        "messages": sum(map(messages_in, stream.partitions)),
        "bytes": sum(each.size for each in stream.partitions),
        "gathered": stream.appender.messages,
        "dropped": stream.appender.dropped,
        "refused": stream.appender.refused,
    }
