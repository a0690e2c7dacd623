"""What stands between a plugin and the broker: errors are contained, counted, told, and end calls for a while."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, Final

from vmq_hooks import Refuse
from vmq_hooks.answers import AnswerError
from vmq_hooks.breaker import Breaker, State
from vmq_hooks.deadline import LIMIT

from vmq.runtime.histogram import Histogram

log = logging.getLogger("vmq.plugins")

#: Seconds between two lines on failures of one kind in one hook of one plugin.
QUIET: Final = 5.0
#: Wrong answers that are kinds of their own; they quote values, so there may be any number. Further ones are one kind.
MOST_ANSWERS: Final = 50
#: Seconds that code which is cancelled has for its end; who held the plugin for it does not wait longer.
GRACE: Final = 1.0
# Texts quote what clients sent: as fields they are enclosed.
_FAILED: Final = 'hook failed plugin=%s hook=%s error="%s" more=%d'
_ANSWERED: Final = 'hook failed plugin=%s hook=%s answer="%s" more=%d'
#: Code of plugins that runs; a task that nobody holds may vanish.
_RUNNING: Final[set["asyncio.Task[Any]"]] = set()


class LateError(Exception):
    """A plugin's code took too long."""


async def within(
    seconds: float,
    work: Awaitable[Any],
    over: Callable[[bool], object] = lambda _: None,
    *,
    is_verdict: bool = False,
) -> Any:
    """What a plugin's code gives. When its time, or its caller, is over, it is cancelled, and nobody waits for its end.

    Args:
        seconds: its time.
        work: the code.
        over: called once: True when it has ended, False when it is left behind.
        is_verdict: its time may stand still (`vmq_hooks.deadline`).

    Raises:
        LateError: its time is over.
        BaseException: whatever the code raises.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    limit = asyncio.timeout(seconds)
    LIMIT.set(limit if is_verdict else None)
    task = loop.create_task(_outcome(work))
    _RUNNING.add(task)

    def ended(_task: object) -> None:
        _RUNNING.discard(task)
        if inspect.iscoroutine(work):
            work.close()  # cancelled before it began, it was never touched
        if not arrived.done():
            arrived.set_result(None)
        over(True)

    def leave() -> None:
        if task.remove_done_callback(ended):
            over(False)

    task.add_done_callback(ended)
    try:
        async with limit:
            await arrived
    except TimeoutError:
        raise LateError from None
    finally:
        if task.cancel():
            loop.call_later(GRACE, leave)
    found, error = task.result()
    if error is not None:
        raise error
    return found


async def _outcome(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What code gives, or raises: what ends the program would end the event loop."""
    try:
        return await work, None
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits for it
        return None, error


