"""A process in the foreground that serves until a signal ends it: a broker, or the supervisor of several."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn
from weakref import WeakValueDictionary

from vmq.cli.terminal.console import FAILURE
from vmq.startup.late_imports import imported

if TYPE_CHECKING:
    from vmq.broker import Broker

logger = logging.getLogger("vmq.cli")

#: Seconds that tasks and threads have to end once the broker has stopped.
REST: Final = 2.0

#: Ask a broker that runs for something.
REQUESTS: Final = (signal.SIGHUP, signal.SIGUSR1)


def say_ready(addresses: list[str], shut: str = "") -> None:
    """Tell whoever started us that every listener accepts, and where, or also why clients are not served."""
    where = " ".join(addresses)
    try:
        print(f"vmq serves nobody: {where} ({shut})" if shut else f"vmq ready: {where}", flush=True)
    except OSError:
        logger.debug("nobody reads stdout")


def say_page(links: Iterable[str]) -> None:
    """Tell whoever started us where to look: at the broker's live page, by links that are good for once."""
    try:
        for link in links:
            print(f"vmq page: {link}", flush=True)
    except OSError:
        logger.debug("nobody reads stdout")


def shut_because(broker: "Broker") -> str:
    """Why a node serves no clients, and what to do; "": it does."""
    return "" if broker.clustering is None else broker.clustering.admission.reason


def on_signal(stop: Callable[[], None], at_once: Callable[[], None] | None = None) -> None:
    """Have the first SIGTERM or SIGINT call `stop`, and a second one end the process; before that, call `at_once`."""
    loop = asyncio.get_running_loop()
    has_come = False

    def first(number: int) -> None:
        logger.info("stopping signal=%s (again: at once)", signal.Signals(number).name)
        stop()

    def handle(number: int, _frame: FrameType | None) -> None:
        # Not a handler of the loop: a stop that keeps the loop busy is what the second signal is for. Nothing else may
        # happen here, in the middle of whatever the process is at.
        nonlocal has_come
        if has_come:
            if at_once is not None:
                at_once()
            os._exit(FAILURE)
        has_come = True
        loop.call_soon_threadsafe(first, number)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handle)


def on_requests(reload: Callable[[], None], rotate: Callable[[], None]) -> None:
    """Have SIGHUP read the configuration anew, and SIGUSR1 open the log file anew; also those that waited."""
    loop = asyncio.get_running_loop()
    for number, handle in zip(REQUESTS, (reload, rotate), strict=True):
        loop.add_signal_handler(number, handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)


async def until_end(stopping: asyncio.Event, broker: "Broker") -> None:
    """Return when the broker is to stop; `stopping` is not set if it is to begin anew: its node can read again."""
    awaited = [stopping]
    if broker.clustering is not None:
        awaited.append(broker.clustering.recovery.readable)
    waiting = [asyncio.create_task(each.wait()) for each in awaited]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


def begin_anew() -> NoReturn:
    """End the process, whose broker has stopped, and begin it anew; service managers do so after a failure."""
    logging.shutdown()
    if "NOTIFY_SOCKET" in os.environ:
        os._exit(FAILURE)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own command line, and no shell


async def leave_nothing() -> None:
    """End what still runs beside the caller once a broker has stopped, or else the process: all is written.

    A plugin may leave a thread that waits for a server, or a task that takes no cancellation: Python waits for them.
    """
    await imported()  # which is the broker's own, and may take longer than a plugin gets
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for each in left:
        each.cancel()
    left.add(loop.create_task(loop.shutdown_default_executor()))
    _, left = await asyncio.wait(left, timeout=REST)
    if left:
        logger.warning("the process ends without a task or a thread that a plugin has left")
        logging.shutdown()
        os._exit(0)


async def unless(stopping: asyncio.Event, starting: Coroutine[Any, Any, None]) -> bool:
    """Do what a start takes, unless the stop comes first; returns whether it is done.

    It is cancelled then, and has to end what it had begun.
    """
    work = asyncio.create_task(starting)
    interrupted = asyncio.create_task(stopping.wait())
    await asyncio.wait([work, interrupted], return_when=asyncio.FIRST_COMPLETED)
    interrupted.cancel()
    if not work.done():
        work.cancel()
    try:
        await work
    except asyncio.CancelledError:
        return False
    return True


class _NoTransports(WeakValueDictionary[int, Any]):
    """Keeps none."""

    def __setitem__(self, _file: int, _transport: object) -> None:
        """Forgets it at once."""


def untrack_transports() -> None:
    """Have the running event loop keep no weak reference to each transport.

    asyncio and uvloop keep them to refuse `add_reader` for a transport's descriptor, which nothing here asks for. They
    are a tenth of what a connect costs, and 150 bytes a connection. There is no other way to reach uvloop's.
    """
    for each in gc.get_referents(asyncio.get_running_loop()):
        if type(each) is WeakValueDictionary:
            each.__class__ = _NoTransports
