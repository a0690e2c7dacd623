"""The hooks, with VerneMQ's names and meanings.

How a hook is called stands in `CHAINS`: `all` calls every plugin and ignores what it returns;
`all_till_ok` goes from plugin to plugin until one accepts or refuses (when all of them said next,
that is a refusal); `only` asks the first plugin; `each` puts together what all of them answer.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import pluggy

from vmq_hooks.modifiers import DeliverModifiers
from vmq_hooks.plugin import PROJECT
from vmq_hooks.types import (
    DropReason,
    LazyMessage,
    Message,
    Peer,
    SubscriberId,
    Subscription,
)
from vmq_hooks.verdicts import (
    PublishVerdict,
    Refuse,
    RegisterVerdict,
    SubscribeVerdict,
    UnsubscribeVerdict,
)

spec: Final = pluggy.HookspecMarker(PROJECT)

Chain = Literal["all", "all_till_ok", "only", "each"]

#: How each hook is called.
CHAINS: Final[Mapping[str, Chain]] = {
    "auth_on_register": "all_till_ok",
    "auth_on_publish": "all_till_ok",
    "auth_on_subscribe": "all_till_ok",
    "on_register": "all",
    "on_publish": "all",
    "on_subscribe": "all",
    "auth_on_unsubscribe": "all_till_ok",
    "on_unsubscribe": "all_till_ok",
    "on_topic_unsubscribed": "all",
    "on_deliver": "all_till_ok",
    "on_acked": "all",
    "on_offline_message": "all",
    "on_message_drop": "all",
    "on_client_wakeup": "all",
    "on_client_offline": "all",
    "on_client_gone": "all",
    "on_session_expired": "all",
    "on_config_change": "all",
    "discover_nodes": "only",
    "expression_functions": "each",
}


def arguments_of(hook: str) -> tuple[str, ...]:
    """The names of a hook's arguments, in order."""
    return tuple(inspect.signature(getattr(Specs, hook)).parameters)[1:]


def taken_by(function: Callable[..., Any], hook: str) -> tuple[str, ...]:
    """The names of the arguments that a plugin's bound function for a hook takes, in its order; a default is no excuse.

    Raises:
        TypeError: the hook has not each of them, or one cannot be given by its place.
    """
    parameters = inspect.signature(function).parameters.values()
    mistakes = [text for each in parameters for text in _mistakes(each, hook)]
    if mistakes:
        raise TypeError("; ".join(mistakes))
    return tuple(each.name for each in parameters)


def _mistakes(taken: inspect.Parameter, hook: str) -> Iterator[str]:
    known = arguments_of(hook)
    bare = taken.replace(annotation=taken.empty, default=taken.empty)
    if str(bare) not in known:  # that of others has stars
        yield f"hook {hook} has no {str(bare)!r}; accepted: {', '.join(known)}"
    elif taken.kind is taken.KEYWORD_ONLY:
        yield f"hook {hook} takes {taken.name!r} by keyword alone; accepted: no * before it"


