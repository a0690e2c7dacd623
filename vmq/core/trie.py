"""The subscription trie; `vmq.core.route_cache` makes a walk of it rare.

A node stands where a topic filter ends, or where several part: levels in between have no nodes. Most nodes of a large
broker have no child, or one, and one subscriber at most: there are smaller ones for ends, and child and subscriber have
a slot of their own before a dict is made.
"""

from typing import Any, Final

from mypy_extensions import i64

from vmq.core.context import Core
from vmq.core.ports import RemoteTargets
from vmq.core.queue import Queue
from vmq.core.subscription_set import (
    NODE_SIZE,
    SUBSCRIPTION_SIZE,
    Group,
    Subscription,
    content_of,
    has,
)
from vmq.mqtt.encoder import publish_head
from vmq.mqtt.topics import common_words, interned, joined, split_shared, stands_at

#: Nodes that a further filter makes at most: its own, and one where it parts from others.
MOST_NEW_NODES: Final = 2


class Several:
    """Of the end of a filter: more subscribers than one, and share groups. Few ends have them."""

    def __init__(self) -> None:
        self.many: dict[str, Subscription] | None = None
        self.groups: dict[str, Group] | None = None


class End:
    """The end of a filter; nothing is below it, unless it is a `Node`. Most of a large broker's are no more than that.

    `rest` are the levels between the word that leads here and the end, joined by /, and None if there are none. It
    may have + among them, and # at its end, but not that of a `Node`.
    """

    def __init__(self, rest: str | None) -> None:
        self.rest = rest
        self.one: Subscription | None = None
        self.several: Several | None = None

    def is_empty(self) -> bool:
        return self.one is None and self.several is None

    def more(self) -> Several:
        """What has more than one subscriber."""
        several = self.several
        if several is None:
            self.several = several = Several()
        return several

    def add(self, client_id: str, subscription: Subscription) -> bool:
        """Adds or replaces a subscriber; True if it was not there."""
        many = None if self.several is None else self.several.many
        one = self.one
        if many is not None:
            is_new = client_id not in many
            many[client_id] = subscription
        elif one is None or one.queue.client_id == client_id:
            is_new = one is None
            self.one = subscription
        else:
            is_new = True
            self.more().many = {one.queue.client_id: one, client_id: subscription}
            self.one = None
        return is_new

    def add_member(self, client_id: str, subscription: Subscription) -> bool:
        """Adds or replaces a member of a share group; True if it was not there."""
        several = self.more()
        if several.groups is None:
            several.groups = {}
        group = several.groups.get(subscription.group)
        if group is None:
            group = Group(subscription.group)
            several.groups[subscription.group] = group
        is_new = client_id not in group.members
        group.members[client_id] = subscription
        group.order = list(group.members.values())
        return is_new

    def remove(self, client_id: str, group_name: str, queue: Queue | None = None) -> bool:
        """Removes a subscriber or a member; False if it is not there, or is another's than this queue's."""
        several = self.several
        if group_name:
            groups = None if several is None else several.groups
            group = groups.get(group_name) if groups is not None else None
            if several is None or groups is None or group is None:
                return False
            if not has(group.members, client_id, queue):
                return False
            del group.members[client_id]
            group.order = list(group.members.values())
            if not group.members:
                del groups[group_name]
                if not groups:
                    several.groups = None
        elif several is not None and several.many is not None:
            if not has(several.many, client_id, queue):
                return False
            del several.many[client_id]
            if not several.many:
                several.many = None
        elif (
            self.one is not None
            and self.one.queue.client_id == client_id
            and (queue is None or self.one.queue is queue)
        ):
            self.one = None
        else:
            return False
        if several is not None and several.many is None and several.groups is None:
            self.several = None
        return True


