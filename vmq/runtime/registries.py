"""How the core finds the topic trees of a broker."""

from collections.abc import Callable

from vmq.core.ports import RegistryFinder
from vmq.core.registry import Registry


class BrokerRegistries(RegistryFinder):
    """The topic trees of a broker.

    Args:
        find: the one of a mountpoint, made when first asked for.
    """

    def __init__(self, find: Callable[[str], Registry]) -> None:
        super().__init__()
        self._find = find

    def find(self, mountpoint: str) -> Registry:
        return self._find(mountpoint)
