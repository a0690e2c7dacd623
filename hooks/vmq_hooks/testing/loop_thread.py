"""An event loop in a thread of its own: tests use it from plain functions and from within a loop of their own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Seconds after which a test fails rather than hangs.
PATIENCE: Final = 30.0


class LoopThread:
    """Runs coroutines; `close` ends it, and whatever still runs in it.

    Args:
        name: of the thread.
        factory: makes the loop; asyncio's own if it is left out.
    """

    def __init__(
        self, name: str, factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> None:
        self._runner = asyncio.Runner(loop_factory=factory)
        self._ends = threading.Event()
        begun: threading.Event = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(begun,), name=name, daemon=True)
        self._thread.start()
        begun.wait(PATIENCE)

    def _serve(self, begun: threading.Event) -> None:
        with self._runner as runner:
            self.loop = runner.get_loop()
            self._over = asyncio.Event()
            begun.set()
            runner.run(self._over.wait())

    def run(self, work: Coroutine[Any, Any, T], timeout: float = PATIENCE) -> T:
        """The result of a coroutine in the loop, for a plain function.

        Raises:
            TimeoutError: it took longer; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise TimeoutError(f"not done within {timeout:g} s") from None

    async def reach(self, work: Coroutine[Any, Any, T], timeout: float = PATIENCE) -> T:  # noqa: ASYNC109 - as `run`
        """The result of a coroutine in the loop, for a coroutine of another loop."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        return await asyncio.wait_for(asyncio.wrap_future(future), timeout)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The loop does nothing for as long as the block runs."""
        has_stopped, goes_on = threading.Event(), threading.Event()

        def hold() -> None:
            has_stopped.set()
            goes_on.wait()

        self.loop.call_soon_threadsafe(hold)
        try:
            if not has_stopped.wait(PATIENCE):
                raise TimeoutError(f"the event loop is busy for {PATIENCE:g} s")
            yield
        finally:
            goes_on.set()

    def close(self) -> None:
        """Cancels what still runs, and ends the thread.

        Raises:
            TimeoutError: code in the loop never comes back.
        """
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._over.set)
            self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._thread.name} has not ended within {PATIENCE:g} s")
