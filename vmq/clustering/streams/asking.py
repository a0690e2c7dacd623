"""What nodes ask each other of partitions, as threads wait for it, and as others read what is asked: once at a time."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

log = logging.getLogger("vmq.cluster")

#: Answers that are read for at a time, and that may wait for that: more are asked for again.
_READERS: Final = 2
_MOST: Final = 64
#: Seconds that the event loop may be late.
_GRACE: Final = 5.0


T = TypeVar("T")


def asked_in_loop(
    loop: asyncio.AbstractEventLoop, asking: Coroutine[Any, Any, T], patience: float
) -> T | None:
    """What comes of asking in the event loop, in any other thread; None: nothing does, within some seconds."""
    try:
        answer = asyncio.run_coroutine_threadsafe(asking, loop)
    except RuntimeError:
        asking.close()
        return None  # the broker ends
    try:
        return answer.result(patience + _GRACE)
    except (FutureTimeoutError, CancelledError):
        answer.cancel()
        return None


class Readings:
    """Answers of this node that take reading: in threads, each question once at a time. Made in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: set[Hashable] = set()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="vmq-pages")

    def close(self) -> None:
        """Reads nothing more."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def begin(self, asked: Hashable, read: Callable[[], T], answer: Callable[[T], None]) -> None:
        """Has `answer` called in the event loop with what a thread has read; not if that, or too much, is under way."""
        if asked in self._under_way or len(self._under_way) >= _MOST:
            return
        self._under_way.add(asked)
        reading = self._readers.submit(read)
        reading.add_done_callback(partial(self._read, asked, answer))

    def _read(self, asked: Hashable, answer: Callable[[T], None], done: "Future[T]") -> None:
        """It is read, in a thread; or will not be."""
        if not done.cancelled():
            with suppress(RuntimeError):  # the broker has ended
                self._loop.call_soon_threadsafe(self._answer, asked, answer, done)

    def _answer(self, asked: Hashable, answer: Callable[[T], None], done: "Future[T]") -> None:
        self._under_way.discard(asked)
        if (error := done.exception()) is None:
            answer(done.result())
        else:
            log.error("cannot answer %.200r: %s", asked, error)
