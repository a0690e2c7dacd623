"""The plugin: takes the figures every so many seconds and has them sent."""

import asyncio
import time
from typing import Annotated

import msgspec
from vmq_hooks import Broker, Plugin

from vmq_graphite.lines import snapshot
from vmq_graphite.sender import Sender


class GraphiteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    host: Annotated[str, msgspec.Meta(min_length=1)] = "localhost"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 2003
    #: Seconds from one snapshot to the next.
    interval: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 20.0
    #: What the paths begin with, as an API key of a hosted service may; the node's name follows.
    prefix: Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\s;]*$")] = "vmq"
    #: Labels become Graphite's tags; else a metric is the sum of its values.
    include_labels: bool = False
    #: Seconds for a connection, and for a snapshot to be taken.
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 5.0
    #: The longest time in seconds between two attempts to connect.
    max_reconnect_delay: Annotated[float, msgspec.Meta(ge=1, le=86400)] = 60.0
    #: Bytes kept while Graphite is away; the oldest snapshots go first.
    buffer_bytes: Annotated[int, msgspec.Meta(ge=65536, le=1 << 30)] = 1 << 20


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
