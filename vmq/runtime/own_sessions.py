"""Sessions of this node, for operators anywhere: what only it knows of them, and what is done with them."""

from typing import Annotated

from msgspec import Meta, Struct

from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.protocol.connection import Connection
from vmq.protocol.front_queue import FrontQueue

_Count = Annotated[int, Meta(ge=0)]
_Text = Annotated[str, Meta(max_length=65_535)]


class SessionFigures(Struct, array_like=True, frozen=True):
    """One session. Times are seconds since 1970; 0: there is none."""

    is_online: bool
    is_durable: bool
    user: _Text | None
    peer: _Text | None
    protocol: int | None
    keep_alive: int | None
    queue_size: _Count
    #: None: not loaded from the store yet.
    waiting_acks: _Count | None
    dropped: _Count
    connected_at: float
    offline_since: float
    subscriptions: dict[_Text, int]
    #: Of those that a plugin has put in place of what the client asked for: what that was.
    asked: dict[_Text, _Text] = {}


def figures_of(registry: Registry, subscriber: Subscriber) -> SessionFigures:
    """A session of this node."""
    queue = subscriber.queue
    output = subscriber.output
    session = output.session if isinstance(output, Connection) else None
    return SessionFigures(
        is_online=queue.online,
        is_durable=queue.durable or isinstance(queue, FrontQueue),
        user=queue.username,
        peer=None if output is None else output.describe(),
        protocol=None if session is None else session.level,
        keep_alive=None if session is None else session.keep_alive,
        queue_size=queue.waiting(),
        waiting_acks=None if queue.inflight_is_stored else len(queue.inflight),
        dropped=queue.dropped,
        connected_at=0.0 if session is None else session.started_at,
        offline_since=registry.offline.get(subscriber.client_id, 0) / 1000,
        subscriptions={name: each.qos for name, each in subscriber.subscriptions.items()},
    )


def disconnect(subscriber: Subscriber) -> bool:
    """Closes a client's connection; whether it had one."""
    output = subscriber.output
    if output is not None:
        output.close("disconnected by the operator")
    return output is not None


def unsubscribe(registry: Registry, subscriber: Subscriber, topic_filter: str) -> bool:
    """Ends a subscription; whether there was one to exactly this filter."""
    if not registry.unsubscribe(subscriber, topic_filter):
        return False
    hook = registry.core.hooks.on_topic_unsubscribed
    if hook is not None:
        hook(subscriber.queue.subscriber_id(), [topic_filter])
    return True