class Node(End):
    """Where several filters part, or where one ends that others go on from.

    `plus` and `hash` are the children for the wildcards.
    """

    def __init__(self, rest: str | None) -> None:
        super().__init__(rest)
        self.word = ""
        self.child: End | None = None
        self.children: dict[str, End] | None = None
        self.plus: End | None = None
        self.hash: End | None = None

    def find(self, word: str) -> End | None:
        """The child for a word that is no wildcard."""
        children = self.children
        if children is not None:
            return children.get(word)
        if self.child is not None and self.word == word:
            return self.child
        return None

    def step(self, word: str) -> End | None:
        """The child for any word of a filter."""
        if word == "+":
            return self.plus
        if word == "#":
            return self.hash
        return self.find(word)

    def put(self, word: str, node: End) -> None:
        """Makes a node the child for any word of a filter, in the place of the one that is there, if any."""
        if word == "+":
            self.plus = node
        elif word == "#":
            self.hash = node
        elif self.children is not None:
            self.children[interned(word)] = node
        elif self.child is None or self.word == word:
            self.word = interned(word)
            self.child = node
        else:
            self.children = {self.word: self.child, interned(word): node}
            self.word = ""
            self.child = None

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
            self.one is None
            and self.several is None
            and self.child is None
            and self.children is None
            and self.plus is None
            and self.hash is None
        )


# Most of many topics have no subscribers, and an empty list of their own would be a third of a route.
NO_TARGETS: Final[list[Subscription]] = []
NO_GROUPS: Final[list[Group]] = []
NO_TAPS: Final[list[Any]] = []
NO_NODES: Final[list[Any]] = []


class Route:
    """Where the messages of one topic go, as resolved at one generation of the trie.

    `stored_copies` is how many durable queues get a message of QoS 1 or 2, `remote_copies` how many other nodes. `taps`
    are the write sides of the streams that keep the topic's messages; they do not depend on the trie.

    `nodes` are the other nodes of the cluster that want the messages, and `shared` the share groups
    that have members there, which `groups` does not hold then; what both are, `Elsewhere.forward` knows.
    """

    def __init__(self, topic: bytes, text: str) -> None:
        self.topic = topic
        self.text = text
        self.targets = NO_TARGETS
        self.groups = NO_GROUPS
        self.stored_copies: int = 0
        self.taps: list[Any] = NO_TAPS
        self.nodes: list[Any] = NO_NODES
        self.shared: list[Any] = NO_NODES
        self.remote_copies: int = 0
        self.generation: int = -1
        #: How the last PUBLISH at QoS 1 or 2 of the topic began, up to its packet id, and how long its payload was.
        self.head = b""
        self.head_qos: i64 = 0
        self.head_length: i64 = 0
        #: Messages since the broker keeps the route.
        self.messages: i64 = 0

    def head_for(self, qos: i64, length: i64) -> bytes:
        """How a PUBLISH at QoS 1 or 2 begins, up to its packet id; made anew if the last one was not alike."""
        if self.head_length != length or self.head_qos != qos:
            self.head = publish_head(self.topic, length, qos, False, False)
            self.head_qos = qos
            self.head_length = length
        return self.head

    def is_stored(self) -> bool:
        """Whether the store gets a message of QoS 1 or 2."""
        return self.stored_copies > 0 or self.remote_copies > 0


