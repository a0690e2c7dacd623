"""The first stream that a node hears of: what streams need is loaded before the catalog is opened."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from vmq.runtime.errors import StartError


class Loading:
    """A thread imports the libraries: the event loop would stand still for half a second of CPU.

    Args:
        opens: called in the event loop then; it says what is wrong where one is missing.
    """

    def __init__(self, opens: Callable[[], object]) -> None:
        self._opens = opens
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Has them loaded, if that does not go on already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._load())

    def then(self, call: Callable[[], None]) -> bool:
        """Whether that goes on; `call` is called in the event loop after it."""
        if self._task is None:
            return False
        self._task.add_done_callback(lambda _: call())
        return True

    async def _load(self) -> None:
        from vmq.streams.serving.opening import load_libraries  # it needs what only streams need

        try:
            with suppress(StartError):
                await load_libraries()
            self._opens()
        finally:
            self._task = None