class PluginGuard(Breaker):
    """One plugin's failures, and its circuit breaker: while that is open, calls are answered without asking.

    Args:
        plugin: its name.
        deadline: seconds that an async verdict may take.
        limit: failures in a row that open the breaker; 0 is never.
        pause: seconds that it stays open.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        plugin: str,
        deadline: float = 5.0,
        limit: int = 5,
        pause: float = 30.0,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(limit, pause, clock)
        self.plugin = plugin
        self.deadline = deadline
        #: Verdicts, by hook.
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.timeouts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        #: Seconds that calls took, by hook; of an async implementation until its answer.
        self.times: dict[str, Histogram] = {}
        #: Times that it held the event loop up (`vmq.runtime.watchdog`).
        self.blocked = 0
        #: What on_deliver answers where it fails.
        self.failed_delivery: Refuse | None = None
        #: Async calls under way, its own and verdicts of others in front of it.
        self.under_way = 0
        self._idle: asyncio.Future[None] | None = None
        self._has_ended = False
        #: By hook and kind of failure: who mends one sees the next.
        self._quiet: dict[tuple[str, str], tuple[float, int]] = {}

    def lets_through(self, hook: str) -> bool:
        """Whether a call may be made now; to be asked when there were failures."""
        if not self._has_ended and self.allows():
            return True
        self.skipped[hook] += 1
        return False

    def times_of(self, hook: str) -> Histogram:
        """What calls of a hook took."""
        return self.times.setdefault(hook, Histogram())

    def succeeded(self) -> None:
        """A call went well."""
        if not self._has_ended and self.on_success():
            log.warning("breaker closed plugin=%s", self.plugin)

    def failed(self, hook: str, error: BaseException) -> None:
        """A call raised, or answered what is no answer."""
        self.errors[hook] += 1
        if isinstance(error, AnswerError):
            text = str(error)
            kind = text if len(self._quiet) < MOST_ANSWERS or (hook, text) in self._quiet else ""
            self._tell(hook, kind, text, None, _ANSWERED)
        else:
            kind = type(error).__name__
            try:
                text = f"{kind}: {error}".removesuffix(": ")  # some have no text
            except BaseException:  # noqa: BLE001 - `__str__` is the plugin's code: it may raise anything
                text = kind
            self._tell(hook, kind, text, error)
        self._count()

    def timed_out(self, hook: str) -> None:
        """An async verdict did not come in time."""
        self.timeouts[hook] += 1
        self._tell(hook, "late", f"no verdict within {self.deadline:g} s", None)
        self._count()

    def overflowed(self, hook: str) -> None:
        """An async notice was dropped: too many wait for the plugin."""
        self.dropped[hook] += 1
        self._tell(hook, "dropped", "too many calls wait; one is left out", None)

    async def settled(
        self,
        hook: str,
        work: Awaitable[Any],
        observe: Callable[[float], None],
        *,
        is_verdict: bool = True,
    ) -> Any:
        """What an async implementation of a hook gives; `observe` is told how many seconds it took.

        Raises:
            LateError: nothing within the deadline; it is counted and told.
            BaseException: whatever the implementation raises.
        """
        began = perf_counter()
        self.hold()
        try:
            over = partial(self._over, hook)
            return await within(self.deadline, work, over, is_verdict=is_verdict)
        except LateError:
            self.timed_out(hook)
            raise
        finally:
            observe(perf_counter() - began)

    def _over(self, hook: str, has_ended: bool) -> None:
        if not has_ended:
            self._tell(hook, "left", "it was cancelled and does not end; it is left behind", None)
        self.release()

    def hold(self) -> None:
        """A chain that is under way may still ask the plugin."""
        self.under_way += 1

    def release(self) -> None:
        """One of those that held it has its answer."""
        self.under_way -= 1
        if not self.under_way and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def wait_idle(self) -> None:
        """Waits until no async call is under way, nor a verdict that it may be asked for; each has its deadline."""
        while self.under_way:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def end(self) -> None:
        """The plugin is stopped: whoever still asks it is told: not now."""
        self._has_ended, self.failures, self.state = True, self.failures + 1, State.CLOSED

    def inherit(self, other: "PluginGuard") -> None:
        """Goes on with the counts of the guard of the plugin's code of before."""
        self.accepted, self.refused = other.accepted, other.refused
        self.errors, self.timeouts = other.errors, other.timeouts
        self.skipped, self.dropped = other.skipped, other.dropped
        self.opened, self.blocked = other.opened, other.blocked
        for hook, times in other.times.items():
            self.times_of(hook).add(times)

    def _count(self) -> None:
        if self.on_failure():
            log.error(
                "breaker opened plugin=%s failures=%d seconds=%g",
                self.plugin,
                self.failures,
                self.pause,
            )

    def _tell(
        self, hook: str, kind: str, text: str, error: BaseException | None, line: str = _FAILED
    ) -> None:
        now = self._clock()
        until, unsaid = self._quiet.get((hook, kind), (now, 0))
        if now < until:
            self._quiet[hook, kind] = (until, unsaid + 1)
            return
        self._quiet[hook, kind] = (now + QUIET, 0)
        log.error(line, self.plugin, hook, text, unsaid, exc_info=error)
