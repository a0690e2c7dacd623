"""What auth hooks answer.

`None` or `Next()` asks the next plugin; `True`, `Accept(...)` or modifiers accept; `Refuse(reason)`,
returned or raised, refuses. Anything else is a defect of the plugin, and refuses.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from vmq_hooks.modifiers import PublishModifiers, RegisterModifiers
from vmq_hooks.types import Message, SubscriberId, Subscription

#: Characters: a reason may quote what a client has sent.
_LONGEST_REASON: Final = 500

#: What a verdict may depend on besides the hook. Never the payload: what looks at it cannot be kept.
Dependency = Literal["peer", "username", "client_id", "password", "topic", "qos", "retain"]


class Cache(msgspec.Struct, frozen=True):
    """For how long a verdict holds, and for which calls besides this one.

    Args:
        seconds: how long the broker may answer from memory.
        by: the facts that the plugin looked at. Calls alike in these get the same verdict.
    """

    seconds: float
    by: frozenset[Dependency] = frozenset({"username", "client_id", "topic"})


class Accept(msgspec.Struct, frozen=True):
    """Yes, perhaps with changes, perhaps for a while."""

    modifiers: "RegisterModifiers | PublishModifiers | Mapping[str, Any] | None" = None
    #: auth_on_subscribe: what to subscribe to instead; QoS 128 refuses that one.
    subscriptions: Sequence[Subscription] | None = None
    cache: Cache | None = None


class Next(msgspec.Struct, frozen=True):
    """No opinion: the next plugin decides. Like None, but it may be kept for a while."""

    cache: Cache | None = None


class Refuse(Exception):  # noqa: N818 - it is a verdict first
    """No.

    Args:
        reason: for the log; no secrets. Of a longer one the first 500 characters count.
        bad_credentials: at CONNECT: return code 4, bad user name or password, instead of 5; counted as a failed login.
        unavailable: nobody could decide now (overload, no answer): the client is told to come again, never
            that it may not. At CONNECT: return code 3, which says nothing of its credentials.
        cache: how long the refusal holds.

    Raises:
        ValueError: both are said; who could not be asked has judged no credentials.
    """

    def __init__(
        self,
        reason: str,
        *,
        bad_credentials: bool = False,
        unavailable: bool = False,
        cache: Cache | None = None,
    ) -> None:
        if bad_credentials and unavailable:
            raise ValueError("accepted: bad_credentials or unavailable, not both")
        super().__init__(reason)
        self.reason = str(reason)[:_LONGEST_REASON]  # of an error that is handed on, its text
        self.bad_credentials = bad_credentials
        self.unavailable = unavailable
        self.cache = cache
        #: Whose refusal it is: filled in by the broker, for its log.
        self.plugin = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What an auth hook was asked, for an explanation of its verdict."""

    hook: Literal["auth_on_publish", "auth_on_subscribe"]
    username: str | None
    subscriber_id: SubscriberId
    #: Of auth_on_publish.
    message: Message | None = None
    #: Of auth_on_subscribe: one of what was wanted.
    subscription: Subscription | None = None


class Explanation(msgspec.Struct, frozen=True):
    """Why a plugin gives a verdict, for the operator.

    Args:
        reason: what decides, and where it stands: "config/acl, line 7 denies it: topic deny home/alice/safe".
        remedy: what would turn a no into a yes: "`topic write news/x` below `user alice`"; "" = nothing is known to.
    """

    reason: str
    remedy: str = ""


#: None and False differ: None asks the next plugin, False refuses.
RegisterVerdict = bool | Accept | Next | Refuse | RegisterModifiers | Mapping[str, Any] | None
PublishVerdict = bool | Accept | Next | Refuse | PublishModifiers | Mapping[str, Any] | None
SubscribeVerdict = bool | Accept | Next | Refuse | Sequence[Subscription] | None
UnsubscribeVerdict = bool | Accept | Next | Refuse | None
