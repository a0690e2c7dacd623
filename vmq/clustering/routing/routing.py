"""Routing between nodes: where publishes made here go elsewhere, and what becomes of those that come from there.

Each topic tree has beside its own subscriptions the filters of all other nodes, counted
(`vmq.clustering.routing.remotes`). A route is resolved in both at once, and forgotten when either changes. A publish
goes to each node that wants it once, straight from the node where it was published; there it goes to local subscribers
alone. Who gets it of a share group is told in `vmq.clustering.routing.shared_dispatch`.

A node that is down is a target like any other: what is of QoS 1 and 2 waits for its clients without a durable session
on its outbox, up to `buffer_bytes`, until it is up again; from here a node that died, with them, looks like one that
cannot be reached, whose clients are still there. What durable sessions want goes to their slots.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.publishes import QOS, RETAIN, RemotePublish, RemotePublishRun
from vmq.clustering.routing.remotes import RemoteSubscriptions
from vmq.clustering.routing.shared_dispatch import (
    SharedDispatch,
    SharedRoute,
    SlotTargets,
    publish_of,
    send,
)
from vmq.clustering.routing.shares import ShareMembers
from vmq.core.context import Core
from vmq.core.ports import Elsewhere, RemoteTargets
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.trie import Route
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.runs import split_run
from vmq.store.store import StoreError

log = logging.getLogger("vmq.cluster")

_NO_SLOTS: Final[list[tuple[int, str]]] = []


class RouteTarget:
    """Another node that wants a topic's messages, at `qos` at most.

    `quick_only`: it wants what is published at QoS 0. Without a node it stands for the `slots` that want the others.
    """

    __slots__ = ("node", "qos", "quick_only", "slots")

    def __init__(self, node: str, qos: int, quick_only: bool = False) -> None:
        self.node = node
        self.qos = qos
        self.quick_only = quick_only
        self.slots: list[tuple[int, str]] = []


class Routing(Elsewhere):
    """The routes of one broker to other nodes.

    Args:
        name: this node's.
        core: whose publishes they are; `attach` sets its port.
        registries: the topic trees that there are.
        outboxes: to the other nodes.
    """

    def __init__(
        self, name: str, core: Core, registries: Mapping[str, Registry], outboxes: Outboxes
    ) -> None:
        self._name = name
        self._core = core
        self._registries = registries
        self._outboxes = outboxes
        #: What other nodes subscribe to, by mountpoint.
        self._remotes: dict[str, RemoteSubscriptions] = {}
        self._members: set[str] = set()
        self._sources: dict[str, Source] = {}
        self._sharing = SharedDispatch(name, core, registries, outboxes, self._members_of)
        outboxes.on(RemotePublish, self._on_publish)
        outboxes.on(RemotePublishRun, self._on_run)

    def attach(self, directory: Directory) -> None:
        """Publishes go to other nodes from now on, by what the directory knows and will know."""
        for mountpoint, _, record in directory.count_all():
            self._tree(mountpoint).change(None, record)
        core = self._core
        core.elsewhere = self
        for registry in self._registries.values():
            registry.trie.remote = self.targets(registry.mountpoint)
        self._forget_routes()

    def detach(self) -> None:
        """Publishes stay here."""
        core = self._core
        core.elsewhere = Elsewhere()
        for registry in self._registries.values():
            registry.trie.remote = RemoteTargets()
        self._forget_routes()

    def follow(
        self, mountpoint: str, _client_id: str, before: Record | None, after: Record | None
    ) -> None:
        """A session's record became another: so do the routes that it concerns."""
        filters = self._tree(mountpoint).change(before, after)
        registry = self._registries.get(mountpoint)
        if registry is not None:
            for topic_filter in filters:
                registry.routes.filter_changed(topic_filter)

    @property
    def lost(self) -> int:
        """Messages for share groups that found no member on any node."""
        return self._sharing.lost

    def set_members(self, members: Iterable[str]) -> None:
        """These are the nodes of the cluster now: to no other can anything be sent."""
        self._members = set(members)
        self._sharing.nodes = self._members
        self._forget_routes()

    @property
    def slots(self) -> SlotTargets:
        """What slots want."""
        return self._sharing.slots

    def set_slots(self, slots: SlotTargets) -> None:
        """This says what slots want from now on."""
        self._sharing.slots = slots
        self._forget_routes()

    def share(self, peer: str, publish: RemotePublish) -> None:
        """Gives to a member of its share group, wherever that is, what a node was to give that is gone."""
        self._sharing.on_publish(peer, publish)

    def pass_on(self, publish: RemotePublish) -> bool:
        """Gives what waits for a node that is down to another one: this node leaves. False: no other is up."""
        return self._sharing.pass_on(publish)

    def set_up(self, up: Iterable[str]) -> None:
        """These other nodes can be reached now."""
        self._sharing.up = set(up)

    # --- publishes made here

    def forward(self, registry: Registry, route: Route, message: Message, source: Source) -> None:
        """Sends a message to the other nodes of its route, once to each, and to one member of each share group."""
        slots = _NO_SLOTS
        if route.shared:
            chosen = [self._sharing.share(registry, each, message, source) for each in route.shared]
            slots = [slot for slot in chosen if slot is not None]
        if slots or route.nodes:
            self._forward(registry, route, slots, message, source)

    def forward_again(
        self, registry: Registry, route: Route, message: Message, source: Source
    ) -> None:
        """Has its slots say that they have a message; one that was chosen for a share group is known where it came."""
        slots = [slot for target in route.nodes for slot in target.slots]
        for shared in route.shared:
            policy = source.policy() or self._core.options.shared_subscription_policy
            chosen = self.slots.choose(registry.mountpoint, shared.name, policy)
            if chosen is not None:
                slots.append(chosen)
        self.slots.offer(slots, message, source)

    def _forward(
        self,
        registry: Registry,
        route: Route,
        slots: list[tuple[int, str]],
        message: Message,
        source: Source,
    ) -> None:
        """Has the slots say it, without share groups but for those of which these slots have a member."""
        publish: RemotePublish | None = None
        publisher = source.publisher()
        self._core.counters.router_matches_remote += len(route.nodes)
        target: RouteTarget  # of a class that the core does not know: else each attribute is looked up by its name
        for target in route.nodes:
            if target.slots:
                slots = [*target.slots, *slots] if slots else target.slots
            elif not (target.quick_only and message.qos):
                if publish is None:
                    publish = publish_of(registry, message)
                send(self._outboxes, target.node, target.qos, publish, message.qos, publisher)
        if slots and (message.qos or self._core.options.upgrade_outgoing_qos):
            self.slots.offer(slots, message, source)

    def forward_run(self, mountpoint: str, route: Route, frames: bytes, count: int) -> None:
        """Sends a run of PUBLISH packets at QoS 0 to the nodes of a route."""
        run = RemotePublishRun(route.topic, frames, count, mountpoint)
        self._core.counters.router_matches_remote += len(route.nodes) * count
        target: RouteTarget
        for target in route.nodes:
            if target.node:
                self._outboxes.send_at_once(target.node, run)
            elif self._core.options.upgrade_outgoing_qos:
                for message in split_run(frames, route.topic):
                    self.slots.offer(target.slots, message, self._core.nobody)

    # --- publishes made elsewhere

    def _on_publish(self, peer: str, publish: RemotePublish) -> None:
        if publish.group:
            self._sharing.on_publish(peer, publish)
            return
        registry = self._registries.get(publish.mountpoint)
        route = None if registry is None else self._route(peer, registry, publish.topic)
        if registry is not None and route is not None:
            flags, payload = publish.flags, publish.payload
            qos = flags & QOS
            message = Message(route.topic, payload, qos, flags & RETAIN != 0)
            if qos:
                message.cut = route.head_for(qos, len(payload))
            registry.deliver(route, message, self._source(peer))

    def _on_run(self, peer: str, run: RemotePublishRun) -> None:
        registry = self._registries.get(run.mountpoint)
        route = None if registry is None else self._route(peer, registry, run.topic)
        if registry is None or route is None:
            return
        source = self._source(peer)
        try:
            if self._core.hooks.on_deliver is not None:
                for message in split_run(run.frames, route.topic):
                    registry.deliver(route, message, source)
            else:
                registry.deliver_run(route, run.frames, run.count, source)
        except StoreError as error:
            log.warning("publishes at QoS 0 from %s are dropped: %s", peer, error)

    def _source(self, peer: str) -> Source:
        """Of what a peer's clients have published."""
        source = self._sources.get(peer)
        if source is None:
            self._sources[peer] = source = Source(self._core.outbox.nowhere, node=peer)
        return source

    def _route(self, peer: str, registry: Registry, topic: bytes) -> Route | None:
        """Where a message of a peer goes here; None if it has no topic."""
        try:
            return registry.route(topic)
        except ProtocolError as error:
            log.warning("a publish from %s is dropped: %s", peer, error)
            return None

    # --- how it is done

    def _members_of(self, mountpoint: str, group: str) -> Mapping[str, ShareMembers]:
        tree = self._remotes.get(mountpoint)
        return {} if tree is None else tree.members(group)

    def _tree(self, mountpoint: str) -> RemoteSubscriptions:
        tree = self._remotes.get(mountpoint)
        if tree is None:
            self._remotes[mountpoint] = tree = RemoteSubscriptions(self._name)
        return tree

    def targets(self, mountpoint: str) -> RemoteTargets:
        """What completes the routes of a topic tree."""
        return MountpointTargets(self, mountpoint)

    def find_targets(self, mountpoint: str, route: Route) -> None:
        """Completes a route with its targets on other nodes."""
        tree = self._remotes.get(mountpoint)
        if tree is not None:
            self._find_nodes(tree, route)
        slots, groups = self.slots.find(mountpoint, route.text)
        if slots:
            target = RouteTarget("", 2)
            target.slots = slots
            route.nodes = [*route.nodes, target]
        known = {each.name for each in route.shared}
        here = {each.name: each for each in route.groups}
        more = [each for each in groups if each not in known]
        if more:
            nobody: Mapping[str, ShareMembers] = {}
            added = [SharedRoute(each, here.pop(each, None), nobody) for each in more]
            route.shared = [*route.shared, *added]
            route.groups = list(here.values())

    def _find_nodes(self, tree: RemoteSubscriptions, route: Route) -> None:
        found = tree.find(route.text)
        route.nodes = [
            RouteTarget(node, qos) for node, qos in found.nodes.items() if node in self._members
        ]
        quick = sorted((found.quick & self._members) - found.nodes.keys())
        route.nodes += [RouteTarget(node, 0, quick_only=True) for node in quick]
        here = {group.name: group for group in route.groups}
        route.shared = [
            SharedRoute(name, here.pop(name, None), members)
            for name, members in found.groups.items()
        ]
        route.groups = list(here.values())
        # What is stored until those nodes have it.
        route.remote_copies = len(route.shared) + sum(1 for target in route.nodes if target.qos)

    def give(self, registry: Registry, group: str, message: Message, to_absent: bool) -> bool:
        return self._sharing.give_elsewhere(registry, group, message, to_absent)

    def has_member(self, registry: Registry, group: str, is_absent: bool) -> bool:
        return self._sharing.is_elsewhere(registry, group, is_absent)

    def _forget_routes(self) -> None:
        for registry in self._registries.values():
            registry.trie.generation += 1


class MountpointTargets(RemoteTargets):
    """What the topics of one mountpoint find on other nodes."""

    def __init__(self, routing: Routing, mountpoint: str) -> None:
        self._routing = routing
        self._mountpoint = mountpoint

    def complete(self, route: Route) -> None:
        self._routing.find_targets(self._mountpoint, route)
