"""Who may use the Flight server: the same users and rules as at an MQTT listener.

A reader of a stream needs the right to subscribe to its filters, a writer the right to publish to each
topic. Flight asks in threads of its own; the plugins answer in the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, Literal

from pyarrow import flight
from vmq_hooks import REFUSED_QOS, Message, Peer, Refuse, SubscriberId, Subscription

from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Hooks, Pending
from vmq.mqtt.special import JOBS
from vmq.protocol.refusals import NAMED, NOBODY, SHOWN

log = logging.getLogger("vmq.streams")

#: Seconds that a verdict may take.
PATIENCE: Final = 30.0


class BrokerAccess:
    """The rules of one listener; `vmq.streams.flight.access.Access`.

    Args:
        listener: its name, for plugins.
        hooks: the plugins that are asked.
        anonymous: whether everybody may connect at the moment.
        secure: whether it is reached by TLS.
        options: the broker's.
    """

    def __init__(
        self,
        listener: str,
        hooks: Hooks,
        anonymous: Callable[[], bool],
        *,
        secure: bool,
        options: CoreOptions,
    ) -> None:
        transport: Literal["tls", "tcp"] = "tls" if secure else "tcp"
        self.peer = Peer("", 0, listener, transport)
        self.hooks = hooks
        self.anonymous = anonymous
        self.options = options
        self.loop = asyncio.get_running_loop()

    def authenticate(self, user: str | None, password: bytes) -> bool:
        """Whether this is the user, and may connect at all."""
        return self.in_loop(self.may_connect(user, password))

    def may_read(self, user: str | None, filters: Sequence[str], group: str = "") -> bool:
        """Whether the user may subscribe to all these topic filters; as a member of a group, if it is named."""
        return self.in_loop(self.may_subscribe(user, filters, group))

    def sees(self, user: str | None, filters: Sequence[str]) -> bool:
        """Whether the user may subscribe to these filters, unlogged: what a list leaves out is refused to nobody."""
        return self.in_loop(self.may_subscribe(user, filters, is_logged=False))

    def may_write(self, user: str | None, topic: str) -> bool:
        """Whether the user may publish to a topic."""
        return self.in_loop(self.may_publish(user, topic))

    def longest_payload(self) -> int:
        """Bytes of the largest payload that may be published; 0 is no limit."""
        return self.options.max_message_size

    def in_loop(self, asking: Coroutine[Any, Any, bool]) -> bool:
        """The verdict of plugins, asked where they live; no verdict is no right."""
        try:
            verdict = asyncio.run_coroutine_threadsafe(asking, self.loop)
        except RuntimeError:
            asking.close()
            raise flight.FlightUnavailableError("the broker ends") from None
        try:
            return verdict.result(PATIENCE)
        except FutureTimeoutError:
            verdict.cancel()
            raise flight.FlightUnavailableError("no verdict came in time: try again") from None

    async def may_connect(self, user: str | None, password: bytes) -> bool:
        if self.anonymous():
            return True
        hook = self.hooks.auth_on_register
        if hook is None:
            return False
        given = None if user is None else password
        answer = await verdict_of(hook(self.peer, identity(user), user, given, True))
        return is_granted(answer, user, "connect", "")

    async def may_subscribe(
        self,
        user: str | None,
        filters: Sequence[str],
        group: str = "",
        *,
        is_logged: bool = True,
    ) -> bool:
        hook = self.hooks.auth_on_subscribe
        if hook is None:
            return True
        wanted = [Subscription(each, group=group) for each in filters]
        answer = await verdict_of(hook(user, identity(user), wanted))
        if isinstance(answer, list):
            # What is granted instead of a filter is not that filter.
            for had, now in zip(wanted, answer, strict=True):
                if now.qos == REFUSED_QOS or now.topic_filter != had.topic_filter:
                    refusal = Refuse("not allowed")
                    refusal.plugin = getattr(answer, "plugin", "")
                    answer = refusal
                    break
        if not is_logged:
            return not isinstance(answer, Refuse)
        return is_granted(answer, user, "read", " ".join(filters[:NAMED]))

    async def may_publish(self, user: str | None, topic: str) -> bool:
        hook = self.hooks.auth_on_publish
        if hook is None:
            return True
        action = "add" if topic.startswith(JOBS) else ""
        wanted = Message(topic, b"", action=action)
        answer = await verdict_of(hook(user, identity(user), wanted))
        return is_granted(answer, user, "write", topic)


def is_granted(answer: Any, user: str | None, right: str, what: str) -> bool:
    """Whether a verdict grants a right; a refusal is logged, with the plugin that refuses."""
    if not isinstance(answer, Refuse):
        return True
    text = 'flight refused right=%s user="%s" of="%s" plugin=%s reason="%s"'
    log.info(text, right, user or "", what[:SHOWN], answer.plugin or NOBODY, answer.reason)
    return False


def identity(user: str | None) -> SubscriberId:
    """Who a caller is to plugins: no MQTT client has this id."""
    return SubscriberId("flight:" + (user or ""))


async def verdict_of(answer: Any) -> Any:
    """What a site answers in the end.

    Raises:
        FlightUnavailableError: nobody could decide now, which is no refusal.
    """
    found = await settled(answer)
    if isinstance(found, Refuse) and found.unavailable:
        raise flight.FlightUnavailableError(found.reason + ": try again")
    return found


async def settled(answer: Any) -> Any:
    """What a site answers in the end."""
    if not isinstance(answer, Pending):
        return answer
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(found: Any) -> None:
        if not done.done():
            done.set_result(found)

    answer.then = take
    return await done
