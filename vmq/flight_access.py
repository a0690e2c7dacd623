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

from vmq.hooks import Hooks, Pending

log = logging.getLogger("vmq.streams")

#: Seconds that a verdict may take.
PATIENCE: Final = 30.0


class BrokerAccess:
    """The rules of one listener; `vmq.streams.flight_access.Access`.

    Args:
        listener: its name, for plugins.
        hooks: the plugins that are asked.
        anonymous: whether everybody may connect at the moment.
        secure: whether it is reached by TLS.
    """

    def __init__(
        self, listener: str, hooks: Hooks, anonymous: Callable[[], bool], *, secure: bool
    ) -> None:
        transport: Literal["tls", "tcp"] = "tls" if secure else "tcp"
        self.peer = Peer("", 0, listener, transport)
        self.hooks = hooks
        self.anonymous = anonymous
        self.loop = asyncio.get_running_loop()

    def authenticate(self, user: str | None, password: bytes) -> bool:
        """Whether this is the user, and may connect at all."""
        return self.in_loop(self.may_connect(user, password))

    def may_read(self, user: str | None, filters: Sequence[str]) -> bool:
        """Whether the user may subscribe to all these topic filters."""
        return self.in_loop(self.may_subscribe(user, filters))

    def may_write(self, user: str | None, topic: str) -> bool:
        """Whether the user may publish to a topic."""
        return self.in_loop(self.may_publish(user, topic))

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
        answer = await settled(hook(self.peer, identity(user), user, given, True))
        return not isinstance(answer, Refuse)

    async def may_subscribe(self, user: str | None, filters: Sequence[str]) -> bool:
        hook = self.hooks.auth_on_subscribe
        if hook is None:
            return True
        wanted = [Subscription(each) for each in filters]
        answer = await settled(hook(user, identity(user), wanted))
        if isinstance(answer, list):
            # What is granted instead of a filter is not that filter.
            pairs = zip(wanted, answer, strict=True)
            return all(
                now.qos != REFUSED_QOS and now.topic_filter == had.topic_filter
                for had, now in pairs
            )
        return not isinstance(answer, Refuse)

    async def may_publish(self, user: str | None, topic: str) -> bool:
        hook = self.hooks.auth_on_publish
        if hook is None:
            return True
        answer = await settled(hook(user, identity(user), Message(topic, b"")))
        return not isinstance(answer, Refuse)


def identity(user: str | None) -> SubscriberId:
    """Who a caller is to plugins: no MQTT client has this id."""
    return SubscriberId("flight:" + (user or ""))


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
