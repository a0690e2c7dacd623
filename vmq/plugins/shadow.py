"""New code of a plugin beside the old: it is asked what the old was asked, and what it answers is compared and dropped.

The old code's answer goes on its way before the new code is asked, in a task of its own; so many are under way at most,
and what comes beyond is left out and counted. What the new code would do to the broker is not done (`ShadowHost`).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, convert
from vmq_hooks import Accept, Message, Next, Plugin, Refuse, SubscriberId, Subscription
from vmq_hooks.answers import AnswerError
from vmq_hooks.specs import CHAINS

from vmq.plugins.guard import GRACE, PluginGuard
from vmq.plugins.handle import Figure, Host
from vmq.plugins.notices import NoticeQueues
from vmq.plugins.steps import AnswerStep, ChainStep, VerdictStep

#: Comparisons under way at a time.
UNDER_WAY: Final = 200
#: Differences that are told apart; more are counted together.
TOLD: Final = 1000
#: Characters of one text in a difference.
SHOWN: Final = 200


class Difference(Struct, frozen=True):
    """Calls to which the new code answered something else."""

    hook: str
    user: str
    client_id: str
    about: str
    old: str
    new: str
    times: int = 1


class ShadowReport(Struct, frozen=True):
    """What came of trying new code."""

    name: str
    running: bool
    #: Answers that were compared.
    asked: int
    #: Those that differed.
    differing: int
    #: Calls that the new code was not asked about: too many at once.
    left_out: int
    #: Calls at which the new code raised, or gave no answer in time.
    failures: int
    differences: list[Difference]


class Shadow:
    """New code of one plugin, tried.

    Args:
        name: the plugin.
        old: the steps of what serves.
        new: the steps of what is tried.
        guard: that of the new code.
        notices: those of the new code.
        plugin: the new code, started.
        config: its configuration.
    """

    def __init__(
        self,
        name: str,
        old: dict[str, ChainStep],
        new: dict[str, ChainStep],
        guard: PluginGuard,
        notices: NoticeQueues,
        plugin: Plugin,
        config: Any,
    ) -> None:
        self.name = name
        self.old = old
        self.new = new
        self.plugin = plugin
        self.config = config
        self.is_running = True
        self._guard = guard
        self._notices = notices
        self._asked = 0
        self._left_out = 0
        self._found: dict[tuple[str, ...], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def again(self) -> tuple[Plugin, Any]:
        """The code that was tried, not started, with its configuration."""
        return type(self.plugin)(), self.config

    def mirrored(self) -> dict[str, ChainStep]:
        """The old steps, which have the new code asked as well."""
        return {hook: self._mirror(hook, step) for hook, step in self.old.items()}

    def _mirror(self, hook: str, step: ChainStep) -> ChainStep:
        if CHAINS[hook] == "each":
            return step  # what it gives is called later, and by the code that serves
        if isinstance(step, VerdictStep):
            return _MirroredVerdict(step, self)
        if isinstance(step, AnswerStep):
            return _MirroredAnswer(step, self)
        return _MirroredNotice(step, self)

    def see(self, hook: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """The old code has answered a call."""
        if not self.is_running or (hook not in self.new and CHAINS[hook] == "all"):
            return
        if len(self._tasks) >= UNDER_WAY:
            self._left_out += 1
            return
        task = asyncio.get_running_loop().create_task(self._compare(hook, arguments, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Asks no more; what is under way is waited for until its deadline, and then cancelled."""
        self.is_running = False
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=self._guard.deadline + GRACE)
            for each in late:  # waits for its turn
                each.cancel()

    def report(self) -> ShadowReport:
        """What was found so far."""
        columns = Difference.__struct_fields__
        found = [
            convert(dict(zip(columns, (*key, times), strict=True)), Difference)
            for key, times in self._found.items()
        ]
        return ShadowReport(
            self.name,
            self.is_running,
            self._asked,
            sum(self._found.values()),
            self._left_out,
            self._guard.errors.total() + self._guard.timeouts.total(),
            found,
        )

    async def _compare(self, hook: str, arguments: tuple[Any, ...], answer: Any) -> None:
        step = self.new.get(hook)
        if isinstance(step, VerdictStep):
            found = step.ask(arguments)
            if step.is_async and not isinstance(found, Refuse):
                found = await step.settle(found, arguments)
        elif isinstance(step, AnswerStep):
            found = step.ask(arguments)
            if step.is_async and found is not None:
                found = await step.settle(found)
        elif step is not None:
            self._tell(step, arguments)
            return
        else:
            found = _NOTHING
        self._asked += 1
        if _essence(answer) != _essence(found):
            self._note(hook, arguments, answer, found)

    def _tell(self, step: ChainStep, arguments: tuple[Any, ...]) -> None:
        if step.is_async:
            self._notices.put(step, arguments)
            return
        try:
            step.call(*arguments)
        except BaseException as error:  # noqa: BLE001 - contained: it is the plugin's, whatever it is
            self._guard.failed(step.hook, error)

    def _note(self, hook: str, arguments: tuple[Any, ...], answer: Any, found: Any) -> None:
        who = next((str(each) for each in arguments if isinstance(each, SubscriberId)), "")
        user = arguments[2] if hook == "auth_on_register" else arguments[0]
        texts = (user if isinstance(user, str) else "", who, _about(hook, arguments))
        key = (hook, *(each[:SHOWN] for each in (*texts, _text(answer), _text(found))))
        if key not in self._found and len(self._found) >= TOLD:
            key = (hook, "", "", "(others)", "", "")
        self._found[key] = self._found.get(key, 0) + 1


