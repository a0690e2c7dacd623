"""The plugin: has the broker keep the streams that its section names."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from vmq_hooks import Broker, Plugin


class SparkStream(Struct, frozen=True, forbid_unknown_fields=True):
    """A stream for pipelines: as `[streams.NAME]`, with the defaults that suit Spark."""

    filters: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=65_535)]],
        Meta(
            min_length=1,
            max_length=1000,
            description="Topic filters (+ and #): what matches any of them is kept.",
            extra={"accepts": 'a list of topic filters, as in ["sensors/#"]'},
        ),
    ]
    partitions: Annotated[
        int,
        Meta(ge=1, le=1024, description="What Spark reads in parallel; may grow, not shrink."),
    ] = 4
    key: Annotated[
        str,
        Meta(
            description="Messages with the same key keep their order.",
            extra={"accepts": '"client_id", "topic", or "level:N" for the Nth level of the topic'},
        ),
    ] = "client_id"
    retention_age: Annotated[
        str,
        Meta(
            description="How long messages are kept: longer than a pipeline may be away.",
            extra={"accepts": "a number and a unit, as in 12h or 14d"},
        ),
    ] = "14d"
    retention_bytes: Annotated[
        int, Meta(ge=0, description="Bytes above which the oldest go; 0 = no limit.")
    ] = 0
    acks: Annotated[
        Literal["memory", "os", "fsync"],
        Meta(description="When publishers are acknowledged, as in [streams.NAME]."),
    ] = "os"


class SparkConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    streams: Annotated[
        dict[str, SparkStream],
        Meta(description="Streams by name.", extra={"accepts": "a table of tables"}),
    ] = {}


class SparkPlugin(Plugin):
    """Streams for Spark."""

    Config = SparkConfig

    async def start(self, broker: Broker, config: SparkConfig) -> None:
        for name, stream in config.streams.items():
            await broker.declare_stream(name, msgspec.to_builtins(stream))
