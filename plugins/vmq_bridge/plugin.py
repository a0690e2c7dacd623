"""The plugin: all bridges of the configuration."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vmq_hooks import Broker, Checking, Mistake, Plugin, SubscriberId, hook
from vmq_hooks.replacing import replace_file
from vmq_hooks.tls import TlsFileError

from vmq_bridge.bridge import Bridge
from vmq_bridge.config import BridgesConfig
from vmq_bridge.remote import tls_context

#: Seconds that a node that stands by has to take the session of a bridge that is no longer configured here.
PATIENCE: Final = 10.0


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
        self._bridges = {each.subscriber_id: each for each in bridges}
        sessions = broker.data_dir / "sessions"
        gone = [
            each
            for each in await broker.run_in_thread(_read, sessions)
            if each not in self._bridges
        ]
        await broker.run_in_thread(_write, sessions, [*self._bridges, *gone])
        for bridge in bridges:
            await bridge.begin()
        for bridge in bridges:
            broker.spawn(bridge.run(), f"bridge {bridge.name}")
        if gone:
            broker.spawn(self._end(broker, gone, sessions), "sessions of removed bridges")

    async def _end(self, broker: Broker, gone: list[SubscriberId], sessions: Path) -> None:
        """Ends the sessions of bridges that are no longer configured: else they would collect messages for nobody."""
        await asyncio.sleep(PATIENCE)
        for each in gone:
            node = await broker.connected_elsewhere(each)
            if node:
                broker.log.info("bridge removed: session %s is node %s's", each, node)
            else:
                await broker.disconnect(each, cleanup=True)
                broker.log.info("bridge removed: session %s ended", each)
        await broker.run_in_thread(_write, sessions, list(self._bridges))

    @hook
    def on_message_drop(self, subscriber_id: SubscriberId) -> None:
        bridge = self._bridges.get(subscriber_id)
        if bridge is not None:
            bridge.counters.dropped.add()


def _read(path: Path) -> list[SubscriberId]:
    try:
        return [
            SubscriberId(client_id, mountpoint)
            for client_id, mountpoint in json.loads(path.read_text())
        ]
    except (OSError, ValueError, TypeError):
        return []


def _write(path: Path, bridges: list[SubscriberId]) -> None:
    if bridges != _read(path):
        data = json.dumps([(each.client_id, each.mountpoint) for each in bridges])
        replace_file(path, data.encode())
