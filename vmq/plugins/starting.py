"""A plugin's start and its end: each in its time, and told where it hangs or fails."""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Iterable
from typing import Any, Final

from vmq.plugins.guard import GRACE, LateError, within
from vmq.plugins.handle import STOP_TIMEOUT, Handle
from vmq.plugins.loaded import LoadedPlugin
from vmq.plugins.loading import forget
from vmq.plugins.places import said, where_it_waits, where_raised
from vmq.plugins.steps import ends_task

log = logging.getLogger("vmq.plugins")

#: Seconds that a plugin has to start.
START_TIMEOUT: Final = 30.0
#: Seconds after which the log says that a plugin is still starting.
TELL_AFTER: Final = 2.0


class PluginError(Exception):
    """A change of plugins that was not made; the text is for the operator."""


async def start(loaded: LoadedPlugin, handle: Handle, config: Any) -> None:
    """Starts a plugin and asks which hooks it serves.

    Raises:
        PluginError: it cannot, or not in time; the handle is closed then.
    """
    try:
        started = loaded.plugin.start(handle, config)
        if inspect.isawaitable(started):
            await _patiently(loaded, started)
        loaded.steps = {
            hook: step for hook, step in loaded.steps.items() if loaded.plugin.serves(hook)
        }
    except BaseException as error:
        await handle.close()
        if ends_task(error):
            raise
        what = said(error)
        if isinstance(error, LateError):
            what = f"it has not started within {START_TIMEOUT:.0f} s"
        where = where_raised(error, loaded.source)
        raise PluginError(f"plugin {loaded.name} cannot start: {what}{where}") from error


async def _patiently(loaded: LoadedPlugin, started: Awaitable[None]) -> None:
    """Waits for a plugin's start, and tells after a while where it hangs."""

    def tell() -> None:
        log.warning(
            "plugin %s is still starting%s; it has %.0f s",
            loaded.name,
            where_it_waits(started, loaded.source),
            START_TIMEOUT,
        )

    timer = asyncio.get_running_loop().call_later(TELL_AFTER, tell)
    try:
        await within(START_TIMEOUT, started)
    finally:
        timer.cancel()


async def retire(
    old: LoadedPlugin, beside: Iterable[LoadedPlugin] = (), *, keep_code: bool = False
) -> None:
    """Lets a plugin answer what it was asked, then stops it. What fails is logged.

    Args:
        old: the plugin.
        beside: those that chains under way may ask before they ask it.
        keep_code: its modules stay, as another plugin of the same class serves.
    """
    patience = sum(each.guard.deadline for each in {old, *beside})
    try:
        await old.notices.finish(STOP_TIMEOUT)
        # Each verdict has its deadline, but for those that wait for their turn: `stop` answers them.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience + GRACE):
                await old.guard.wait_idle()
        old.guard.end()
        stopped = old.plugin.stop()
        if inspect.isawaitable(stopped):
            await within(STOP_TIMEOUT, stopped)
    except LateError:
        log.error(
            "plugin %s: stop has not ended within %g s%s; it is left behind",
            old.name,
            STOP_TIMEOUT,
            where_it_waits(stopped, old.source),
        )
    except BaseException as error:
        if ends_task(error):
            raise
        log.error("plugin failed to stop name=%s", old.name, exc_info=error)
    if old.handle is not None:
        await old.handle.close()
    if not keep_code:
        forget(old.name, type(old.plugin))
