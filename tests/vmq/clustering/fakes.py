"""Brokers without sockets that are nodes of one cluster: houses, with a replicated map and outboxes between them.

What one writes or sends the others get when `settle` is called, in order.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from tests.vmq.support import House
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.reconcile import Reconciler
from vmq.clustering.routing.retained import ClusterRetained
from vmq.clustering.routing.routing import Routing
from vmq.core.output import Output
from vmq.core.registry import Registry
from vmq_cluster.effects import Changed

#: Prefix, key and value, and for writes that nodes make the time and the writer.
Pending = tuple[str, bytes, bytes | None] | tuple[str, bytes, bytes | None, tuple[int, str]]


class FakeNode:
    """The replicated map of a node: of the writes to a key, the last one stays. Reads are of the moment."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_running = True
        self.map: dict[tuple[str, bytes], bytes] = {}
        #: What others are to hear of.
        self.written: list[Pending] = []
        #: The time of the last write to each key, and its writer.
        self.stamps: dict[tuple[str, bytes], tuple[int, str]] = {}
        self.time = 0
        self.merges: dict[str, Callable[[bytes, bytes], bytes]] = {}
        self.watchers: list[tuple[str, Callable[[list[Changed]], None]]] = []
        #: Own writes of which no step has told yet.
        self.told: list[Changed] = []

    def get(self, prefix: str, key: bytes) -> bytes | None:
        return self.map.get((prefix, key))

    def put(self, prefix: str, key: bytes, value: bytes) -> None:
        before, stamp = self._write(prefix, key, value)
        self.written.append((prefix, key, value, stamp))
        self.told.append(Changed(prefix, key, value, before, local=True))

    def delete(self, prefix: str, key: bytes) -> bool:
        before, stamp = self._write(prefix, key, None)
        self.written.append((prefix, key, None, stamp))
        self.told.append(Changed(prefix, key, None, before, local=True))
        return before is not None

    def items(
        self, prefix: str, begin: bytes = b"", after: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        for (found, key), value in sorted(self.map.items()):
            if found == prefix and key.startswith(begin) and (after is None or key > after):
                yield key, value

    def merge_with(self, prefix: str, merge: Callable[[bytes, bytes], bytes]) -> None:
        self.merges[prefix] = merge

    def watch_steps(self, prefix: str, callback: Callable[[list[Changed]], None]) -> None:
        self.watchers.append((prefix, callback))

    def hear(self, *writes: Pending) -> None:
        """A step in which these writes of others arrive."""
        changes, self.told = self.told, []
        for prefix, key, value, *given in writes:
            stamp = given[0] if given else (self.time + 1, "~")
            self.time = max(self.time, stamp[0])
            if stamp < self.stamps.get((prefix, key), (0, "")):
                continue
            before = self._set(prefix, key, value, stamp)
            if before != value:
                changes.append(Changed(prefix, key, value, before, local=False))
        for prefix, callback in self.watchers:
            chosen = [each for each in changes if each.prefix == prefix]
            if chosen:
                callback(chosen)

    def _write(
        self, prefix: str, key: bytes, value: bytes | None
    ) -> tuple[bytes | None, tuple[int, str]]:
        self.time += 1
        stamp = (self.time, self.name)
        return self._set(prefix, key, value, stamp), stamp

    def _set(
        self, prefix: str, key: bytes, value: bytes | None, stamp: tuple[int, str]
    ) -> bytes | None:
        self.stamps[prefix, key] = stamp
        before = self.map.get((prefix, key))
        if value is None:
            self.map.pop((prefix, key), None)
        else:
            self.map[prefix, key] = value
        return before


class FakeLanes(Outboxes):
    """The outboxes of a node; what was sent waits for the test. A subclass, for compiled code asks for `Outboxes`."""

    def __init__(self) -> None:
        self.handlers: dict[type, Callable[[str, Any], None]] = {}
        #: (peer, message, reliable)
        self.sent: list[tuple[str, Any, bool]] = []
        self.on_send: Callable[[], object] = lambda: None

    def on(
        self, kind: type, handle: Callable[[str, Any], None], *, for_streams: bool = False
    ) -> None:
        self.handlers[kind] = handle

    def send(self, peer: str, message: Any, done: Callable[[bool], None] | None = None) -> bool:
        self.sent.append((peer, message, True))
        self.on_send()
        return True

    def forward(self, peer: str, message: Any, _qos: int, _publisher: Output | None) -> bool:
        return self.send(peer, message)

    def send_quick(self, peer: str, message: Any) -> bool:
        self.sent.append((peer, message, False))
        return True

    def send_at_once(self, peer: str, message: Any) -> bool:
        return self.send_quick(peer, message)


class Member:
    """A house as a node."""

    def __init__(self, name: str, path: Path | None = None, **options: Any) -> None:
        self.name = name
        self.house = House(path, **options)
        self.node = FakeNode(name)
        self.start()

    def start(self) -> None:
        """What `Clustering` does at its start."""
        self.outboxes = FakeLanes()
        self.soon: list[Callable[[], None]] = []
        self.node.watchers.clear()
        core = self.house.core
        self.registries = {"": self.house.registry}
        node = cast("Any", self.node)
        self.routing = Routing(self.name, core, self.registries, self.outboxes)
        self.directory = Directory(
            node, self.routing.follow, lambda: int(core.wall_clock() * 1000), self.soon.append
        )
        is_first = self.directory.is_new
        self.routing.attach(self.directory)
        self.reconciler = reconciler = Reconciler(
            self.name, self.directory, self.registries, lambda name: self.registries[name]
        )
        store = core.store
        was_alone = store is not None and store.was_alone()
        reconciler.start()
        self.directory.on_owner(reconciler.on_owner)
        core.sessions = self.directory
        self.retained = ClusterRetained(
            node, core, self.registries, self.find_registry, self.soon.append
        )
        self.retained.attach(is_first, was_alone)
        if was_alone and store is not None:
            store.forget_alone()

    def restart(self) -> None:
        """The broker is killed; its replicated map has what it had."""
        self.house.restart()
        self.start()

    def find_registry(self, mountpoint: str) -> Registry:
        if mountpoint not in self.registries:
            house = self.house
            made = Registry(house.core, house.on_wake, house.purged.append, mountpoint)
            self.registries[mountpoint] = made
        return self.registries[mountpoint]

    def end_pass(self) -> None:
        soon = list(self.soon)
        self.soon.clear()
        for each in soon:
            each()


def cluster(*members: Member) -> None:
    for each in members:
        each.routing.set_members([other.name for other in members])
        each.routing.set_up([other.name for other in members if other is not each])


def settle(*members: Member) -> None:
    """Everybody gets what the others wrote and sent."""
    while True:
        for each in members:
            each.end_pass()
        if not any(each.node.written or each.outboxes.sent for each in members):
            return
        for each in members:
            written, each.node.written = each.node.written, []
            for other in members:
                other.node.hear(*(written if other is not each else ()))
        for each in members:
            sent, each.outboxes.sent = each.outboxes.sent, []
            for peer, message, _ in sent:
                [other] = [other for other in members if other.name == peer]
                other.outboxes.handlers[type(message)](each.name, message)
                other.house.maybe_settle()
