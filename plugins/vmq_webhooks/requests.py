"""What an endpoint is told: a hook's arguments in VerneMQ's names."""

import base64
from collections.abc import Sequence
from typing import Any

from vmq_hooks import Message, Peer, SubscriberId, Subscription

Body = dict[str, Any]


def client(subscriber_id: SubscriberId) -> Body:
    """Whom a hook is about."""
    return {"client_id": subscriber_id.client_id, "mountpoint": subscriber_id.mountpoint}


def user(username: str | None, subscriber_id: SubscriberId) -> Body:
    """Whom a hook is about, with the user name; null if there is none."""
    return {**client(subscriber_id), "username": username}


def connection(peer: Peer, username: str | None, subscriber_id: SubscriberId) -> Body:
    """Who connects, and from where."""
    return {
        **user(username, subscriber_id),
        "peer_addr": peer.host,
        "peer_port": peer.port,
    }


def message(seen: Message, *, with_payload: bool) -> Body:
    """A message; its payload in base64, since JSON carries text only."""
    body: Body = {"topic": seen.topic, "qos": seen.qos, "retain": seen.retain}
    if with_payload:
        body["payload"] = base64.b64encode(seen.payload).decode()
    return body


def topics(subscriptions: Sequence[Subscription]) -> Body:
    """What is subscribed to. With filters of a service, what is wanted there: see `Subscription`."""
    return {"topics": [_topic(each) for each in subscriptions]}


def _topic(subscription: Subscription) -> Body:
    found: Body = {"topic": subscription.topic_filter, "qos": subscription.qos}
    if subscription.action:
        found["action"] = subscription.action
    if subscription.history:
        found["history"] = subscription.history
    if subscription.group:
        found["group"] = subscription.group
    return found
