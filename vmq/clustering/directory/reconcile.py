"""The directory and this node's sessions are made to agree, at the start and whenever a record comes or goes."""

from collections.abc import Callable, Mapping

from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.core.registry import Registry


class Reconciler:
    """Makes them agree: this node has a record of each session that is here, and of no other.

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

    def start(self) -> None:
        """Before the first client: those of an earlier life are gone, those of plugins may be here."""
        directory = self._directory
        own = [each for each in directory.records() if each[2].node == self._name]
        for mountpoint, client_id, record in own:
            registry = self._find(mountpoint)
            subscriber = registry.subscribers.get(client_id)
            if subscriber is None:
                directory.forget(mountpoint, client_id)
            elif record.clean and subscriber.output is None:
                # Its client had begun anew, and ended with the broker.
                directory.forget(mountpoint, client_id)
                registry.end_session(subscriber)
        for registry in list(self._registries.values()):
            for subscriber in list(registry.subscribers.values()):
                known = directory.record(registry.mountpoint, subscriber.client_id)
                if known is None or subscriber.output is not None:
                    directory.claim(registry, subscriber)
        if directory.is_new:
            directory.note()
        directory.sweep()
        directory.flush()

    def on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        """Another node deleted the record of a session that is here, or knows one from before this disk was lost."""
        registry = self._registries.get(mountpoint)
        subscriber = None if registry is None else registry.subscribers.get(client_id)
        if after is not None:
            if after.node == self._name and subscriber is None:
                self._directory.forget(mountpoint, client_id)
        elif before is not None and before.node == self._name:
            if registry is not None and subscriber is not None:
                self._directory.claim(registry, subscriber)
