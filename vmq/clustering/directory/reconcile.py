"""The directory and this node's sessions are made to agree, at the start and whenever a record goes.

The metadata are written before the store, so what a crash left out is in the store: there the records are right.
"""

import logging
from collections.abc import Callable, Mapping

from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import Who
from vmq.core.detached import adopt
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber

log = logging.getLogger("vmq.cluster")


class Reconciler:
    """Makes them agree.

    Args:
        name: this node's.
        directory: whose records.
        registries: the topic trees that there are.
        find: the topic tree of a mountpoint, made when first asked for.
    """

    def __init__(
        self,
        name: str,
        directory: Directory,
        registries: Mapping[str, Registry],
        find: Callable[[str], Registry],
    ) -> None:
        self._name = name
        self._directory = directory
        self._registries = registries
        self._find = find
        #: Sessions of which a record told and the store did not: the broker died while it took or made them.
        self.made: list[tuple[Who, Record]] = []

    def start(self, was_alone: bool = False) -> None:
        """Before the first client: every session of this node has its record, and the other way round.

        `was_alone`: the broker ran without the cluster meanwhile, and its own sessions are as they are here.
        """
        directory = self._directory
        is_first = directory.is_new or was_alone
        own = [each for each in directory.records() if each[2].node == self._name]
        for mountpoint, client_id, record in own:
            if was_alone:
                self._claim_or_forget(mountpoint, client_id)
            else:
                self._restore(mountpoint, client_id, record)
        for registry in list(self._registries.values()):
            for subscriber in list(registry.subscribers.values()):
                if directory.record(registry.mountpoint, subscriber.client_id) is None:
                    self._register(registry, subscriber, is_first)
        if is_first:
            directory.note()
        directory.sweep()
        directory.flush()

    def on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        """A record of this node that another deleted takes the session along, unless its client is here."""
        if after is not None or before is None or before.node != self._name:
            return
        registry = self._registries.get(mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(client_id)
        if registry is not None and subscriber is not None:
            self._register(registry, subscriber, False)

    def _claim_or_forget(self, mountpoint: str, client_id: str) -> None:
        """A record is to be what its session is."""
        registry = self._find(mountpoint)
        subscriber = registry.subscribers.get(client_id)
        if subscriber is None:
            self._directory.forget(mountpoint, client_id)
        else:
            self._directory.claim(registry, subscriber)

    def _restore(self, mountpoint: str, client_id: str, record: Record) -> None:
        """A session is to be what its record says."""
        registry = self._find(mountpoint)
        subscriber = registry.subscribers.get(client_id)
        if subscriber is not None and subscriber.output is not None:
            self._directory.claim(registry, subscriber)  # a plugin's, from before the listeners
        elif record.clean:
            self._directory.forget(mountpoint, client_id)
            if subscriber is not None:
                registry.end_session(subscriber)
        elif subscriber is None:
            subscriber = adopt(registry, client_id, record.subscriptions, record.user or None)
            self.made.append(((mountpoint, client_id), record))
            self._tell_away(registry, subscriber, record)
        else:
            if subscriber.owner is None and record.user:
                registry.learn_owner(subscriber, record.user)
            for topic_filter in list(subscriber.subscriptions):
                if topic_filter not in record.subscriptions:
                    registry.unsubscribe(subscriber, topic_filter)
            for topic_filter, qos in record.subscriptions.items():
                registry.subscribe(subscriber, topic_filter, qos)
            self._tell_away(registry, subscriber, record)

    def _tell_away(self, registry: Registry, subscriber: Subscriber, record: Record) -> None:
        """The clients of before the start are not here."""
        if record.online and subscriber.is_shared():
            self._directory.changed(registry, subscriber)

    def _register(self, registry: Registry, subscriber: Subscriber, is_first: bool) -> None:
        """A session without a record gets one, or was ended by the cluster and ends."""
        if is_first or subscriber.output is not None:
            self._directory.claim(registry, subscriber)
        else:
            name, values = registry.named(subscriber.client_id)
            text = "ended by the cluster " + name
            log.info(text, *values)
            registry.end_session(subscriber)
