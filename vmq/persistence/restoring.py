"""Brings back what the store keeps: durable sessions and retained messages."""

import logging
from collections.abc import Callable, Mapping

from vmq.core.registry import Registry
from vmq.store.opening import stored_retained, stored_sessions
from vmq.store.store import Store

log = logging.getLogger("vmq.broker")


def restore(
    store: Store, registry: Callable[[str], Registry], registries: Mapping[str, Registry]
) -> None:
    """Fills the topic trees, those of mountpoints without a listener too.

    Args:
        store: just opened.
        registry: the topic tree of a mountpoint, made when first asked for.
        registries: those that were made.
    """
    for session in stored_sessions(store):
        registry(session.mountpoint).restore(session)
    retained = 0
    for mountpoint, message in stored_retained(store):
        # One that is no text shows that the store is damaged.
        message.topic.decode()
        registry(mountpoint).retained.keep(message)
        retained += 1
    sessions = 0
    for each in registries.values():
        # In the order in which they left, which is the order in which they expire.
        each.offline = dict(sorted(each.offline.items(), key=lambda item: item[1]))
        sessions += len(each.subscribers)
    if sessions or retained:
        log.info("restored sessions=%d retained=%d", sessions, retained)
