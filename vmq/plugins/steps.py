"""One plugin's function for one hook, called with just the arguments that it takes."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

from vmq_hooks import Accept, Refuse
from vmq_hooks.answers import ACCEPT, NEXT, Verdict, read_verdict, refuse_coroutine

from vmq.plugins.guard import LateError, PluginGuard

#: Where auth_on_subscribe has the list of what the client wants.
_WANTED: Final = 2


def ends_task(error: BaseException) -> bool:
    """Whether the broker ends the task in which this came up: a plugin's code may raise whatever there is.

    So it may be cancelled by itself, by awaiting what somebody else has cancelled. GeneratorExit is the broker's where
    no task runs: a coroutine that is not waited for any more is closed.
    """
    if not isinstance(error, asyncio.CancelledError | GeneratorExit):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the event loop has ended
        task = None
    if isinstance(error, GeneratorExit):
        return task is None
    return task is not None and task.cancelling() > 0


def adapted(
    function: Callable[..., Any], taken: Sequence[str], given: Sequence[str]
) -> Callable[..., Any]:
    """The function as one that takes all of a hook's arguments, in order."""
    if tuple(taken) == tuple(given):
        return function
    places = [given.index(name) for name in taken]
    if len(places) == 1:
        only = places[0]
        return lambda *arguments: function(arguments[only])
    return lambda *arguments: function(*[arguments[place] for place in places])


class ChainStep:
    """A plugin's place in a chain."""

    def __init__(
        self,
        hook: str,
        guard: PluginGuard,
        function: Callable[..., Any],
        taken: Sequence[str],
        given: Sequence[str],
    ) -> None:
        self.hook = hook
        self.guard = guard
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.call = adapted(function, taken, given)
        self.observe = guard.times_of(hook).observe

    def is_open(self) -> bool:
        """Whether the plugin's breaker forbids to call."""
        guard = self.guard
        return guard.failures > 0 and not guard.lets_through(self.hook)


class VerdictStep(ChainStep):
    """A place in a chain of an auth hook. Whatever fails is a refusal that says: not now."""

    def ask(self, arguments: tuple[Any, ...]) -> Any:
        """The verdict; of an async implementation the coroutine, to be handed to `settle`."""
        guard = self.guard
        if guard.failures and not guard.lets_through(self.hook):
            return Refuse(f"plugin {guard.plugin} fails and is not asked for now", unavailable=True)
        began = perf_counter()
        try:
            try:
                returned = self.call(*arguments)
            except Refuse as refusal:
                returned = refusal
            if self.is_async:
                return returned
            self.observe(perf_counter() - began)
            return self.read(returned, arguments)
        except BaseException as error:  # noqa: BLE001 - contained: it is the plugin's, whatever it is
            return self.failed(error)

    async def settle(self, verdict: Any, arguments: tuple[Any, ...]) -> Verdict:
        """Waits for a coroutine that `ask` gave, no longer than the plugin's deadline."""
        guard = self.guard
        try:
            try:
                returned = await guard.settled(self.hook, verdict, self.observe)
            except Refuse as refusal:
                returned = refusal
            return self.read(returned, arguments)
        except LateError:
            return Refuse(f"plugin {guard.plugin} gave no verdict in time", unavailable=True)
        except BaseException as error:
            if ends_task(error):
                raise
            return self.failed(error)

    def read(self, returned: Any, arguments: tuple[Any, ...]) -> Verdict:
        """What an answer says; whatever it raises, for reading may run code of the plugin's, is `failed`."""
        verdict = self._read(returned, arguments)
        guard = self.guard
        if isinstance(verdict, Accept):
            guard.accepted[self.hook] += 1
        elif isinstance(verdict, Refuse):
            guard.refused[self.hook] += 1
        if guard.failures:
            guard.succeeded()
        return verdict

    def _read(self, returned: Any, arguments: tuple[Any, ...]) -> Verdict:
        if returned is None:
            return NEXT
        if returned is True:
            return ACCEPT
        refuse_coroutine(returned)
        asked = arguments[_WANTED] if self.hook == "auth_on_subscribe" else ()
        return read_verdict(self.hook, returned, asked)

    def failed(self, error: BaseException) -> Refuse:
        self.guard.failed(self.hook, error)
        return Refuse(f"plugin {self.guard.plugin} failed in {self.hook}", unavailable=True)


class AnswerStep(ChainStep):
    """A place in a chain whose answer is no verdict: a change, or what was asked for."""

    def __init__(
        self,
        hook: str,
        guard: PluginGuard,
        function: Callable[..., Any],
        taken: Sequence[str],
        given: Sequence[str],
        read: Callable[[Any], Any],
    ) -> None:
        super().__init__(hook, guard, function, taken, given)
        self._read = read

    def ask(self, arguments: tuple[Any, ...]) -> Any:
        """The answer or None; of an async implementation the coroutine, for `settle`."""
        if self.is_open():
            return self.instead()
        began = perf_counter()
        try:
            try:
                returned = self.call(*arguments)
            except Refuse as refusal:
                if self.hook != "on_deliver":
                    raise
                returned = refusal
            if self.is_async:
                return returned
            self.observe(perf_counter() - began)
            return self.read(returned)
        except BaseException as error:  # noqa: BLE001 - contained: it is the plugin's, whatever it is
            return self.failed(error)

    async def settle(self, change: Any) -> Any:
        try:
            return self.read(await self.guard.settled(self.hook, change, self.observe))
        except LateError:
            return None
        except BaseException as error:
            if ends_task(error):
                raise
            return self.failed(error)

    def read(self, returned: Any) -> Any:
        refuse_coroutine(returned)
        change = self._read(returned)
        if self.guard.failures:
            self.guard.succeeded()
        return change

    def failed(self, error: BaseException) -> Refuse | None:
        self.guard.failed(self.hook, error)
        return self.instead()

    def instead(self) -> Refuse | None:
        """The answer of a plugin that fails: none, unless a message is to be kept back then."""
        return self.guard.failed_delivery if self.hook == "on_deliver" else None
