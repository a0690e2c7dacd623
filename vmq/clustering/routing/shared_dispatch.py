"""Share groups across nodes: one member in the whole cluster gets each message.

Its node is chosen where the message was published, by what that node knows (`vmq.clustering.routing.shares`). If the
last member there is gone when the message comes, that node passes it on to another, in the same commit of its store as
the fact that it came: so it is never in two places.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec
from mypy_extensions import mypyc_attr

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.publishes import MAX_HOPS, QOS, RETAIN, RemotePublish
from vmq.clustering.routing.shares import LOCAL_ONLY, RANDOM, ShareMembers, choose, members_at
from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.subscription_set import Group
from vmq.mqtt.message import Message

log = logging.getLogger("vmq.cluster")


@mypyc_attr(allow_interpreted_subclasses=True)
class SlotTargets:
    """What slots want; this one is of a node that does not serve yet."""

    def __init__(self) -> None:
        #: Some session may be in a slot: they are asked.
        self.are_asked = False

    def find(self, mountpoint: str, topic: str) -> tuple[list[tuple[int, str]], list[str]]:
        """The slots that want the messages of a topic at QoS 1 and 2, and the share groups with members in slots."""
        return [], []

    def choose(
        self, mountpoint: str, group: str, policy: str, here: int = 0, others: int = 0
    ) -> tuple[int, str] | None:
        """A slot that gets a message for a share group; None: it is for the members that are in none, or for nobody.

        Of these so many are connected `here`, and `others` in all.
        """
        return None

    def offer(self, slots: list[tuple[int, str]], message: Message, source: Source) -> None:
        """Has these slots get a message."""


class SharedRoute:
    """A share group of a route with members on other nodes or in slots; those of this one are in `here`."""

    __slots__ = ("here", "members", "name")

    def __init__(self, name: str, here: Group | None, members: Mapping[str, ShareMembers]) -> None:
        self.name = name
        self.here = here
        self.members = members


class SharedDispatch:
    """The share groups as one node sees them.

    Args:
        name: this node's.
        core: the broker's.
        registries: the topic trees that there are.
        outboxes: to the other nodes.
        members_of: the members of a group of a mountpoint, by node.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        registries: Mapping[str, Registry],
        outboxes: Outboxes,
        members_of: Callable[[str, str], Mapping[str, ShareMembers]],
    ) -> None:
        self._name = name
        self._core = core
        self._registries = registries
        self._outboxes = outboxes
        self._members_of = members_of
        self.slots = SlotTargets()
        #: The nodes of the cluster, and the others that can be reached.
        self.nodes: set[str] = set()
        self.up: set[str] = set()
        #: Messages of other nodes for groups of which no member was left.
        self.lost = 0

    def share(
        self, registry: Registry, shared: SharedRoute, message: Message, source: Source
    ) -> tuple[int, str] | None:
        """Gives a message to one member of a group, here or elsewhere; returns the slot that is to get it instead."""
        policy = source.policy() or self._core.options.shared_subscription_policy
        slots: SlotTargets | None = None
        mountpoint, group = registry.mountpoint, shared.name
        if self.slots.are_asked and message.qos:
            slots = self.slots
            connected = self._connected(policy, shared.members)
            slot = slots.choose(mountpoint, group, policy, *connected)
            if slot is not None:
                return slot
        node = self._choose(policy, message, shared.members)
        if node is None or node == self._name:
            # Of what happened in this very pass the members are not told yet, but the trie knows.
            here = shared.here
            if here is not None and registry.deliver_to_member(here, message, source):
                self._core.counters.router_matches_local += 1
                return None
            node = self._choose(policy, message, self._others(shared.members))
        if node is None:
            return None if slots is None else slots.choose(mountpoint, group, policy)
        publish = publish_of(registry, message, shared.name)
        self._send(node, shared.members, publish, source.publisher())
        return None

    def give_elsewhere(self, registry: Registry, name: str, message: Message, away: bool) -> bool:
        """Gives a message to a member of a group on another node, if there is one.

        Args:
            registry: the topic tree.
            name: the group's.
            message: for one of its members.
            away: whether one that is not connected, or on a node that is down, will do.
        """
        if self._give_to_slot(registry.mountpoint, name, message):
            return True
        if not self.is_elsewhere(registry, name, away):
            return False
        members = self._members_of(registry.mountpoint, name)
        node = self._choose(RANDOM, message, self._others(members))
        if node is None:
            return False
        self._send(node, members, publish_of(registry, message, name), None)
        return True

    def is_elsewhere(self, registry: Registry, name: str, away: bool) -> bool:
        """Whether a group has a member on another node; see `give_elsewhere`."""
        policy = self._core.options.shared_subscription_policy
        if self.slots.choose(registry.mountpoint, name, policy) is not None:
            return True
        if policy == LOCAL_ONLY:
            return False
        others = self._others(self._members_of(registry.mountpoint, name))
        return any(away or node in self.up for node in others)

    def on_publish(self, peer: str, publish: RemotePublish) -> None:
        """A member of this node was chosen elsewhere; if none is left, one of another node is chosen now."""
        registry = self._registries.get(publish.mountpoint)
        message = Message(publish.topic, publish.payload, publish.qos, publish.retain)
        group = None if registry is None else registry.trie.find_group(publish.group)
        if registry is not None and group is not None:
            if registry.deliver_to_member(group, message, self._core.nobody):
                self._core.counters.router_matches_local += 1
                return
        members = self._members_of(publish.mountpoint, publish.group)
        node = self._choose(RANDOM, message, self._others(members))
        if publish.hops >= MAX_HOPS:
            node = None  # each takes another one's members, who have gone, for present
        if node is None and self._give_to_slot(publish.mountpoint, publish.group, message):
            return
        if node is None:
            self.lost += 1
            log.info('nobody is left of "%s" for a message from %s', publish.group[:200], peer)
            return
        self._send(node, members, msgspec.structs.replace(publish, hops=publish.hops + 1), None)

    def pass_on(self, publish: RemotePublish) -> bool:
        """Gives what waits for a node that is down to another one: this node leaves. False: no other is up.

        Where no node that is up has a member, one of them is to choose again when there is one.
        """
        message = Message(publish.topic, publish.payload, publish.qos, publish.retain)
        members = self._others(self._members_of(publish.mountpoint, publish.group))
        near = {node: each for node, each in members.items() if node in self.up}
        node = self._choose(RANDOM, message, near) or min(self.up, default=None)
        return node is not None and self._outboxes.move(node, publish)

    # --- how it is done

    def _connected(self, policy: str, members: Mapping[str, ShareMembers]) -> tuple[int, int]:
        """How many connected members without a session in a slot there are here, and in all to choose among."""
        near = {
            node: each.total
            for node, each in members.items()
            if node == self._name or (node in self.up and policy != LOCAL_ONLY)
        }
        return near.get(self._name, 0), sum(near.values())

    def _give_to_slot(self, mountpoint: str, group: str, message: Message) -> bool:
        """Has a slot get what no node can give to a member any more; False: it has no members in slots."""
        if not message.qos:
            return False
        slot = self.slots.choose(mountpoint, group, self._core.options.shared_subscription_policy)
        if slot is not None:
            self.slots.offer([slot], message, self._core.nobody)
        return slot is not None

    def _others(self, members: Mapping[str, ShareMembers]) -> dict[str, ShareMembers]:
        return {node: each for node, each in members.items() if node != self._name}

    def _choose(
        self, policy: str, message: Message, members: Mapping[str, ShareMembers]
    ) -> str | None:
        """The node that gets a message, among those of the cluster."""
        found = members_at(message.qos, members)
        there = {node: each for node, each in found.items() if node in self.nodes}
        return choose(policy, self._name, there, self.up, self._core.choose)

    def _send(
        self,
        node: str,
        members: Mapping[str, ShareMembers],
        publish: RemotePublish,
        publisher: Output | None,
    ) -> None:
        self._core.counters.router_matches_remote += 1
        qos = publish.flags & QOS
        member = members_at(qos, members)[node]
        send(self._outboxes, node, member.highest, publish, qos, publisher)


def publish_of(registry: Registry, message: Message, group: str = "") -> RemotePublish:
    """A message on its way to another node."""
    flags = message.qos | RETAIN if message.retain else message.qos
    return RemotePublish(message.topic, message.payload, flags, registry.mountpoint, group)


def send(
    outboxes: Outboxes,
    node: str,
    highest: int,
    publish: RemotePublish,
    qos: int,
    publisher: Output | None,
) -> None:
    """Sends what was published at `qos` to where `highest` is the QoS wanted at most."""
    if qos and highest:
        outboxes.forward(node, publish, qos, publisher)
        return
    if qos:
        publish = msgspec.structs.replace(publish, flags=publish.flags & RETAIN)
    outboxes.send_at_once(node, publish)