class Trie:
    """All subscriptions of one topic tree.

    `generation` moves on with every change that may touch more than one topic (see `RouteCache.filter_changed`); a
    route that was resolved at an older one is resolved again when it is next used.
    """

    def __init__(self) -> None:
        self.root = Node(None)
        self.generation: int = 0
        self.count: int = 0
        #: Counts the nodes that a match visits into `Core.work`.
        self.core: Core | None = None
        self.nodes: int = 0
        #: Bytes of the filters' text, which a node and a subscriber keep, and of memberships in share groups.
        self.content: int = 0
        #: Adds to a route what goes to other nodes of the cluster; None without one.
        self.remote = RemoteTargets()

    def size(self) -> int:
        """Bytes of memory, about, with the subscriptions at their subscribers."""
        return self.content + NODE_SIZE * self.nodes + SUBSCRIPTION_SIZE * self.count

    def size_with(self, topic_filter: str) -> int:
        """Bytes of memory at most, with one more subscription to a filter."""
        more = content_of(topic_filter, split_shared(topic_filter)[0])
        return self.size() + more + SUBSCRIPTION_SIZE + MOST_NEW_NODES * NODE_SIZE

    def subscribe(self, topic_filter: str, subscription: Subscription) -> None:
        """Adds a subscription, or replaces that of the same subscriber and filter."""
        plain = split_shared(topic_filter)[1]
        words = plain.split("/")
        node = self.root
        end: End = node
        index = offset = 0
        while index < len(words):
            word = words[index]
            index += 1
            offset += len(word) + 1
            below = node.step(word)
            if below is None:
                below = self.grow(node, words, index)
            elif below.rest is not None and not stands_at(below.rest, plain, offset):
                below = self.part(node, below, words, index)
            rest = below.rest
            if rest is not None:
                index += 1 + rest.count("/")
                offset += len(rest) + 1
            end = below
            if index < len(words):
                node = below if isinstance(below, Node) else self.open(node, word, below)
        client_id = subscription.queue.client_id
        if subscription.group:
            is_new = end.add_member(client_id, subscription)
        else:
            is_new = end.add(client_id, subscription)
        if is_new:
            self.count += 1
            self.content += content_of(topic_filter, subscription.group)

    def grow(self, node: Node, words: list[str], index: int) -> End:
        """Makes the child for the word in front of `index`, and for all behind it."""
        below = End(joined(words, index))
        node.put(words[index - 1], below)
        self.nodes += 1
        return below

    def open(self, node: Node, word: str, end: End) -> Node:
        """Has a filter go on behind the end of another, which the child for a word is."""
        below = Node(end.rest)
        below.one = end.one
        below.several = end.several
        node.put(word, below)
        return below

    def part(self, node: Node, below: End, words: list[str], index: int) -> Node:
        """Makes a node where the filter of these words leaves the way from a node to the child below it."""
        assert below.rest is not None
        rest = below.rest.split("/")
        common = common_words(rest, words, index)
        upper = Node(joined(rest[:common], 0))
        below.rest = joined(rest, common + 1)
        upper.put(rest[common], below)
        node.put(words[index - 1], upper)
        self.nodes += 1
        return upper

    def unsubscribe(self, topic_filter: str, client_id: str, queue: Queue | None = None) -> None:
        """Removes a subscription and the nodes that only it needed; of this queue alone, if one is given."""
        group, plain = split_shared(topic_filter)
        words = plain.split("/")
        path = self.path_of(plain, words)
        if path is None:
            return
        if path[-1].remove(client_id, topic_filter if group else "", queue):
            self.count -= 1
            self.content -= content_of(topic_filter, group)
        index = len(words)
        while len(path) > 1 and path[-1].is_empty():
            rest = path.pop().rest
            index -= 1 if rest is None else 2 + rest.count("/")
            above = path[-1]
            assert isinstance(above, Node)
            above.cut(words[index])
            self.nodes -= 1

    def path_of(self, plain: str, words: list[str]) -> list[End] | None:
        """The nodes on the way to a filter of these words, the root first; None if nothing ends there."""
        node: End = self.root
        path = [node]
        index = offset = 0
        while index < len(words):
            word = words[index]
            below = node.step(word) if isinstance(node, Node) else None
            if below is None:
                return None
            index += 1
            offset += len(word) + 1
            rest = below.rest
            if rest is not None:
                if not stands_at(rest, plain, offset):
                    return None
                index += 1 + rest.count("/")
                offset += len(rest) + 1
            path.append(below)
            node = below
        return path

    def find_group(self, name: str) -> Group | None:
        """The share group of a whole `$share/name/filter`."""
        plain = split_shared(name)[1]
        path = self.path_of(plain, plain.split("/"))
        several = None if path is None else path[-1].several
        return None if several is None or several.groups is None else several.groups.get(name)

    def match(self, topic: str) -> list[End]:
        """The nodes whose filters match a topic.

        Walks with a list of nodes a level instead of recursion: a topic may have 32,768 levels.
        """
        words = topic.split("/")
        count = len(words)
        found: list[End] = []
        level: list[Node] = [self.root]
        visited = 0
        ends: list[End] = []
        #: Nodes that are reached over several levels at once, at a level before the topic's end.
        ahead: dict[int, list[Node]] | None = None
        left = len(topic)
        is_system = topic.startswith("$")  # hidden from leading wildcards [MQTT-4.7.2-1]
        for index in range(count):
            word = words[index]
            left -= len(word) + 1
            visited += len(level)
            reached: list[End] = []
            for node in level:
                if not (is_system and index == 0):
                    if node.hash is not None:
                        found.append(node.hash)
                    if node.plus is not None:
                        reached.append(node.plus)
                exact = node.find(word)
                if exact is not None:
                    reached.append(exact)
            waiting = None if ahead is None else ahead.pop(index + 1, None)
            level = [] if waiting is None else waiting
            for below in reached:
                place = index + 1
                if below.rest is not None:
                    place = place_of(below.rest, topic, left, words, place)
                if place == count:
                    ends.append(below)
                elif isinstance(below, Node):
                    if place == index + 1:
                        level.append(below)
                    elif place > 0:
                        ahead = with_node(ahead, place, below)
            if not level and not ahead:
                break
        for end in ends:
            found.append(end)
            if isinstance(end, Node) and end.hash is not None:  # a/# matches a as well
                found.append(end.hash)
        if self.core is not None:
            self.core.work += visited
        return found

    def has(self, topic: str, client_id: str) -> bool:
        """Whether a subscription of a client, share groups apart, matches a topic."""
        for node in self.match(topic):
            one = node.one
            if one is not None and one.queue.client_id == client_id:
                return True
            several = node.several
            if several is not None and several.many is not None and client_id in several.many:
                return True
        return False

    def resolve(self, route: Route) -> None:
        """Works out a route's targets: one a queue, at the highest QoS it asked for [MQTT-3.3.5-1]."""
        best: dict[str, Subscription] = {}
        groups: list[Group] = []
        for node in self.match(route.text):
            one = node.one
            if one is not None:
                keep_best(best, one)
            several = node.several
            if several is not None:
                if several.many is not None:
                    for subscription in several.many.values():
                        keep_best(best, subscription)
                if several.groups is not None:
                    groups.extend(several.groups.values())
        route.targets = list(best.values()) if best else NO_TARGETS
        route.groups = groups or NO_GROUPS
        copies = len(groups)
        for target in route.targets:
            if target.qos and target.queue.durable:
                copies += 1
        route.stored_copies = copies
        route.nodes = NO_NODES
        route.shared = NO_NODES
        route.remote_copies = 0
        self.remote.complete(route)
        route.generation = self.generation


def place_of(rest: str, topic: str, left: int, words: list[str], index: int) -> int:
    """The index behind the words of a topic that `rest` matches, from the one at `index` on; 0: it does not.

    `left` is the length of the topic from there on.
    """
    if len(rest) == left and topic.endswith(rest):
        return len(words)
    count = len(words)
    for wanted in rest.split("/"):
        if index == count or (wanted != words[index] and wanted != "+"):
            return count if wanted == "#" else 0
        index += 1
    return index


def with_node(ahead: dict[int, list[Node]] | None, place: int, node: Node) -> dict[int, list[Node]]:
    """Notes a node for a level of the walk."""
    if ahead is None:
        return {place: [node]}
    ahead.setdefault(place, []).append(node)
    return ahead


def keep_best(best: dict[str, Subscription], candidate: Subscription) -> None:
    """Keeps of two subscriptions of one client the one with the higher QoS, of a session that has ended none."""
    queue = candidate.queue
    present = best.get(queue.client_id)
    if not queue.ended and (present is None or present.qos < candidate.qos):
        best[queue.client_id] = candidate
