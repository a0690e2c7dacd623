"""A thread that does what it is given, many things in one pass; and whose turn it is to make the next one.

Another thread may make a pass in between, where nothing waits for this one: so it waits for nobody, and overtakes
nothing.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from vmq.streams.log.writer import promised

log = logging.getLogger("vmq.cluster")

#: Things that one pass does at most, and seconds after which it begins no more: a node says that it lives between two.
_MOST: Final = 1000
_LONG: Final = 0.25


class GroupTurns:
    """The thread, and what waits for it.

    Args:
        name: the thread's.
        run: what it runs: `wait`, then with `turn` held `do`, again and again.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._work: deque[Callable[[], None] | None] = deque()
        #: A token for each of them, at least: what the thread waits for.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._run = run
        self._runs = False
        self._thread = threading.Thread(target=self._work_until_end, name=name, daemon=True)
        #: Held by whoever makes a pass.
        self.turn = threading.Lock()
        self.is_stopping = False

    # --- from any thread

    def start(self) -> None:
        """Starts the thread."""
        self._runs = True
        self._thread.start()

    def _work_until_end(self) -> None:
        try:
            self._run()
        finally:
            self._runs = False

    def put(self, work: Callable[[], None] | None) -> None:
        """Has the thread do something, in the order in which that is put; None: end."""
        self._work.append(work)
        self.wake()

    def wake(self) -> None:
        """Has the thread make a pass."""
        self._tokens.put(None)

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Has a function called in the thread. Nobody waits for what comes of it: the log says what goes wrong."""

        def work() -> None:
            try:
                function(*arguments)
            except Exception:
                name = getattr(function, "__qualname__", repr(function))
                log.exception("what the groups of this node were to do has failed: %s", name)

        if not self.is_stopping:
            self.put(work)

    def call(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Has a function called in the thread, for who waits for what comes of it."""
        future, work = promised(partial(function, *arguments))
        if self.is_stopping:
            future.cancel()
        else:
            self.put(work)
        return future

    def enter(self) -> bool:
        """Whether it is the caller's turn, until it releases `turn`: the thread rests, and nothing waits for it."""
        may_go = not self._work and not self.is_stopping and self._runs
        return may_go and self.turn.acquire(blocking=False)

    def stop(self, patience: float) -> None:
        """Has the thread end after what waits for it, and waits so many seconds."""
        if not self.is_stopping:
            self.is_stopping = True
            self.put(None)
            if self._thread.ident is not None:
                self._thread.join(patience)

    # --- in the thread

    @property
    def is_own(self) -> bool:
        """Whether it is the thread that asks."""
        return threading.current_thread() is self._thread

    def wait(self, until: float) -> None:
        """Until there is something to do, or a time comes."""
        with suppress(queue.Empty):
            seconds = 0.0 if self._work else until - time.monotonic()
            if seconds > 0:
                self._tokens.get(timeout=seconds)
            while True:  # one pass does what all of them stand for
                self._tokens.get_nowait()

    def do(self) -> bool:
        """Does what was put, in a pass; False: it is to end."""
        until = time.monotonic() + _LONG
        for _ in range(min(_MOST, len(self._work))):
            work = self._work.popleft()
            if work is None:
                return False
            work()
            if time.monotonic() >= until:
                break
        return True