#: What code answers that does not serve the hook.
_NOTHING: Final = "does not serve this hook"


def _essence(answer: Any) -> Any:
    """What counts of an answer: not the words of a reason, nor for how long it may be kept."""
    match answer:
        case Refuse():
            return ("refuse", answer.bad_credentials, answer.unavailable)
        case Next():
            return "next"
        case Accept():
            return ("accept", answer.modifiers, answer.subscriptions)
    return answer


def _text(answer: Any) -> str:
    match answer:
        case Refuse():
            return f"refuse: {answer.reason}"
        case Next():
            return "next"
        case Accept(modifiers=None, subscriptions=None):
            return "accept"
        case Accept():
            return f"accept, with {answer.modifiers or answer.subscriptions}"
        case None:
            return "no change"
    return str(answer)


def _about(hook: str, arguments: tuple[Any, ...]) -> str:
    """What a call is about; no passwords."""
    last = arguments[-1]
    if isinstance(last, Message):
        return f"{last.topic} qos={last.qos}"
    if isinstance(last, list | tuple):
        return " ".join(
            each.topic_filter if isinstance(each, Subscription) else str(each) for each in last
        )
    return ""


def _like(mirror: ChainStep, step: ChainStep) -> None:
    """A mirror stands in the place of a step, and is called as that is."""
    mirror.hook, mirror.guard, mirror.function = step.hook, step.guard, step.function
    mirror.is_async, mirror.call, mirror.observe = step.is_async, step.call, step.observe


class _MirroredVerdict(VerdictStep):
    def __init__(self, step: VerdictStep, shadow: Shadow) -> None:
        _like(self, step)
        self._step, self._shadow = step, shadow

    def ask(self, arguments: tuple[Any, ...]) -> Any:
        verdict = self._step.ask(arguments)
        if not self.is_async or isinstance(verdict, Refuse):
            self._shadow.see(self.hook, arguments, verdict)
        return verdict

    async def settle(self, verdict: Any, arguments: tuple[Any, ...]) -> Any:
        found = await self._step.settle(verdict, arguments)
        self._shadow.see(self.hook, arguments, found)
        return found


class _MirroredAnswer(AnswerStep):
    def __init__(self, step: AnswerStep, shadow: Shadow) -> None:
        _like(self, step)
        self._step, self._shadow = step, shadow

    def ask(self, arguments: tuple[Any, ...]) -> Any:
        answer = self._step.ask(arguments)
        if self.is_async and answer is not None:
            return self._followed(answer, arguments)
        self._shadow.see(self.hook, arguments, answer)
        return answer

    async def settle(self, change: Any) -> Any:
        return await self._step.settle(change)

    async def _followed(self, change: Any, arguments: tuple[Any, ...]) -> Any:
        """What the plugin returns in the end; it is checked behind this."""
        returned = await change
        try:
            self._shadow.see(self.hook, arguments, self._step.read(returned))
        except AnswerError:
            pass  # told where the answer counts
        return returned


class _MirroredNotice(ChainStep):
    def __init__(self, step: ChainStep, shadow: Shadow) -> None:
        _like(self, step)
        self._step, self._shadow = step, shadow
        self.call = self._called

    def _called(self, *arguments: Any) -> Any:
        self._shadow.see(self.hook, arguments, None)
        return self._step.call(*arguments)


class ShadowHost:
    """The broker as code sees it that is tried: it may look, and changes nothing.

    Args:
        host: the broker.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def node_name(self) -> str:
        return self._host.node_name

    @property
    def worker(self) -> int:
        return self._host.worker

    @property
    def is_open(self) -> bool:
        """It has no sessions to wait for."""
        return True

    def before_clients(self, work: "asyncio.Task[Any]") -> None:
        """Nothing comes before them."""

    @property
    def data_dir(self) -> Path:
        """A folder of its own, beside that of the code that serves."""
        return self._host.data_dir / "shadow"

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, mountpoint: str = ""
    ) -> None:
        """Nothing is published."""

    def subscribe_for_plugin(
        self, filters: Sequence[str], qos: int, mountpoint: str, client_id: str | None, clean: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """A subscription of its own, never the durable one of the code that serves."""
        return self._host.subscribe_for_plugin(filters, qos, mountpoint, None, True)

    def bridge(self, *_arguments: object) -> Any:
        raise RuntimeError("code that is tried opens no bridge")

    async def disconnect(self, subscriber_id: SubscriberId, cleanup: bool) -> bool:
        return False

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str:
        return await self._host.connected_elsewhere(subscriber_id)

    async def disconnect_users(self, usernames: Collection[str]) -> int:
        return 0

    async def drop_wills(self, usernames: Collection[str]) -> int:
        return 0

    async def reauthorize(self, subscriber_id: SubscriberId | None) -> int:
        return 0

    async def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        """No stream is made."""

    def figures(self) -> list[Figure]:
        return self._host.figures()
