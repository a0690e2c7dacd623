"""Which other nodes want the messages of a topic: the filters of their subscribers, counted a node.

A filter costs a node's share of one dict entry however many of its clients have subscribed to it, and a publish goes
to a node once, at the highest QoS that anybody there asked for. Who gets it there is that node's own business.
"""

from collections.abc import Iterator

from vmq.clustering.records import Record
from vmq.mqtt.topics import split_shared


class Counts:
    """The subscribers of one filter, of one node: how many asked for QoS 0, 1 and 2."""

    __slots__ = ("by_qos",)

    def __init__(self) -> None:
        self.by_qos = [0, 0, 0]

    @property
    def total(self) -> int:
        return sum(self.by_qos)

    @property
    def highest(self) -> int:
        """The highest QoS that anybody asked for; nobody: -1."""
        for qos in (2, 1, 0):
            if self.by_qos[qos]:
                return qos
        return -1


class Level:
    """One level of the filters. Wildcards are words like others; only `find` knows what they mean."""

    __slots__ = ("below", "groups", "nodes")

    def __init__(self) -> None:
        self.below: dict[str, Level] = {}
        #: Counts by node.
        self.nodes: dict[str, Counts] = {}
        #: The same for each share group, by its whole name.
        self.groups: dict[str, dict[str, Counts]] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.below or self.nodes or self.groups)


class Targets:
    """Where the messages of one topic go on other nodes."""

    def __init__(self) -> None:
        #: The highest QoS that a node wants, by node.
        self.nodes: dict[str, int] = {}
        #: How many members each share group has on a node, by the group's whole name and by node.
        self.groups: dict[str, dict[str, int]] = {}


class Remotes:
    """The subscriptions of all other nodes to one topic tree."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._root = Level()

    def change(self, before: Record | None, after: Record | None) -> list[str]:
        """Takes in that a session's record became another; returns the filters whose targets changed.

        Records of this node count as none: its own subscriptions are in its own trie.
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

    def _wishes(self, record: Record | None) -> dict[tuple[str, str], int]:
        if record is None or record.node == self._own:
            return {}
        return {(record.node, name): qos for name, qos in record.subscriptions.items()}

    def _count(self, node: str, topic_filter: str, had: int, has: int) -> bool:
        """One subscriber asked for `had` and asks for `has` now; -1 is nothing. Whether that matters to others."""
        group, plain = split_shared(topic_filter)
        path = [self._root]
        words = plain.split("/")
        for word in words:
            path.append(path[-1].below.setdefault(word, Level()))
        level = path[-1]
        by_node = level.groups.setdefault(topic_filter, {}) if group else level.nodes
        counts = by_node.setdefault(node, Counts())
        before = (counts.highest, counts.total if group else 0)
        if had >= 0:
            counts.by_qos[had] -= 1
        if has >= 0:
            counts.by_qos[has] += 1
        after = (counts.highest, counts.total if group else 0)
        if not counts.total:
            del by_node[node]
            if group and not by_node:
                del level.groups[topic_filter]
        for index in range(len(words) - 1, -1, -1):
            if not path[index + 1].is_empty:
                break
            del path[index].below[words[index]]
        return before != after

    def find(self, topic: str) -> Targets:
        """Where the messages of a topic go."""
        targets = Targets()
        for level in self._matching(topic):
            for node, counts in level.nodes.items():
                targets.nodes[node] = max(counts.highest, targets.nodes.get(node, 0))
            for name, members in level.groups.items():
                targets.groups[name] = {node: counts.total for node, counts in members.items()}
        return targets

    def _matching(self, topic: str) -> Iterator[Level]:
        """The levels at which matching filters end: without recursion, for a topic may have 32,768 levels."""
        current = [self._root]
        is_system = topic.startswith("$")  # hidden from leading wildcards [MQTT-4.7.2-1]
        for index, word in enumerate(topic.split("/")):
            following: list[Level] = []
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
