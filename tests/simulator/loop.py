"""An event loop on the simulator's clock, and the lives of the processes that share it.

Whatever runs on the loop belongs to the life in whose context it was begun. A life that is over runs nothing more, in
the middle of whatever it was about; one that is held up runs later what was due.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from random import Random
from typing import Any

from tests.simulator.clock import Clock

_LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class Life:
    """One process, from its start to its end."""

    def __init__(self, loop: Loop) -> None:
        self.is_over = False
        self._context = contextvars.copy_context()
        self._context.run(_LIFE.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        #: While it is held up: what is due meanwhile.
        self.held: list[asyncio.Handle] | None = None
        self._loop = loop

    def soon(self, what: Callable[..., object], *arguments: Any, after: float = 0.0) -> None:
        """Has it do something; nothing comes of that if it is over by then."""
        self._loop.call_later(after, what, *arguments, context=self._context)

    def do(self, what: Callable[..., object], *arguments: Any) -> None:
        """The same at once."""
        self._context.copy().run(what, *arguments)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.create_task(work, context=self._context.copy())

    def end(self) -> None:
        """It is killed."""
        self.is_over = True
        for task in self.tasks:
            if not task.done():
                # A process that is killed says nothing of what it was at; asyncio offers no other way.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(RuntimeError):  # what would wait for something at its end
                    task.get_coro().close()

    def pause(self) -> None:
        self.held = []

    def resume(self) -> None:
        held, self.held = self.held or [], None
        for handle in held:
            self._loop.run_soon(handle, self)


class Loop:
    """What a broker asks of a loop, and no more; its time is the simulator's."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        #: As those of asyncio want it.
        self.itself: Any = self
        self.random = random
        #: The longest that a thread takes for something, in seconds.
        self.slowest_thread = 0.0
        #: What nobody caught.
        self.errors: list[BaseException] = []

    def time(self) -> float:
        return self.clock.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_at(self.clock.now, callback, *args, context=context)

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.clock.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self.itself, context)
        self.clock.later(when - self.clock.now, self._run, handle, context.get(_LIFE))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def run_soon(self, handle: asyncio.Handle, life: Life) -> None:
        self.clock.later(0.0, self._run, handle, life)

    def _run(self, handle: asyncio.Handle, life: Life | None) -> None:
        if handle.cancelled() or (life is not None and life.is_over):
            return
        if life is not None and life.held is not None:
            life.held.append(handle)
            return
        handle._run()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.itself)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_options: Any,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self.itself, name=name, context=context)
        life = _LIFE.get() if context is None else context.get(_LIFE)
        if life is not None:
            life.tasks = [each for each in life.tasks if not each.done()]
            life.tasks.append(task)
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """The thread ends what it does when its time is over, and has done nothing of it before."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                done.set_exception(error)

        self.call_later(self.random.uniform(0.0, self.slowest_thread), work)
        return done

    async def create_unix_connection(self, *_arguments: Any, **_options: Any) -> Any:
        raise FileNotFoundError(2, "there are no sockets")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(RuntimeError(context["message"]) if error is None else error)
