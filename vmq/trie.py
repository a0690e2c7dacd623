"""The subscription trie, and the cache of routes that makes a walk of it rare.

A node stands for one level of a topic filter. Most nodes of a large broker have one child and one
subscriber at most, so both have a slot of their own before a dict is made.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from vmq.mqtt.topics import has_wildcard, split_shared
from vmq.queue import Queue


class Subscription:
    """A subscriber's wish for one filter.

    `group` is empty, or the whole filter if that is `$share/name/filter`.
    """

    def __init__(self, queue: Queue, qos: int, group: str) -> None:
        self.queue = queue
        self.qos = qos
        self.group = group


class Group:
    """The members of one shared subscription, whose name is the whole `$share/name/filter`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, Subscription] = {}
        #: The members in a list, for a choice by number.
        self.order: list[Subscription] = []

    def is_online(self) -> bool:
        """Whether any member is connected."""
        return any(member.queue.online for member in self.order)


class Node:
    """One level of the filters. `plus` and `hash` are the children for the wildcards."""

    def __init__(self) -> None:
        self.word = ""
        self.child: Node | None = None
        self.children: dict[str, Node] | None = None
        self.plus: Node | None = None
        self.hash: Node | None = None
        self.one: Subscription | None = None
        self.many: dict[str, Subscription] | None = None
        self.groups: dict[str, Group] | None = None

    def find(self, word: str) -> "Node | None":
        """The child for a word that is no wildcard."""
        children = self.children
        if children is not None:
            return children.get(word)
        if self.child is not None and self.word == word:
            return self.child
        return None

    def step(self, word: str) -> "Node | None":
        """The child for any word of a filter."""
        if word == "+":
            return self.plus
        if word == "#":
            return self.hash
        return self.find(word)

    def grow(self, word: str) -> "Node":
        """The child for any word of a filter, made if it is not there."""
        found = self.step(word)
        if found is not None:
            return found
        node = Node()
        if word == "+":
            self.plus = node
        elif word == "#":
            self.hash = node
        elif self.children is not None:
            self.children[sys.intern(word)] = node
        elif self.child is None:
            self.word = sys.intern(word)
            self.child = node
        else:
            self.children = {self.word: self.child, sys.intern(word): node}
            self.word = ""
            self.child = None
        return node

    def cut(self, word: str) -> None:
        """Removes the child for a word."""
        if word == "+":
            self.plus = None
        elif word == "#":
            self.hash = None
        elif self.children is not None:
            del self.children[word]
            if not self.children:
                self.children = None
        else:
            self.child = None
            self.word = ""

    def is_empty(self) -> bool:
        return (
            self.child is None
            and self.children is None
            and self.plus is None
            and self.hash is None
            and self.one is None
            and self.many is None
            and self.groups is None
        )

    def add(self, client_id: str, subscription: Subscription) -> bool:
        """Adds or replaces a subscriber; True if it was not there."""
        many = self.many
        one = self.one
        if many is not None:
            is_new = client_id not in many
            many[client_id] = subscription
        elif one is None or one.queue.client_id == client_id:
            is_new = one is None
            self.one = subscription
        else:
            is_new = True
            self.many = {one.queue.client_id: one, client_id: subscription}
            self.one = None
        return is_new

    def add_member(self, client_id: str, subscription: Subscription) -> bool:
        """Adds or replaces a member of a share group; True if it was not there."""
        if self.groups is None:
            self.groups = {}
        group = self.groups.get(subscription.group)
        if group is None:
            group = Group(subscription.group)
            self.groups[subscription.group] = group
        is_new = client_id not in group.members
        group.members[client_id] = subscription
        group.order = list(group.members.values())
        return is_new

    def remove(self, client_id: str, group_name: str) -> bool:
        """Removes a subscriber or a member; False if it is not there."""
        if group_name:
            groups = self.groups
            group = groups.get(group_name) if groups is not None else None
            if groups is None or group is None or group.members.pop(client_id, None) is None:
                return False
            group.order = list(group.members.values())
            if not group.members:
                del groups[group_name]
                if not groups:
                    self.groups = None
        elif self.many is not None:
            if self.many.pop(client_id, None) is None:
                return False
            if not self.many:
                self.many = None
        elif self.one is not None and self.one.queue.client_id == client_id:
            self.one = None
        else:
            return False
        return True


NO_TAPS: Final[list[Any]] = []
NO_NODES: Final[list[Any]] = []


class Route:
    """Where the messages of one topic go, as resolved at one generation of the trie.

    `field` is the topic with its two length bytes, as it stands in a PUBLISH. `stored_copies` is
    how many durable queues get a message of QoS 1 or 2, `remote_copies` how many other nodes. `taps`
    are the write sides of the streams that keep the topic's messages; they do not depend on the trie.

    `nodes` are the other nodes of the cluster that want the messages, and `shared` the share groups
    that have members there, which `groups` does not hold then; what both are, `Core.forward` knows.
    """

    def __init__(self, topic: bytes, text: str) -> None:
        self.topic = topic
        self.text = text
        self.field = len(topic).to_bytes(2, "big") + topic
        self.targets: list[Subscription] = []
        self.groups: list[Group] = []
        self.stored_copies: int = 0
        self.taps: list[Any] = NO_TAPS
        self.nodes: list[Any] = NO_NODES
        self.shared: list[Any] = NO_NODES
        self.remote_copies: int = 0
        self.generation: int = -1

    def is_stored(self) -> bool:
        """Whether the store gets a message of QoS 1 or 2."""
        return self.stored_copies > 0 or self.remote_copies > 0


