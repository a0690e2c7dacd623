"""The plugin: all bridges of the configuration."""

import json
from collections.abc import Iterator
from pathlib import Path

from vmq_hooks import Broker, Checking, Mistake, Plugin, SubscriberId, hook
from vmq_hooks.replacing import replace_file
from vmq_hooks.tls import TlsFileError

from vmq_bridge.bridge import Bridge
from vmq_bridge.config import BridgesConfig
from vmq_bridge.remote import tls_context


class BridgePlugin(Plugin):
    """Carries messages to and from other brokers."""

    Config = BridgesConfig

    def __init__(self) -> None:
        self._bridges: dict[SubscriberId, Bridge] = {}

    def check(self, broker: Checking, config: BridgesConfig) -> Iterator[Mistake]:
        for name, each in config.bridges.items():
            try:
                tls_context(each, broker.config_dir)
            except TlsFileError as error:
                yield Mistake(f"bridges.{name}.{error.option}", error.what)

    async def start(self, broker: Broker, config: BridgesConfig) -> None:
        if broker.worker > 1:
            return  # the first worker carries what is published in any of them; a second bridge would carry it twice
        bridges = [Bridge(broker, name, each) for name, each in config.bridges.items()]
        broker.gauge(
            "bridge_connected",
            "Whether the bridge is connected to the far broker.",
            lambda: (({"bridge": each.name}, each.is_connected) for each in bridges),
        )
        for bridge in bridges:
            await bridge.begin()
        self._bridges = {each.subscriber_id: each for each in bridges}
        await broker.when_open(_end_others(broker, list(self._bridges)))
        for bridge in bridges:
            broker.spawn(bridge.run(), f"bridge {bridge.name}")

    @hook
    def on_message_drop(self, subscriber_id: SubscriberId) -> None:
        bridge = self._bridges.get(subscriber_id)
        if bridge is not None:
            bridge.counters.dropped.add()


async def _end_others(broker: Broker, present: list[SubscriberId]) -> None:
    """Ends the sessions of bridges that are no longer configured: else they would collect messages for nobody."""
    path = broker.data_dir / "sessions"
    before = _read(path)
    for each in before:
        if each not in present:
            await broker.disconnect(each, cleanup=True)
            broker.log.info("bridge removed: session %s ended", each)
    if present != before:
        data = json.dumps([(each.client_id, each.mountpoint) for each in present])
        await broker.run_in_thread(replace_file, path, data.encode())


def _read(path: Path) -> list[SubscriberId]:
    try:
        return [
            SubscriberId(client_id, mountpoint)
            for client_id, mountpoint in json.loads(path.read_text())
        ]
    except (OSError, ValueError, TypeError):
        return []
