"""Which nodes want the messages of a topic: the filters of their subscribers, counted a node.

A filter costs a node's share of one dict entry however many of its clients have subscribed to it, and a publish goes
to a node once, at the highest QoS that anybody there asked for. Who gets it there is that node's own business.
"""

from collections.abc import Iterator, Mapping

from vmq.clustering.directory.records import Record
from vmq.clustering.routing.shares import QUICK, ShareMembers
from vmq.mqtt.topics import split_shared


class FilterLevel:
    """One level of the filters. Wildcards are words like others; only `find` knows what they mean."""

    __slots__ = ("below", "groups", "nodes")

    def __init__(self) -> None:
        self.below: dict[str, FilterLevel] = {}
        #: Those who want all messages, by node.
        self.nodes: dict[str, ShareMembers] = {}
        #: The members of each share group, by its whole name and node.
        self.groups: dict[str, dict[str, ShareMembers]] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.below or self.nodes or self.groups)


class TopicTargets:
    """Where the messages of one topic go on other nodes."""

    def __init__(self) -> None:
        #: The highest QoS that a node wants, by node.
        self.nodes: dict[str, int] = {}
        #: Nodes that want what is published at QoS 0, whatever else they want.
        self.quick: set[str] = set()
        #: The members of each share group that has some on other nodes, by the group's whole name and by node, this
        #: one included. They are counted on while the group stays in these targets.
        self.groups: dict[str, Mapping[str, ShareMembers]] = {}


class RemoteSubscriptions:
    """The subscriptions of all other nodes to one topic tree, and the share groups of all nodes."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._root = FilterLevel()

    def change(self, before: Record | None, after: Record | None) -> list[str]:
        """Takes in that a session's record became another; returns the filters whose targets changed.

        Of this node's own records only the members of share groups count: the rest is in its own trie.
        """
        old = self._wishes(before)
        new = self._wishes(after)
        changed = []
        for node, topic_filter in sorted(old.keys() | new.keys()):
            had = old.get((node, topic_filter), -1)
            has = new.get((node, topic_filter), -1)
            if had != has and self._count(node, topic_filter, had, has):
                changed.append(topic_filter)
        return changed

    def members(self, group: str) -> Mapping[str, ShareMembers]:
        """The members of a share group by node, this one included."""
        level: FilterLevel | None = self._root
        for word in split_shared(group)[1].split("/"):
            level = None if level is None else level.below.get(word)
        return {} if level is None else level.groups.get(group, {})

    def _wishes(self, record: Record | None) -> dict[tuple[str, str], int]:
        """The QoS that a session asks for, by node and filter."""
        if record is None:
            return {}
        is_own = record.node == self._own
        wishes = {}
        for name, qos in record.subscriptions.items():
            is_shared = bool(split_shared(name)[0])
            if record.is_in_slot and qos:
                if is_shared or not is_own:
                    wishes[QUICK + record.node, name] = qos
            elif is_shared or not is_own:
                wishes[record.node, name] = qos
        return wishes

    def _count(self, node: str, topic_filter: str, had: int, has: int) -> bool:
        """One subscriber asked for a QoS and for another now; -1 is none. Whether that matters to routes."""
        group, plain = split_shared(topic_filter)
        path = [self._root]
        words = plain.split("/")
        for word in words:
            path.append(path[-1].below.setdefault(word, FilterLevel()))
        level = path[-1]
        by_node = level.groups.setdefault(topic_filter, {}) if group else level.nodes
        before = self._seen(by_node, node, bool(group))
        members = by_node.setdefault(node, ShareMembers())
        if had >= 0:
            members.by_qos[had] -= 1
        if has >= 0:
            members.by_qos[has] += 1
        if not members.total:
            del by_node[node]
        after = self._seen(by_node, node, bool(group))
        if group and not by_node:
            del level.groups[topic_filter]
        for index in range(len(words) - 1, -1, -1):
            if not path[index + 1].is_empty:
                break
            del path[index].below[words[index]]
        return before != after

    def _seen(self, by_node: Mapping[str, ShareMembers], node: str, is_group: bool) -> int:
        """What a route has of it: of a group whether there are members elsewhere, else what a node wants."""
        if is_group:
            return int(self._is_elsewhere(by_node))
        members = by_node.get(node)
        return -1 if members is None else members.highest

    def _is_elsewhere(self, by_node: Mapping[str, ShareMembers]) -> bool:
        return len(by_node) > (self._own in by_node)

    def find(self, topic: str) -> TopicTargets:
        """Where the messages of a topic go."""
        targets = TopicTargets()
        for level in self._matching(topic):
            for node, members in level.nodes.items():
                if node.startswith(QUICK):
                    targets.quick.add(node[len(QUICK) :])
                    continue
                targets.nodes[node] = max(members.highest, targets.nodes.get(node, 0))
            for name, by_node in level.groups.items():
                if self._is_elsewhere(by_node):
                    targets.groups[name] = by_node
        return targets

    def _matching(self, topic: str) -> Iterator[FilterLevel]:
        """The levels at which matching filters end: without recursion, for a topic may have 32,768 levels."""
        current = [self._root]
        is_system = topic.startswith("$")  # hidden from leading wildcards [MQTT-4.7.2-1]
        for index, word in enumerate(topic.split("/")):
            following: list[FilterLevel] = []
            for level in current:
                if not (is_system and index == 0):
                    if (rest := level.below.get("#")) is not None:
                        yield rest
                    if (any_word := level.below.get("+")) is not None:
                        following.append(any_word)
                if (exact := level.below.get(word)) is not None:
                    following.append(exact)
            current = following
        for level in current:
            yield level
            if (rest := level.below.get("#")) is not None:  # a/# matches a as well
                yield rest
