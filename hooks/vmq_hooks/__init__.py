"""The contract between vmq and its plugins: hooks, the types that they see, and a test kit."""

from vmq_hooks.broker import BridgeMessage, BridgeSession, Broker, Counter, Metric
from vmq_hooks.modifiers import (
    DeliverModifiers,
    ModifierError,
    PublishModifiers,
    RegisterModifiers,
)
from vmq_hooks.plugin import Plugin, hook
from vmq_hooks.types import (
    REFUSED_QOS,
    DropReason,
    LazyMessage,
    Message,
    Peer,
    SubscriberId,
    Subscription,
    matches,
    words,
)
from vmq_hooks.verdicts import Accept, Cache, Next, Refuse

__all__ = [
    "REFUSED_QOS",
    "Accept",
    "BridgeMessage",
    "BridgeSession",
    "Broker",
    "Cache",
    "Counter",
    "DeliverModifiers",
    "DropReason",
    "LazyMessage",
    "Message",
    "Metric",
    "ModifierError",
    "Next",
    "Peer",
    "Plugin",
    "PublishModifiers",
    "Refuse",
    "RegisterModifiers",
    "SubscriberId",
    "Subscription",
    "hook",
    "matches",
    "words",
]