class Specs:
    """One method a hook; its docstring is the hook's documentation."""

    @spec
    def auth_on_register(
        self,
        peer: Peer,
        subscriber_id: SubscriberId,
        username: str | None,
        password: bytes | None,
        clean_session: bool,
    ) -> RegisterVerdict:
        """May this client connect? Not called where `allow_anonymous` lets everybody in.

        Refused: CONNACK 4 for bad credentials, 3 where nobody could decide, else 5, and the connection is closed.
        """

    @spec
    def auth_on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> PublishVerdict:
        """May this client publish this? Called for the will, too, when the client connects, and when that is due.

        And about who published a retained message, before a new subscriber gets it.

        Refused: an MQTT 3.1.1 client is disconnected, an MQTT 3.1 client is acknowledged and the
        message dropped; with a refused will the CONNECT is refused.
        """

    @spec
    def auth_on_subscribe(
        self,
        username: str | None,
        subscriber_id: SubscriberId,
        subscriptions: Sequence[Subscription],
    ) -> SubscribeVerdict:
        """May this client subscribe? One call for all filters of a SUBSCRIBE.

        An answer with subscriptions replaces the list, one for one; QoS 128 refuses that one.
        Refused: return code 0x80 for every filter.

        It is asked again about what a client is subscribed to when a session is resumed, when the rules change and
        when the verdict's lifetime ends: about the filters as the client asked for them, not those that were put in
        their place. What is refused then, or gets yet another filter, ends.
        """

    @spec
    def on_register(self, peer: Peer, subscriber_id: SubscriberId, username: str | None) -> None:
        """A client has connected: its CONNACK is on the way."""

    @spec
    def on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> None:
        """A message was routed, with the values that auth_on_publish gave it."""

    @spec
    def on_subscribe(
        self,
        username: str | None,
        subscriber_id: SubscriberId,
        subscriptions: Sequence[Subscription],
    ) -> None:
        """Subscriptions were made, with the QoS that was granted; refused ones are left out: there is one at least."""

    @spec
    def auth_on_unsubscribe(
        self, username: str | None, subscriber_id: SubscriberId, topic_filters: Sequence[str]
    ) -> UnsubscribeVerdict:
        """May this client unsubscribe? One call for all filters of an UNSUBSCRIBE, before on_unsubscribe.

        Refused: the subscriptions stay, and the connection is closed, for UNSUBACK cannot say no.
        """

    @spec
    def on_unsubscribe(
        self, username: str | None, subscriber_id: SubscriberId, topic_filters: Sequence[str]
    ) -> Sequence[str] | None:
        """A client unsubscribes. An answer replaces the filters; None asks the next plugin."""

    @spec
    def on_topic_unsubscribed(
        self, subscriber_id: SubscriberId, topic_filters: Sequence[str]
    ) -> None:
        """Subscriptions have ended: by the client, with its session, or because they are no longer allowed."""

    @spec
    def on_deliver(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> DeliverModifiers | Refuse | Mapping[str, Any] | None:
        """A message goes to a client. May change topic and payload, or keep it back for good with `Refuse`.

        The first plugin that changes something, or refuses, ends the chain.
        """

    @spec
    def on_acked(self, username: str | None, subscriber_id: SubscriberId, message: Message) -> None:
        """A client has a message of QoS 1 or 2: it has answered PUBACK, or PUBREC."""

    @spec
    def on_offline_message(self, subscriber_id: SubscriberId, message: Message) -> None:
        """A message was queued for a durable session whose client is away."""

    @spec
    def on_message_drop(
        self, subscriber_id: SubscriberId, message: LazyMessage, reason: DropReason
    ) -> None:
        """A message to a client was dropped. `message()` loads it."""

    @spec
    def on_client_wakeup(self, subscriber_id: SubscriberId) -> None:
        """A client's queue is ready: what was queued before is on the way."""

    @spec
    def on_client_offline(self, subscriber_id: SubscriberId) -> None:
        """A client with a durable session lost its connection."""

    @spec
    def on_client_gone(self, subscriber_id: SubscriberId) -> None:
        """A client with a clean session lost its connection, and its session with it."""

    @spec
    def on_session_expired(self, subscriber_id: SubscriberId) -> None:
        """A durable session was away for too long and is forgotten."""

    @spec
    def on_config_change(self, changed: Mapping[str, Any]) -> None:
        """Options changed in the running broker: `section.option` and the new value."""

    @spec
    def discover_nodes(self) -> Sequence[str] | None:
        """Where other nodes of the cluster are, for a node to ask to be taken in, or whose members have moved.

        Asked at the start and every ten seconds, as long as the node knows no other member or misses
        one. Addresses as in `cluster.join`, which is asked besides; None: not known now.
        """

    @spec
    def expression_functions(self) -> Mapping[str, Callable[..., Any]] | None:
        """Functions that the expressions of mappings may call, by their names.

        Asked when plugins have started, been reloaded or stopped. Each is a plain function of values as CEL has them
        (text, bytes, numbers, True and False, lists, maps, times, None), and is called in the pass of the message: it
        is to be quick. What it raises is a failure of the mapping for that message. A name of CEL's own is refused; of
        two plugins that have the same one the first counts.
        """
