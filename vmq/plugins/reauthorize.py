"""Asking auth_on_subscribe again about subscriptions that there are; those no longer allowed end.

Live sessions are asked about with the hooks of their listener, durable ones that are away with those
of listeners that choose no plugins. A session that was restored from disk has no known user until its
client comes back: it is asked about then.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from vmq_hooks import REFUSED_QOS, Refuse, SubscriberId, Subscription

from vmq.connection import Connection
from vmq.hooks import Hooks
from vmq.plugins.chains import settled
from vmq.registry import Registry, Subscriber

log = logging.getLogger("vmq.plugins")


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
    hooks = hooks_of(registry, subscriber)
    hook = hooks.auth_on_subscribe
    queue = subscriber.queue
    if hook is None or not subscriber.subscriptions:
        return 0
    if subscriber.output is None and not subscriber.is_known:
        subscriber.recheck = True
        return 0
    subscriber.recheck = False
    wanted = [Subscription(each, had.qos) for each, had in subscriber.subscriptions.items()]
    answer = await settled(hook(queue.username, queue.subscriber_id(), wanted))
    if registry.subscribers.get(subscriber.client_id) is not subscriber:
        return 0
    lost = _take_back(registry, subscriber, wanted, answer)
    if lost:
        log.info("subscriptions ended client=%s count=%d", subscriber.client_id, len(lost))
        if hooks.on_topic_unsubscribed is not None:
            hooks.on_topic_unsubscribed(queue.subscriber_id(), lost)
    registry.core.outbox.flush()
    return len(lost)


def _take_back(
    registry: Registry, subscriber: Subscriber, wanted: list[Subscription], answer: Any
) -> list[str]:
    """Ends what is refused, and what was replaced by another filter; takes over lower QoS."""
    if isinstance(answer, Refuse):
        granted = [Subscription(each.topic_filter, REFUSED_QOS) for each in wanted]
    elif isinstance(answer, list):
        granted = answer
    else:
        return []
    lost: list[str] = []
    for had, now in zip(wanted, granted, strict=True):
        if now.qos == REFUSED_QOS or now.topic_filter != had.topic_filter:
            if registry.unsubscribe(subscriber, had.topic_filter):
                lost.append(had.topic_filter)
        elif now.qos != had.qos and had.topic_filter in subscriber.subscriptions:
            registry.subscribe(subscriber, had.topic_filter, now.qos)
    return lost


def hooks_of(registry: Registry, subscriber: Subscriber) -> Hooks:
    """The hooks of the listener that the client came in by."""
    output = subscriber.output
    return output.session.hooks if isinstance(output, Connection) else registry.core.hooks
