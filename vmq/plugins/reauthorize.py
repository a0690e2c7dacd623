"""Asking auth_on_subscribe again about subscriptions that there are; those no longer allowed end.

Live sessions are asked about with the hooks of their listener, durable ones that are away with those
of listeners that choose no plugins. A durable session of which no user is known is asked about when its
client comes back, as all are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from vmq_hooks import Refuse, SubscriberId

from vmq.core.hook_sites import Hooks
from vmq.core.ports import RecheckPort
from vmq.core.registry import Registry
from vmq.core.states import FAILED
from vmq.core.subscriber import Subscriber
from vmq.plugins.chains import settled
from vmq.protocol.connection import Connection
from vmq.protocol.rights import STEP, as_asked, lapse_of, take_back, tell_of_lost, wanted_of

#: Sessions that are asked about at a time where many verdicts end at once.
AT_ONCE: Final = 16


async def reauthorize(registries: Mapping[str, Registry], only: SubscriberId | None) -> int:
    """Asks about one client's subscriptions, or everybody's; returns how many ended.

    `registries` are the topic trees by mountpoint.
    """
    if only is not None:
        registry = registries.get(only.mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(only.client_id)
        if registry is None or subscriber is None:
            return 0
        return await ask_again(registry, subscriber)
    ended = 0
    for registry in list(registries.values()):
        for number, subscriber in enumerate(list(registry.subscribers.values())):
            ended += await ask_again(registry, subscriber)
            if number % 100 == 99:
                await asyncio.sleep(0)  # others want to be served
    return ended


async def ask_again(registry: Registry, subscriber: Subscriber) -> int:
    """Asks about one client's subscriptions; returns how many ended."""
    if subscriber.output is None:
        # By which listener it comes, and who decides then, is known when it comes: it is asked about then.
        if subscriber.owner is None or not registry.core.hooks.are_of_absent:
            return 0
    lost: list[str] = []
    plugin = ""
    wanted = wanted_of(subscriber)
    for start in range(0, len(wanted), STEP):
        if start:
            await asyncio.sleep(0)
        hooks = hooks_of(registry, subscriber)
        if hooks.auth_on_subscribe is None:
            break
        queue, part = subscriber.queue, wanted[start : start + STEP]
        asked = as_asked(subscriber, part)
        who = queue.subscriber_id()
        answer = await settled(hooks.auth_on_subscribe(queue.username, who, asked))
        if registry.subscribers.get(subscriber.client_id) is not subscriber:
            return 0
        output = subscriber.output
        if isinstance(answer, Refuse) and answer.unavailable:
            # Nobody could decide: the subscriptions stay, and are asked about when the client comes back.
            if output is not None:
                text = f"subscriptions cannot be judged: {answer.reason} [MQTT-4.8.0-2]"
                output.finish(text, FAILED)
            break
        if output is not None:
            output.judge_again(lapse_of(answer))
        ended = take_back(registry, subscriber, part, answer)
        if ended:
            plugin = getattr(answer, "plugin", "")
        lost += ended
    tell_of_lost(registry, subscriber, hooks_of(registry, subscriber), lost, plugin)
    registry.core.outbox.flush()
    return len(lost)


def hooks_of(registry: Registry, subscriber: Subscriber) -> Hooks:
    """The hooks of the listener that the client came in by."""
    output = subscriber.output
    return output.session.hooks if isinstance(output, Connection) else registry.core.hooks


class Lapsed(RecheckPort):
    """Sessions with verdicts that have ended, asked about anew: a few at a time, however many there are.

    Args:
        spawn: runs a coroutine.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        super().__init__()
        self._spawn = spawn
        self._waiting: deque[tuple[Registry, Subscriber]] = deque()
        self._running = 0

    def put(self, registry: Registry, subscriber: Subscriber) -> None:
        """Has a session asked about soon."""
        self._waiting.append((registry, subscriber))
        if self._running < AT_ONCE:
            self._running += 1
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                registry, subscriber = self._waiting.popleft()
                if registry.subscribers.get(subscriber.client_id) is subscriber:
                    await ask_again(registry, subscriber)
        finally:
            self._running -= 1
