"""The places where plugins are called. Without a plugin a site is None and costs one comparison.

Names, meanings and arguments are those of `vmq_hooks.specs`. What stands behind a site never raises:
whoever sets it sees to that. A plain site is called for its information. An `auth_` site answers

- None: accepted as it is; `AcceptedUntil` if that holds for a while;
- modifiers, or a list of subscriptions: accepted with these changes;
- `Refuse`: refused, with the reason for the log;
- `Pending`: the verdict is still to come.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

from vmq_hooks.modifiers import DeliverModifiers
from vmq_hooks.types import Message, Peer, SubscriberId, Subscription
from vmq_hooks.verdicts import Refuse

_GENERATIONS: Final = count(1)

#: What an `auth_` site answers, and what `Pending` brings in the end.
Answer = Any


class AcceptedUntil:
    """Accepted as it is, until a time by the core's clock.

    So is every publish of the session that is alike in topic, QoS and RETAIN.
    """

    def __init__(self, until: float) -> None:
        self.until = until


class Pending:
    """A verdict that is still to come. Whoever asked sets `then`, and may `cancel`.

    `charge`, if it is there, is to be told of bytes that wait in memory with the verdict.
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel
        self.then: Callable[[Answer], None] | None = None
        self.charge: Callable[[int], None] | None = None

    def finish(self, answer: Answer) -> None:
        """Brings the answer. Never called within the call of the site."""
        then = self.then
        if then is not None:
            self.then = None
            then(answer)


class Hooks:
    """Every hook's call site, for the clients of one listener or for all.

    Whoever sets a site calls `resolve()` afterwards.
    """

    def __init__(self) -> None:
        #: (peer, subscriber id, username, password, clean session)
        self.auth_on_register: (
            Callable[[Peer, SubscriberId, str | None, bytes | None, bool], Answer] | None
        ) = None
        self.on_register: Callable[[Peer, SubscriberId, str | None], None] | None = None
        #: (username, subscriber id, message); also for the will at CONNECT
        self.auth_on_publish: Callable[[str | None, SubscriberId, Message], Answer] | None = None
        #: the same, after routing
        self.on_publish: Callable[[str | None, SubscriberId, Message], None] | None = None
        #: (username, subscriber id, what is asked for) -> as many subscriptions, QoS 128 refuses one
        self.auth_on_subscribe: (
            Callable[[str | None, SubscriberId, list[Subscription]], Answer] | None
        ) = None
        self.on_subscribe: Callable[[str | None, SubscriberId, list[Subscription]], None] | None = (
            None
        )
        #: (username, subscriber id, filters)
        self.auth_on_unsubscribe: Callable[[str | None, SubscriberId, list[str]], Answer] | None = (
            None
        )
        #: (username, subscriber id, filters) -> the filters instead, None, or Pending
        self.on_unsubscribe: Callable[[str | None, SubscriberId, list[str]], Answer] | None = None
        #: (subscriber id, filters), after the fact, also when a session ends
        self.on_topic_unsubscribed: Callable[[SubscriberId, list[str]], None] | None = None
        #: (username, subscriber id, message) -> changes, Refuse (it is kept back), or None
        self.on_deliver: (
            Callable[[str | None, SubscriberId, Message], DeliverModifiers | Refuse | None] | None
        ) = None
        #: (username, subscriber id, message): the client has it, at QoS 1 or 2
        self.on_acked: Callable[[str | None, SubscriberId, Message], None] | None = None
        self.on_offline_message: Callable[[SubscriberId, Message], None] | None = None
        #: (subscriber id, lazy message, reason)
        self.on_message_drop: Callable[[SubscriberId, Callable[[], Message], str], None] | None = (
            None
        )
        self.on_client_wakeup: Callable[[SubscriberId], None] | None = None
        self.on_client_offline: Callable[[SubscriberId], None] | None = None
        self.on_client_gone: Callable[[SubscriberId], None] | None = None
        self.on_session_expired: Callable[[SubscriberId], None] | None = None
        #: A hook wants to be asked about PUBLISH: a run passes only by a kept verdict.
        self.in_publish_path = False
        #: A hook wants to see each PUBLISH or each delivery: runs never pass.
        self.sees_each = False
        #: Another number whenever kept verdicts hold no longer, and for each object.
        self.generation: int = next(_GENERATIONS)
        #: They are those of every client that is away: no listener chooses who decides about what its clients may.
        self.are_of_absent: bool = True

    def resolve(self) -> None:
        """Works out anew which paths are free of hooks, and ends what was kept."""
        self.sees_each = self.on_publish is not None or self.on_deliver is not None
        self.in_publish_path = self.sees_each or self.auth_on_publish is not None
        self.forget_kept()

    def forget_kept(self) -> None:
        """Ends what was kept."""
        self.generation = next(_GENERATIONS)
