"""Subscriptions are asked about anew: when a session is resumed, on demand, and when a verdict with a lifetime ends.

What their client may not read any more ends, and what waits for it is not delivered.
"""

import logging
from typing import Final

from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import AcceptedUntil, Answer, Hooks
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber

log = logging.getLogger("vmq.session")

#: So many are asked about in one go: one client's long list must not keep the others waiting.
STEP: Final = 256


def wanted_of(subscriber: Subscriber) -> list[Subscription]:
    """What a session is subscribed to."""
    return [Subscription(each, had.qos) for each, had in subscriber.subscriptions.items()]


def as_asked(subscriber: Subscriber, wanted: list[Subscription]) -> list[Subscription]:
    """Subscriptions as plugins are asked about them: with the filters that the client had asked for.

    They are not asked about what they made of these themselves: one that puts a level in front would do it again.
    """
    if subscriber.asked is None:
        return wanted
    return [Subscription(subscriber.asked_for(each.topic_filter), each.qos) for each in wanted]


def lapse_of(answer: Answer) -> float:
    """Until when a verdict on subscriptions holds, by the core's clock; 0: it says nothing of that."""
    if isinstance(answer, AcceptedUntil):
        return answer.until
    until: float = getattr(answer, "until", 0.0) if isinstance(answer, list) else 0.0
    return until


def take_back(
    registry: Registry, subscriber: Subscriber, wanted: list[Subscription], answer: Answer
) -> list[str]:
    """Ends what is refused, and what was replaced by another filter; takes over lower QoS. Returns what ended.

    `wanted`: what there was; the answer is to the same as it was asked for. A filter that a plugin has made of that
    stays if the plugin makes it again, or leaves what was asked for as it is.
    """
    if isinstance(answer, Refuse):
        granted = [Subscription(each.topic_filter, REFUSED_QOS) for each in wanted]
    elif isinstance(answer, list):
        granted = answer
    else:
        return []
    lost: list[str] = []
    for had, now in zip(wanted, granted, strict=True):
        asked = subscriber.asked_for(had.topic_filter)
        if now.qos == REFUSED_QOS or now.topic_filter not in (had.topic_filter, asked):
            if registry.unsubscribe(subscriber, had.topic_filter):
                lost.append(had.topic_filter)
            continue
        present = subscriber.find(had.topic_filter)
        # A later SUBSCRIBE may have changed it while the verdict was awaited: that is made lower, and not higher.
        if present is not None and (present.qos == had.qos != now.qos or now.qos < present.qos):
            registry.subscribe(subscriber, had.topic_filter, now.qos, asked)
    if lost:
        subscriber.queue.drop_unwanted()
    return lost


def tell_of_lost(
    registry: Registry, subscriber: Subscriber, hooks: Hooks, lost: list[str], plugin: str
) -> None:
    """Subscriptions of a client have ended since it may not read there any more: so says the plugin."""
    if not lost:
        return
    name, values = registry.named(subscriber.client_id)
    text = "subscriptions ended " + name + ' user="%s" count=%d plugin=%s'
    log.info(text, *values, subscriber.queue.username or "", len(lost), plugin or "none")
    told = hooks.on_topic_unsubscribed
    if told is not None:
        who = subscriber.queue.subscriber_id()
        registry.core.tell("on_topic_unsubscribed", told, who, lost)
