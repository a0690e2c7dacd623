"""The options of one stream, and which of them go together."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.config.columns import (
    COLUMN_FORMS,
    SCHEMA_FILE_FORMS,
    TypedColumn,
    columns_of_file,
    read_columns,
)
from vmq.config.values import (
    ARCHIVE_FORMS,
    DURATION_FORMS,
    DURATION_PATTERN,
    parse_duration,
    read_archive,
)
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import DELAYED, JOBS, REPLAY, STREAM
from vmq.mqtt.topics import SHARE_PREFIX, check_filter

_LEVEL: Final = re.compile(r"level:([1-9][0-9]{0,2})\Z")
#: As names of tables in the configuration are.
_NAME: Final = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*\Z")
_LONGEST_NAME: Final = 100
KEY_FORMS: Final = '"client_id", "topic", or "level:N" for the Nth level of the topic (N 1 to 128)'
_COMMANDS: Final = (JOBS, DELAYED, REPLAY, STREAM)
FILTER_FORMS: Final = 'a list of topic filters, as in ["sensors/+/temp", "plant/#"]'


class StreamOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stream: a durable, partitioned log of the messages that match its filters."""

    filters: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=65_535)]],
        Meta(
            min_length=1,
            max_length=1000,
            description="Topic filters (+ and #): what matches any of them is kept.",
            extra={"accepts": FILTER_FORMS},
        ),
    ]
    partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Logs that the messages are spread over; may grow later, not shrink.",
        ),
    ] = 1
    key: Annotated[
        str,
        Meta(
            pattern=r"^(client_id|topic|level:([1-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))\Z",
            description="What decides the partition: messages with the same key keep their order.",
            extra={"accepts": KEY_FORMS},
        ),
    ] = "client_id"
    retention_age: Annotated[
        str,
        Meta(
            pattern=DURATION_PATTERN,
            description="How long messages are kept; whole segments are deleted (1m = 30 days).",
            extra={"accepts": DURATION_FORMS},
        ),
    ] = "14d"
    retention_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes of the whole stream, with those of rows by topic and typed columns, shared evenly by "
            "its partitions, above which the oldest segments are deleted; 0 = no limit.",
        ),
    ] = 0
    compact: Annotated[
        bool,
        Meta(
            description="Of the messages of a key only the newest stays, once their segments are sealed; an empty one "
            "says that its key is gone, and goes itself after a day. Beside retention_age, which may be never."
        ),
    ] = False
    compact_by: Annotated[
        Literal["topic", "key"],
        Meta(
            description="What compact takes as the key: the topic, or what decides the partition."
        ),
    ] = "topic"
    segment_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 32, description="Size at which a segment is sealed, in bytes."),
    ] = 134_217_728
    segment_age: Annotated[
        str,
        Meta(
            pattern=DURATION_PATTERN,
            description="Age at which a segment is sealed, whatever its size.",
            extra={"accepts": DURATION_FORMS},
        ),
    ] = "1d"
    compression: Annotated[
        Literal["none", "lz4", "zstd"],
        Meta(description="How record batches are compressed."),
    ] = "lz4"
    replicas: Annotated[
        int,
        Meta(
            ge=0,
            le=5,
            description="Nodes of a cluster, each on a host of its own, that have a copy of each partition; 1 = one "
            "node has it; 0 = three, or as many as there are. It may be raised later.",
        ),
    ] = 0
    topic_order: Annotated[
        bool,
        Meta(
            description="Beside each large sealed segment its rows lie once more, by topic, for readers of few topics; "
            "about half of its bytes more, which retention_bytes counts."
        ),
    ] = True
    archive: Annotated[
        str,
        Meta(
            max_length=1000,
            description="Where segments go that retention takes, as Parquet; they stay readable from there. Empty = "
            "nowhere. Of a partition with replicas its leader archives.",
            extra={"accepts": ARCHIVE_FORMS},
        ),
    ] = ""
    archive_required: Annotated[
        bool,
        Meta(
            description="Nothing is deleted that is not archived, though it is more than retention_bytes; else it is "
            "deleted then, and counted (stream_unarchived)."
        ),
    ] = False
    schema: Annotated[
        dict[str, str],
        Meta(
            description="Typed columns of the payloads and topics, for readers by Flight, SQL and Spark.",
            extra={"accepts": COLUMN_FORMS},
        ),
    ] = {}
    schema_file: Annotated[
        str,
        Meta(
            description="A JSON schema of the payloads, read with the configuration: its properties are columns beside "
            "those of schema, which come first.",
            extra={"accepts": SCHEMA_FILE_FORMS},
        ),
    ] = ""
    acks: Annotated[
        Literal["", "none", "leader", "quorum", "memory", "os", "fsync"],
        Meta(
            description="Publishers are acknowledged at once, when the node that leads the partition has the "
            'message, or when most of its replicas have it. Empty = "quorum", with two replicas "leader". The others '
            "are read as durability.",
        ),
    ] = ""
    without_quorum: Annotated[
        Literal["wait", "keep"],
        Meta(
            description="What publishers to a partition get of which most replicas cannot be reached: they wait, or "
            "they are acknowledged after a second, once this node's disk has the message: the only copy until there is "
            "a leader again. With replicas.",
        ),
    ] = "wait"
    durability: Annotated[
        Literal["memory", "os", "fsync"],
        Meta(
            description="What it means to have a message: in memory, with the operating system (survives a "
            "crash of the broker), or on disk (survives power loss).",
        ),
    ] = "os"

    def __post_init__(self) -> None:
        """What earlier versions called acks is durability."""
        if self.acks in {"memory", "os", "fsync"}:
            msgspec.structs.force_setattr(self, "durability", self.acks)
            msgspec.structs.force_setattr(self, "acks", "")

    @property
    def acknowledged_by(self) -> str:
        """Who has a message when its publisher is acknowledged: "none", "leader" or "quorum".

        Of two replicas a quorum would need both.
        """
        return self.acks or ("leader" if self.replicas == 2 else "quorum")

    def with_copies_of(self, before: "StreamOptions") -> "StreamOptions":
        """These, for a stream that had others before: what got copies keeps some, for groups have its log."""
        if self.replicas > 1 or before.replicas <= self.replicas:
            return self
        return msgspec.structs.replace(self, replicas=before.replicas)

    @property
    def typed(self) -> list[TypedColumn]:
        """The typed columns.

        Raises:
            ValueError: one of them is wrong.
        """
        return read_columns(self.schema)

    @property
    def retention_age_seconds(self) -> int | None:
        """`retention_age` in seconds; None = for ever."""
        return parse_duration(self.retention_age)

    @property
    def segment_age_seconds(self) -> float:
        """`segment_age` in seconds."""
        seconds = parse_duration(self.segment_age)
        return float("inf") if seconds is None else float(seconds)

    @property
    def key_level(self) -> int:
        """Which level of the topic is the key, from 1; 0 = the key is no level."""
        found = _LEVEL.match(self.key)
        return int(found[1]) if found else 0


