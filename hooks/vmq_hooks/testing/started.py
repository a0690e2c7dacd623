"""A plugin that is started for a test, and stopped at its end."""

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from vmq_hooks.plugin import Plugin
from vmq_hooks.testing.calls import call_async
from vmq_hooks.testing.fake_broker import FakeBroker
from vmq_hooks.testing.loop_thread import LoopThread

#: Seconds that a plugin may take to start, to stop, and for one verdict.
LIMIT: Final = 10.0


class StartedPlugin:
    """A plugin beside the broker that it sees.

    It lives in a loop of its own, so a plain test and one that is a coroutine ask it alike; nothing waits longer than
    LIMIT.
    """

    def __init__(self, plugin: Plugin, broker: FakeBroker, thread: LoopThread) -> None:
        self.plugin = plugin
        #: What the plugin asked the broker for is remembered here.
        self.broker = broker
        self._thread = thread

    def call(self, hook: str, /, **arguments: Any) -> Any:
        """Calls a hook and returns what the broker would make of its answer, as `vmq_hooks.testing.call` does."""
        return self._thread.run(call_async(self.plugin, hook, **arguments), LIMIT)

    def run(self, work: Any) -> Any:
        """The result of a coroutine in the plugin's loop, such as `broker.reload()`."""
        return self._thread.run(work, LIMIT)


@contextmanager
def started(
    plugin: Plugin, config: Any = None, *, folder: Path, broker: FakeBroker | None = None
) -> Iterator[StartedPlugin]:
    """Starts a plugin as the broker would, and stops it at the end; its spawned work ends as well.

    Args:
        plugin: the plugin.
        config: its `Config`, or a mapping of options as a configuration file has them; None = the defaults.
        folder: for files of the test: the plugin's config_dir.
        broker: what it sees; a new `FakeBroker` if it is left out.

    Raises:
        msgspec.ValidationError: the options are not those of the plugin.
        TypeError: it is no plugin; a class is none.
        TimeoutError: start, stop or a verdict takes longer than LIMIT.
    """
    if not isinstance(plugin, Plugin):
        raise TypeError(f"{plugin!r} is no plugin; accepted: an object of a subclass of Plugin")
    if config is None or isinstance(config, Mapping):
        config = msgspec.convert(dict(config or {}), type(plugin).Config)
    thread = LoopThread("vmq_hooks.testing")
    try:
        found = StartedPlugin(plugin, broker or thread.run(_fake(folder)), thread)
        thread.run(_start(plugin, found.broker, config))
        try:
            yield found
        finally:
            thread.run(_stop(plugin, found.broker))
    finally:
        thread.close()


async def _fake(folder: Path) -> FakeBroker:
    return FakeBroker(folder)


async def _start(plugin: Plugin, broker: FakeBroker, config: Any) -> None:
    async with asyncio.timeout(LIMIT):
        begun = plugin.start(broker, config)
        if inspect.isawaitable(begun):
            await begun


async def _stop(plugin: Plugin, broker: FakeBroker) -> None:
    try:
        async with asyncio.timeout(LIMIT):
            stopped = plugin.stop()
            if inspect.isawaitable(stopped):
                await stopped
    finally:
        await broker.close()
