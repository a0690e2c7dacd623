"""A real broker in the test's process, with plugins, on a free port of this machine.

Only this module needs the package vmq; it is loaded when a broker is asked for.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from vmq_hooks.plugin import Plugin


class RunningBroker:
    """A broker that runs.

    `broker` is the `vmq.Broker` itself, with its embedding API.
    """

    def __init__(self, broker: Any) -> None:
        self.broker = broker

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port of its MQTT listener."""
        return int(self.broker.addresses[0].rpartition(":")[2])


@asynccontextmanager
async def running_broker(
    folder: Path,
    plugins: Mapping[str, Plugin],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    allow_anonymous: bool = False,
) -> AsyncIterator[RunningBroker]:
    """Starts a broker with these plugins, and stops it at the end.

    Args:
        folder: for its data.
        plugins: the plugins by name, made by the test.
        options: [plugins.NAME] of each, as in a configuration file.
        allow_anonymous: let clients in without asking auth_on_register.
    """
    stated = options or {}
    broker = import_module("vmq").Broker(
        listen="tcp://127.0.0.1:0",
        data_dir=folder / "broker",
        auth={"allow_anonymous": allow_anonymous},
        plugins={name: (plugin, stated.get(name, {})) for name, plugin in plugins.items()},
    )
    async with broker:
        yield RunningBroker(broker)