def check_name(name: str) -> None:
    """Refuses what cannot be a stream's name, and with it a folder's.

    Raises:
        ValueError: it cannot.
    """
    if not _NAME.match(name) or len(name) > _LONGEST_NAME:
        raise ValueError(
            f"{name!r:.120} is no name for a stream; accepted: lower-case letters and digits, "
            f"joined by single _ or -, {_LONGEST_NAME} at most"
        )


def with_columns_of_file(options: StreamOptions) -> StreamOptions:
    """The options with the columns that the schema's file brings.

    Raises:
        ValueError: the file cannot be used.
    """
    if not options.schema_file:
        return options
    try:
        columns = columns_of_file(Path(options.schema_file))
    except ValueError as error:
        raise ValueError(f"{error}; accepted: {SCHEMA_FILE_FORMS}") from None
    return msgspec.structs.replace(options, schema={**columns, **options.schema})


def problems_of(options: StreamOptions) -> Iterator[tuple[str, str]]:
    """What types and bounds do not show: the option and what is wrong with it."""
    for each in options.filters:
        try:
            check_filter(each)
        except ProtocolError as error:
            yield "filters", f"{error}; accepted: {FILTER_FORMS}"
        else:
            if each.startswith(SHARE_PREFIX):
                what = "a stream gets every message, so a share group has no meaning"
                yield "filters", f"{what}; accepted: {FILTER_FORMS}"
            elif each.startswith(_COMMANDS):
                what = f"no message is published to {each.split('/')[0]}/..., which asks the broker for something"
                yield "filters", f"{what}; accepted: {FILTER_FORMS}"
            elif "\0" in each:
                yield "filters", f"U+0000 is in no topic; accepted: {FILTER_FORMS}"
    try:
        read_archive(options.archive)
    except ValueError as error:
        yield "archive", str(error)
    try:
        read_columns(options.schema)
    except ValueError as error:
        yield "schema", str(error)


def from_plain(name: str, plain: object) -> StreamOptions:
    """Options as JSON keeps them.

    Raises:
        ValueError: with what is wrong.
    """
    try:
        options = msgspec.convert(plain, StreamOptions)
    except msgspec.ValidationError as error:
        raise ValueError(f"streams.{name}: {error}") from None
    for option, what in problems_of(options):
        raise ValueError(f"streams.{name}.{option}: {what}")
    return options
