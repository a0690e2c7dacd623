"""The ways of calling a hook, each compiled into one callable when plugins change.

`all` is a `NoticeChain`: everybody is told, in order. `all_till_ok` of the auth hooks is a
`VerdictChain`: plugin after plugin until one accepts or refuses; when all of them said next, that is a
refusal. `on_unsubscribe` and `on_deliver` are a `RewriteChain`: the first that changes something ends
it. `only` is an `OnlyChain`: the first plugin is asked, whatever it answers. A chain goes through plain
functions without a detour; at the first coroutine it answers `Pending` and goes on in a task of its
own, plugin after plugin as before.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

from vmq_hooks import Accept, Cache, Next, Refuse, Subscription
from vmq_hooks.answers import refuse_coroutine
from vmq_hooks.types import REFUSED_QOS

from vmq.core.hook_sites import AcceptedUntil, Pending
from vmq.mqtt.special import JOBS, canonical, group_of, history_of, is_served, with_filter
from vmq.plugins.kept import FOREVER, MISSING, KeptVerdicts, together
from vmq.plugins.notices import NoticeQueues
from vmq.plugins.steps import AnswerStep, ChainStep, VerdictStep, ends_task

log = logging.getLogger("vmq.plugins")

#: Nobody could decide now.
_UNDECIDED: Final = partial(Refuse, "a chain of plugins has failed", unavailable=True)
#: Verdict tasks that run; a task that nobody holds may vanish.
_RUNNING: Final[set["asyncio.Task[None]"]] = set()


class NoticeChain:
    """Tells every plugin."""

    def __init__(self, steps: Sequence[tuple[ChainStep, NoticeQueues]]) -> None:
        self._steps = tuple(steps)

    def __call__(self, *arguments: Any) -> None:
        for step, notices in self._steps:
            if step.is_async:
                notices.put(step, arguments)
                continue
            guard = step.guard
            if guard.failures and not guard.lets_through(step.hook):
                continue
            began = perf_counter()
            try:
                returned = step.call(*arguments)
                if returned is not None:
                    refuse_coroutine(returned)
            except BaseException as error:  # noqa: BLE001 - contained: whatever a plugin raises
                guard.failed(step.hook, error)
            else:
                step.observe(perf_counter() - began)
                if guard.failures:
                    guard.succeeded()


class Granted(list[Subscription]):
    """Subscriptions that a plugin wants instead of those asked for."""

    plugin = ""
    #: When the verdict ends, by the core's clock; 0: it has no lifetime.
    until = 0.0


class VerdictChain:
    """Asks plugin after plugin for a verdict."""

    def __init__(self, hook: str, steps: Sequence[VerdictStep], clock: Callable[[], float]) -> None:
        self.hook = hook
        self.kept = KeptVerdicts(hook, clock)
        self._steps = tuple(steps)
        self._lapses = hook in ("auth_on_publish", "auth_on_subscribe")
        asked = ", ".join(step.guard.plugin for step in steps) or "none"
        self._nobody = f"no plugin accepted it (asked: {asked})"

    def __call__(self, *arguments: Any) -> Any:
        found = self.kept.find(arguments)
        if found is not MISSING:
            return found
        holds: Cache | None = FOREVER
        for place, step in enumerate(self._steps):
            verdict = step.ask(arguments)
            if step.is_async and not isinstance(verdict, Refuse):
                return self._later(place, verdict, arguments, holds)
            if holds is not None:
                holds = together(holds, verdict.cache)
            if not isinstance(verdict, Next):
                return self._answer(verdict, arguments, holds, step)
        return self._answer(self._exhausted(), arguments, holds, None)

    def forget(self) -> None:
        """What was kept holds no longer."""
        self.kept.forget()

    def _later(
        self, place: int, verdict: Any, arguments: tuple[Any, ...], holds: Cache | None
    ) -> Pending:
        work = self._go_on(place, verdict, arguments, holds, self.kept.forgotten)
        return _in_a_task(work, verdict, self._steps[place + 1 :], _UNDECIDED)

    async def _go_on(
        self,
        place: int,
        verdict: Any,
        arguments: tuple[Any, ...],
        holds: Cache | None,
        forgotten: int,
    ) -> Any:
        step = self._steps[place]
        verdict = await step.settle(verdict, arguments)
        for later in self._steps[place + 1 :]:
            holds = together(holds, verdict.cache)
            if not isinstance(verdict, Next):
                return self._answer(verdict, arguments, holds, step, forgotten)
            step = later
            verdict = step.ask(arguments)
            if step.is_async and not isinstance(verdict, Refuse):
                verdict = await step.settle(verdict, arguments)
        holds = together(holds, verdict.cache)
        if isinstance(verdict, Next):
            return self._answer(self._exhausted(), arguments, holds, None, forgotten)
        return self._answer(verdict, arguments, holds, step, forgotten)

    def _exhausted(self) -> Refuse:
        return Refuse(self._nobody)

    def _answer(
        self,
        verdict: Accept | Refuse,
        arguments: tuple[Any, ...],
        holds: Cache | None,
        step: VerdictStep | None,
        forgotten: int | None = None,
    ) -> Any:
        """What the core is told of a verdict, and of whose it is; kept, if that is allowed.

        `forgotten`: of what was asked earlier, `KeptVerdicts.forgotten` then.
        """
        answer: Any = verdict
        plugin = "" if step is None else step.guard.plugin
        if isinstance(verdict, Refuse):
            verdict.plugin = plugin
        else:
            answer = verdict.modifiers
            if verdict.subscriptions is not None:
                answer = Granted(verdict.subscriptions)
                answer.plugin = plugin
        if holds is None:
            return answer
        until = self.kept.until(holds)
        if until:
            if answer is None and self._lapses:
                answer = AcceptedUntil(until)
            elif isinstance(answer, Granted):
                answer.until = until
            if isinstance(answer, Refuse):
                answer = answer.with_traceback(None)
            if forgotten in (None, self.kept.forgotten):
                self.kept.keep(arguments, holds, until, answer)
        return answer


class SubscribeChain(VerdictChain):
    """Asks about subscriptions. Filters of a service are seen without options and ids, and with what is to be done.

    A plugin that grants some of several filters refuses also those that it knows nothing of, which are not its to
    decide. So these are asked about one by one: the plugins behind it have their say [MQTT-3.8.4-5].
    """

    def __call__(self, *arguments: Any) -> Any:
        user, who, wanted = arguments
        if not any(is_served(each.topic_filter) for each in wanted):
            return self._by_filter(*arguments)
        seen = [_seen(each) for each in wanted]
        answer = self._by_filter(user, who, seen)
        if not isinstance(answer, Pending):
            return _as_wanted(answer, seen, wanted)
        later = Pending(answer.cancel)
        later.charge = answer.charge
        answer.then = lambda found: later.finish(_as_wanted(found, seen, wanted))
        return later

    def _by_filter(self, *arguments: Any) -> Any:
        answer = super().__call__(*arguments)
        is_pending = isinstance(answer, Pending) and len(self._steps) > 1 and len(arguments[2]) > 1
        if not is_pending and not self._is_partial(answer):
            return answer
        work = self._one_by_one(answer, *arguments)
        later = _in_a_task(work, work, self._steps, _UNDECIDED)
        if isinstance(answer, Pending):
            later.charge = answer.charge
        return later

    def _is_partial(self, answer: Any) -> bool:
        """Whether somebody behind the plugin that answered may grant more."""
        if not isinstance(answer, Granted) or answer.plugin == self._steps[-1].guard.plugin:
            return False
        return len(answer) > 1 and any(each.qos == REFUSED_QOS for each in answer)

    async def _one_by_one(self, answer: Any, user: Any, who: Any, wanted: Any) -> Any:
        try:
            found = await settled(answer)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        if not self._is_partial(found):
            return found
        granted = Granted(found)  # what is kept for the next time stays as it is
        granted.plugin, ends = found.plugin, [found.until]
        for place, now in enumerate(found):
            if now.qos != REFUSED_QOS:
                continue
            single = await settled(super().__call__(user, who, [wanted[place]]))
            if isinstance(single, Refuse):
                if single.unavailable:
                    return single
                continue
            granted[place] = single[0] if isinstance(single, Granted) else wanted[place]
            ends.append(getattr(single, "until", 0.0))
        granted.until = min(filter(None, ends), default=0.0)
        return granted


def _seen(wanted: Subscription) -> Subscription:
    """What plugins see of a subscription."""
    topic_filter = wanted.topic_filter
    if not is_served(topic_filter):
        return wanted
    seen = canonical(topic_filter)
    if seen.startswith(JOBS):
        return Subscription(seen, wanted.qos, wanted.action or "take")
    history, group = history_of(topic_filter), group_of(topic_filter)
    return Subscription(seen, wanted.qos, wanted.action, history, group)


def _as_wanted(answer: Any, seen: Sequence[Subscription], wanted: Sequence[Subscription]) -> Any:
    """An answer about what was seen as one about what is wanted."""
    if not isinstance(answer, Granted):
        return answer
    found = Granted(
        _granted(now, was, had.topic_filter)
        for now, was, had in zip(answer, seen, wanted, strict=True)
    )
    found.plugin, found.until = answer.plugin, answer.until
    return found


def _granted(now: Subscription, was: Subscription, topic_filter: str) -> Subscription:
    """What a plugin made of something that it has seen, of the filter that it stands for."""
    if now.topic_filter == was.topic_filter:
        return Subscription(topic_filter, now.qos)
    if was.history or was.group:
        return Subscription(with_filter(topic_filter, now.topic_filter), now.qos)
    return now


class RewriteChain:
    """Asks plugin after plugin for a change."""

    def __init__(self, steps: Sequence[AnswerStep]) -> None:
        self._steps = tuple(steps)

    def __call__(self, *arguments: Any) -> Any:
        for place, step in enumerate(self._steps):
            change = step.ask(arguments)
            if change is None:
                continue
            if step.is_async:
                work = self._go_on(place, change, arguments)
                return _in_a_task(work, change, self._steps[place + 1 :])
            return change
        return None

    async def _go_on(self, place: int, change: Any, arguments: tuple[Any, ...]) -> Any:
        found = await self._steps[place].settle(change)
        for step in self._steps[place + 1 :]:
            if found is not None:
                return found
            found = step.ask(arguments)
            if step.is_async and found is not None:
                found = await step.settle(found)
        return found


class OnlyChain:
    """Asks one plugin, the first; whatever it answers, the others are not asked."""

    def __init__(self, step: AnswerStep) -> None:
        self._step = step

    def __call__(self, *arguments: Any) -> Any:
        answer = self._step.ask(arguments)
        if self._step.is_async and answer is not None:
            return _in_a_task(self._step.settle(answer), answer, ())
        return answer


async def settled(answer: Any) -> Any:
    """What a chain answers in the end."""
    if not isinstance(answer, Pending):
        return answer
    arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(found: Any) -> None:
        if not arrived.done():
            arrived.set_result(found)

    answer.then = take
    return await arrived


def _in_a_task(
    work: Any,
    first: Any,
    behind: Sequence[ChainStep],
    instead: Callable[[], Any] = lambda: None,
) -> Pending:
    """Runs the rest of a chain; the answer comes by way of what is returned, `instead` if there is a defect.

    The plugins `behind`, which may still be asked, are not stopped before that is over.
    """
    holder: list[Pending] = []
    task = asyncio.get_running_loop().create_task(_bring(work, holder, instead))
    _RUNNING.add(task)
    for step in behind:
        step.guard.hold()

    def done(_task: object) -> None:
        _RUNNING.discard(task)
        for step in behind:
            step.guard.release()
        work.close()
        if inspect.getcoroutinestate(first) == inspect.CORO_CREATED:
            first.close()  # cancelled before it began, the work has never touched it

    task.add_done_callback(done)
    holder.append(Pending(task.cancel))
    return holder[0]


async def _bring(work: Any, holder: list[Pending], instead: Callable[[], Any]) -> None:
    try:
        answer = await work
    except BaseException as error:
        if ends_task(error):
            raise
        log.exception("a chain of plugins has failed")
        answer = instead()  # whoever waits for it does not wait for ever
    holder[0].finish(answer)
