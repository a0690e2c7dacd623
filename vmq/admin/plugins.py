"""The plugins of a running broker, for the operator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vmq.admin.errors import NotFoundError, RefusedError
from vmq.plugins.shadow import ShadowReport
from vmq.plugins.starting import PluginError
from vmq.plugins.status import Status

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: A plugin: whether it runs, where its code comes from, which hooks it has, how it fares.
PluginRow = Status


def list_plugins(broker: "BrokerView") -> list[PluginRow]:
    """The plugins of the configuration, those that run in the order in which they are asked."""
    return broker.plugins.statuses()


async def enable(broker: "BrokerView", name: str) -> PluginRow:
    """Loads and starts a plugin.

    Raises:
        RefusedError: it runs already, or cannot be loaded or started.
    """
    try:
        await broker.plugins.enable(name)
    except PluginError as error:
        raise RefusedError(str(error)) from error
    return _row(broker, name)


async def disable(broker: "BrokerView", name: str) -> PluginRow:
    """Takes a plugin out of the chains and stops it; `opened` says what everybody may do since then.

    Raises:
        RefusedError: it does not run.
    """
    try:
        opened = await broker.plugins.disable(name)
    except PluginError as error:
        raise RefusedError(str(error)) from error
    return _row(broker, name, opened)


async def shadow(broker: "BrokerView", name: str, seconds: float) -> ShadowReport:
    """Has a plugin's code as it is now asked beside what runs, without effect, for so long.

    Raises:
        RefusedError: it does not run, or the new code cannot be loaded or started.
    """
    try:
        return (await broker.plugins.shadow(name, seconds)).report()
    except PluginError as error:
        raise RefusedError(str(error)) from error


def show_shadow(broker: "BrokerView", name: str) -> ShadowReport:
    """What came of it so far.

    Raises:
        RefusedError: nothing was tried.
    """
    try:
        return broker.plugins.tried(name).report()
    except PluginError as error:
        raise RefusedError(str(error)) from error


async def reload(
    broker: "BrokerView", name: str, *, force: bool = False, commit: bool = False
) -> PluginRow:
    """Starts a plugin's code as it is now in place of what runs, or with `commit` the code that was tried.

    Raises:
        RefusedError: it does not run, or the new code cannot be loaded or started; or, without `force`, it serves an
            auth hook no more that it served.
    """
    try:
        opened = await broker.plugins.reload(name, force=force, commit=commit)
    except PluginError as error:
        raise RefusedError(str(error)) from error
    return _row(broker, name, opened)


def _row(broker: "BrokerView", name: str, opened: Sequence[str] = ()) -> PluginRow:
    for row in broker.plugins.statuses():
        if row.name == name:
            return msgspec.structs.replace(row, opened="; ".join(opened))
    raise NotFoundError(f"there is no plugin {name!r} any more")
