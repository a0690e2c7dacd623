"""Durable sessions that come from other nodes, and those on their way there.

These are here and are not: their messages and subscriptions are, nobody can have them.
"""

from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber


def adopt(
    registry: Registry, client_id: str, subscriptions: dict[str, int], owner: str | None = None
) -> Subscriber:
    """Makes a durable session that nobody is connected with, of what other nodes know of it."""
    subscriber = registry.create(client_id, False, owner)
    registry.offline[client_id] = now = registry.now_ms()
    store = registry.core.store
    if store is not None:
        store.put_session(registry.scope + client_id, subscriber.queue.session, now, owner)
    for topic_filter, qos in subscriptions.items():
        registry.subscribe(subscriber, topic_filter, qos)
    return subscriber


def detach(registry: Registry, subscriber: Subscriber) -> None:
    """Takes a durable session that nobody is connected with out, and leaves its queue subscribed."""
    queue = subscriber.queue
    _move_subscriptions(registry, subscriber, "\0" + subscriber.client_id)
    registry.offline.pop(subscriber.client_id, None)
    del registry.subscribers[subscriber.client_id]
    registry.core.counters.queue_teardown += 1
    # What a share group would choose it for goes to other members.
    for topic_filter, subscription in subscriber.subscriptions.items():
        if subscription.group:
            registry.trie.unsubscribe(topic_filter, queue.client_id)


def attach(registry: Registry, subscriber: Subscriber) -> None:
    """Takes it back."""
    _move_subscriptions(registry, subscriber, subscriber.client_id)
    registry.offline[subscriber.client_id] = registry.now_ms()
    registry.subscribers[subscriber.client_id] = subscriber
    registry.core.counters.queue_setup += 1


def forget(registry: Registry, subscriber: Subscriber) -> None:
    """Ends it, here."""
    for topic_filter in subscriber.subscriptions:
        registry.trie.unsubscribe(topic_filter, subscriber.queue.client_id)
        registry.routes.filter_changed(topic_filter)
    store = registry.core.store
    if store is not None:
        queue = subscriber.queue
        first, order = queue.stored_from()
        if subscriber.client_id not in registry.subscribers:
            store.end_session(registry.scope + subscriber.client_id, queue.session, first, order)
        else:  # it is here again, under another number
            store.leave_to_purge(queue.session, first, order)
        registry.purge(queue.session)


def _move_subscriptions(registry: Registry, subscriber: Subscriber, name: str) -> None:
    """Has the trie know the session's subscriptions by another name."""
    queue = subscriber.queue
    before = queue.client_id
    for topic_filter in subscriber.subscriptions:
        registry.trie.unsubscribe(topic_filter, before)
    queue.client_id = name
    for topic_filter, subscription in subscriber.subscriptions.items():
        registry.trie.subscribe(topic_filter, subscription)
        registry.routes.filter_changed(topic_filter)