class Trie:
    """All subscriptions of one topic tree.

    `generation` moves on with every change that may touch more than one topic (see
    `RouteCache.filter_changed`); a route that was resolved at an older one is resolved again when
    it is next used.
    """

    def __init__(self) -> None:
        self.root = Node()
        self.generation: int = 0
        self.count: int = 0
        #: Adds to a route what goes to other nodes of the cluster; None without one.
        self.find_remote: Callable[[Any], None] | None = None

    def subscribe(self, topic_filter: str, subscription: Subscription) -> None:
        """Adds a subscription, or replaces that of the same subscriber and filter."""
        _, plain = split_shared(topic_filter)
        node = self.root
        for word in plain.split("/"):
            node = node.grow(word)
        client_id = subscription.queue.client_id
        if subscription.group:
            is_new = node.add_member(client_id, subscription)
        else:
            is_new = node.add(client_id, subscription)
        if is_new:
            self.count += 1

    def unsubscribe(self, topic_filter: str, client_id: str) -> None:
        """Removes a subscription and the nodes that only it needed."""
        group, plain = split_shared(topic_filter)
        words = plain.split("/")
        path: list[Node] = [self.root]
        for word in words:
            found = path[-1].step(word)
            if found is None:
                return
            path.append(found)
        if path[-1].remove(client_id, topic_filter if group else ""):
            self.count -= 1
        for index in range(len(words) - 1, -1, -1):
            if not path[index + 1].is_empty():
                break
            path[index].cut(words[index])

    def find_group(self, name: str) -> Group | None:
        """The share group of a whole `$share/name/filter`."""
        node = self.root
        for word in split_shared(name)[1].split("/"):
            found = node.step(word)
            if found is None:
                return None
            node = found
        return None if node.groups is None else node.groups.get(name)

    def match(self, topic: str) -> list[Node]:
        """The nodes whose filters match a topic.

        Walks with a list of nodes a level instead of recursion: a topic may have 32,768 levels.
        """
        words = topic.split("/")
        found: list[Node] = []
        level: list[Node] = [self.root]
        is_system = topic.startswith("$")  # hidden from leading wildcards [MQTT-4.7.2-1]
        for index, word in enumerate(words):
            below: list[Node] = []
            for node in level:
                if not (is_system and index == 0):
                    if node.hash is not None:
                        found.append(node.hash)
                    if node.plus is not None:
                        below.append(node.plus)
                exact = node.find(word)
                if exact is not None:
                    below.append(exact)
            if not below:
                return found
            level = below
        for node in level:
            found.append(node)
            if node.hash is not None:  # a/# matches a as well
                found.append(node.hash)
        return found

    def resolve(self, route: Route) -> None:
        """Works out a route's targets: one a queue, at the highest QoS it asked for [MQTT-3.3.5-1]."""
        best: dict[str, Subscription] = {}
        groups: list[Group] = []
        for node in self.match(route.text):
            one = node.one
            if one is not None:
                keep_best(best, one)
            many = node.many
            if many is not None:
                for subscription in many.values():
                    keep_best(best, subscription)
            if node.groups is not None:
                groups.extend(node.groups.values())
        route.targets = list(best.values())
        route.groups = groups
        copies = len(groups)
        for target in route.targets:
            if target.qos and target.queue.durable:
                copies += 1
        route.stored_copies = copies
        route.nodes = NO_NODES
        route.shared = NO_NODES
        route.remote_copies = 0
        if self.find_remote is not None:
            self.find_remote(route)
        route.generation = self.generation


def keep_best(best: dict[str, Subscription], candidate: Subscription) -> None:
    """Keeps of two subscriptions of one client the one with the higher QoS."""
    client_id = candidate.queue.client_id
    present = best.get(client_id)
    if present is None or present.qos < candidate.qos:
        best[client_id] = candidate


class RouteCache:
    """Routes by the topic's raw bytes: one look-up a message.

    Bounded by two half-full generations: when the young half is full it becomes the old half, and
    what was not used since is gone. Long topics are not kept, so that a hostile publisher cannot
    fill the memory with them.
    """

    def __init__(self, trie: Trie, limit: int) -> None:
        self.trie = trie
        self.half = max(1, limit // 2)
        self.young: dict[bytes, Route] = {}
        self.old: dict[bytes, Route] = {}

    def resize(self, limit: int) -> None:
        """Forgets every route, and remembers up to `limit` from now on."""
        self.half = max(1, limit // 2)
        self.young = {}
        self.old = {}

    def keep(self, route: Route) -> None:
        """Keeps a route that `find` did not know."""
        if len(route.topic) > 512:
            return
        if len(self.young) >= self.half:
            self.old = self.young
            self.young = {}
        self.young[route.topic] = route

    def find(self, topic: bytes) -> Route | None:
        """The route of a topic, up to date; None if it has to be made."""
        route = self.young.get(topic)
        if route is None:
            route = self.old.get(topic)
            if route is None:
                return None
            self.keep(route)
        if route.generation != self.trie.generation:
            self.trie.resolve(route)
        return route

    def filter_changed(self, topic_filter: str) -> None:
        """Subscriptions to a filter changed: forgets the routes that it may concern."""
        plain = split_shared(topic_filter)[1]
        if has_wildcard(plain):
            self.trie.generation += 1
        else:
            topic = plain.encode()
            self.young.pop(topic, None)
            self.old.pop(topic, None)
