"""The plugin: takes the figures every so many seconds and has them sent."""

import asyncio
import time
from typing import Annotated

from msgspec import Meta, Struct
from vmq_hooks import Broker, Plugin

from vmq_graphite.lines import snapshot
from vmq_graphite.sender import Sender


class GraphiteConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Where Graphite listens.",
            extra={"accepts": "a name or an address"},
        ),
    ] = "localhost"
    port: Annotated[
        int, Meta(ge=1, le=65535, description="Its port for plaintext lines over TCP.")
    ] = 2003
    interval: Annotated[
        float, Meta(gt=0, le=86400, description="Seconds from one snapshot to the next.")
    ] = 20.0
    prefix: Annotated[
        str,
        Meta(
            max_length=1000,
            pattern=r"^[^\s;]*\Z",
            description="What the paths begin with, an API key for instance; the node's name follows.",
            extra={"accepts": "a text without blanks and semicolons"},
        ),
    ] = "vmq"
    include_labels: Annotated[
        bool,
        Meta(description="Labels become tags; else a figure is the sum of its values."),
    ] = False
    timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds for a connection, and for a snapshot to be taken.",
        ),
    ] = 5.0
    max_reconnect_delay: Annotated[
        float,
        Meta(
            ge=1,
            le=86400,
            description="The longest time in seconds between two attempts to connect.",
        ),
    ] = 60.0
    buffer_bytes: Annotated[
        int,
        Meta(
            ge=65536,
            le=1 << 30,
            description="Bytes kept while Graphite is away; the oldest snapshots go first.",
        ),
    ] = 1 << 20


class GraphitePlugin(Plugin):
    """Figures for Graphite, carbon-relay and whatever else reads their lines."""

    Config = GraphiteConfig

    def start(self, broker: Broker, config: GraphiteConfig) -> None:
        dropped = broker.counter(
            "graphite_dropped", "Snapshots dropped because Graphite was away for too long."
        )
        sender = Sender(
            broker,
            config.host,
            config.port,
            timeout=config.timeout,
            max_delay=config.max_reconnect_delay,
            max_bytes=config.buffer_bytes,
            on_drop=dropped.add,
        )
        broker.spawn(sender.run(), "graphite connection")
        broker.spawn(_take_for_ever(broker, config, sender), "graphite snapshots")


async def _take_for_ever(broker: Broker, config: GraphiteConfig, sender: Sender) -> None:
    while True:
        await asyncio.sleep(config.interval)
        sender.put(
            snapshot(
                config.prefix,
                broker.node_name,
                broker.metrics(),
                int(time.time()),
                labels=config.include_labels,
            )
        )
