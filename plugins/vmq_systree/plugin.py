"""The plugin: publishes all figures every so many seconds."""

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct
from vmq_hooks import Broker, Plugin

from vmq_systree.tree import messages


class SystreeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    interval: Annotated[
        float, Meta(gt=0, le=86400, description="Seconds from one publishing to the next.")
    ] = 20.0
    prefix: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1000,
            pattern=r"^[^+#\0]+\Z",
            description="What the topics begin with; the node's name follows.",
            extra={"accepts": "the beginning of a topic"},
        ),
    ] = "$SYS"
    qos: Annotated[Literal[0, 1, 2], Meta(description="The QoS of the messages.")] = 0
    retain: Annotated[
        bool, Meta(description="Whether new subscribers get the last figures at once.")
    ] = False
    mountpoint: Annotated[
        str, Meta(description="The mountpoint whose clients see the figures.")
    ] = ""


class SystreePlugin(Plugin):
    """`$SYS/NODE/...` for dashboards that speak MQTT only."""

    Config = SystreeConfig

    def start(self, broker: Broker, config: SystreeConfig) -> None:
        broker.spawn(_publish_for_ever(broker, config), "systree")


async def _publish_for_ever(broker: Broker, config: SystreeConfig) -> None:
    complaint = ""
    while True:
        await asyncio.sleep(config.interval)
        try:
            await _publish(broker, config)
            complaint = ""
        except Exception as error:  # noqa: BLE001 - whatever it is, it may be over at the next interval
            if str(error) != complaint:
                complaint = str(error)
                broker.log.error("the figures were not published: %s", error)


async def _publish(broker: Broker, config: SystreeConfig) -> None:
    for topic, payload in messages(config.prefix, broker.node_name, broker.metrics()):
        await broker.publish(
            topic, payload, qos=config.qos, retain=config.retain, mountpoint=config.mountpoint
        )
