"""The contract between vmq and its plugins: hooks, the types that they see, and a test kit."""

from vmq_hooks.broker import (
    BridgeMessage,
    BridgeSession,
    Broker,
    Checking,
    Counter,
    Metric,
    Mistake,
)
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
from vmq_hooks.verdicts import Accept, Cache, Explanation, Next, Question, Refuse

__all__ = [
    "REFUSED_QOS",
    "Accept",
    "BridgeMessage",
    "BridgeSession",
    "Broker",
    "Cache",
    "Checking",
    "Counter",
    "DeliverModifiers",
    "DropReason",
    "Explanation",
    "LazyMessage",
    "Message",
    "Metric",
    "Mistake",
    "ModifierError",
    "Next",
    "Peer",
    "Plugin",
    "PublishModifiers",
    "Question",
    "Refuse",
    "RegisterModifiers",
    "SubscriberId",
    "Subscription",
    "hook",
    "matches",
    "words",
]
