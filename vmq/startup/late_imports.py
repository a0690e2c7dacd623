"""Modules that are imported in a thread, while clients are served."""

import asyncio
from importlib import import_module
from typing import Any

_under_way: set[asyncio.Future[Any]] = set()


async def import_late(module: str) -> None:
    """Imports a module. Who is cancelled meanwhile waits no longer; the import goes on."""
    importing = asyncio.get_running_loop().run_in_executor(None, import_module, module)
    _under_way.add(importing)
    importing.add_done_callback(_under_way.discard)
    await asyncio.shield(importing)


async def imported() -> None:
    """Returns when nothing is being imported: that ends by itself, and nothing else ends it."""
    if _under_way:
        await asyncio.wait(_under_way)
