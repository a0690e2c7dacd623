"""What the log says of a client that may not: who, what, and by whose decision.

At the level of a refused CONNECT, which the end of its connection tells; the log's own limit on events
of one kind keeps a client that tries again and again from filling it.
"""

import logging
from typing import Final

from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import Answer
from vmq.core.registry import Registry
from vmq.mqtt.packets import ConnectRefused

log = logging.getLogger("vmq.session")
audit = logging.getLogger("vmq.audit")

#: Filters of one SUBSCRIBE that are named, and characters of a topic or a filter that are shown.
NAMED: Final = 10
SHOWN: Final = 200
#: Stands for the plugin where the end of a chain refused.
NOBODY: Final = "none"


#: Why nothing is taken that every node should hear of. It is over when the node is back, or taken out of the cluster.
SPLIT: Final = "a member of the cluster cannot be reached"


def reason_of(refusal: Refuse) -> str:
    """Why, and whose decision it is."""
    if not refusal.plugin:
        return refusal.reason
    return refusal.reason + " (plugin " + refusal.plugin + ")"


def tell_of_login(
    registry: Registry, client_id: str, username: str | None, peer: str, refused: ConnectRefused
) -> None:
    """A CONNECT was refused: the one place that tells of it."""
    name, values = registry.named(client_id)
    text = "login refused " + name + ' user="%s" peer=%s code=%d reason="%s" plugin=%s'
    who = (*values, (username or "")[:SHOWN], peer)
    audit.info(text, *who, refused.code, "refused: " + refused.text, refused.plugin or NOBODY)


def tell_of_publish(
    registry: Registry, client_id: str, username: str | None, topic: str, refusal: Refuse
) -> None:
    """A PUBLISH was refused."""
    name, values = registry.named(client_id)
    text = "publish refused " + name + ' user="%s" topic="%s" plugin=%s reason="%s"'
    who = (*values, username or "")
    log.info(text, *who, topic[:SHOWN], refusal.plugin or NOBODY, refusal.reason)


def tell_of_will(
    registry: Registry, client_id: str, username: str | None, topic: str, refusal: Refuse
) -> None:
    """A will was refused when it was to be published."""
    name, values = registry.named(client_id)
    text = "will refused " + name + ' user="%s" topic="%s" plugin=%s reason="%s"'
    who = (*values, username or "")
    log.info(text, *who, topic[:SHOWN], refusal.plugin or NOBODY, refusal.reason)


def tell_of_split(registry: Registry, client_id: str, event: str, what: str, named: str) -> None:
    """A message or a subscription was not taken because of the netsplit; the connection stays."""
    name, values = registry.named(client_id)
    text = event + " " + name + " " + what + '="%s" reason="%s"'
    log.info(text, *values, named[:SHOWN], SPLIT)


def tell_of_unsubscribe(
    registry: Registry, client_id: str, username: str | None, filters: list[str], refusal: Refuse
) -> None:
    """An UNSUBSCRIBE was refused."""
    shown = " ".join([each[:SHOWN] for each in filters[:NAMED]])
    name, values = registry.named(client_id)
    text = "unsubscribe refused " + name + ' user="%s" filters="%s" more=%d plugin=%s reason="%s"'
    who = (*values, username or "")
    more = max(0, len(filters) - NAMED)
    log.info(text, *who, shown, more, refusal.plugin or NOBODY, refusal.reason)


def tell_of_subscribe(
    registry: Registry,
    client_id: str,
    username: str | None,
    wanted: list[Subscription],
    answer: Answer,
) -> None:
    """A SUBSCRIBE was refused, by `Refuse`, or in part, by other subscriptions instead."""
    refused = [each.topic_filter for each in wanted]
    reason = "not allowed"
    if isinstance(answer, Refuse):
        reason = answer.reason
    else:
        pairs = zip(wanted, answer, strict=True)
        refused = [had.topic_filter for had, now in pairs if now.qos == REFUSED_QOS]
    if not refused:
        return
    plugin: str = getattr(answer, "plugin", "")
    shown = " ".join([each[:SHOWN] for each in refused[:NAMED]])
    name, values = registry.named(client_id)
    text = "subscription refused " + name + ' user="%s" filters="%s" more=%d plugin=%s reason="%s"'
    who = (*values, username or "")
    log.info(text, *who, shown, max(0, len(refused) - NAMED), plugin or NOBODY, reason)
