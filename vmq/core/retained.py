"""Retained messages: the latest of each topic, found by topic or by filter."""

from typing import Final

from mypy_extensions import mypyc_attr

from vmq.mqtt.message import Message
from vmq.mqtt.topics import common_words, has_wildcard, joined, stands_at, text_size

#: Bytes of a node beside its text, and of the message that it holds beside topic and payload: measured, as RSS, with
#: many short topics (tests/attacks/test_memory.py).
NODE_SIZE: Final = 400
#: Nodes that a further topic makes at most: its own, and one where it parts from others.
MOST_NEW_NODES: Final = 2

#: A depth: below a # everything matches.
BELOW_HASH: Final = -1
#: More nodes than there are.
FARTHEST: Final = 1 << 60


# What is below a node never leads back to it.
@mypyc_attr(acyclic=True)
class RetainNode:
    """The end of a topic, or where several part.

    Levels at which nothing ends or parts have no nodes: `rest` are those between the word that leads here and the
    node, joined by /, and None if there are none. So there are at most twice as many nodes as topics, however deep.
    """

    def __init__(self, rest: str | None) -> None:
        self.rest = rest
        self.children: dict[str, RetainNode] | None = None
        self.message: Message | None = None


class RetainedMessages:
    """All retained messages of one topic tree."""

    def __init__(self) -> None:
        self.root = RetainNode(None)
        self.count: int = 0
        self.nodes: int = 0
        #: Of payloads and topics, which are kept as bytes and as text.
        self.content: int = 0

    def size(self) -> int:
        """Bytes of memory, about."""
        return self.content + NODE_SIZE * self.nodes

    def has_room(self, topic: str, payload: int, messages: int, size: int) -> bool:
        """Whether a topic's next message of so many bytes leaves them within these limits; 0 is none."""
        if not messages and not size:
            return True
        present = self.get(topic)
        if messages and self.count + (0 if present is not None else 1) > messages:
            return False
        return not size or self.size_with(topic, payload, present) <= size

    def size_with(self, topic: str, payload: int, present: Message | None) -> int:
        """Bytes of memory at most, if the topic had a message with a payload of so many bytes, not `present`."""
        if present is not None:
            return self.size() - len(present.payload) + payload
        return self.size() + size_of(topic, payload) + MOST_NEW_NODES * NODE_SIZE

    def keep(self, topic: str, message: Message) -> None:
        """Makes a message the topic's latest [MQTT-3.3.1-5] [MQTT-3.3.1-7]."""
        node = self.root
        words = topic.split("/")
        index = offset = 0
        while index < len(words):
            word = words[index]
            index += 1
            offset += len(word) + 1
            children = node.children
            if children is None:
                node.children = children = {}
            below = children.get(word)
            if below is None:
                children[word] = below = RetainNode(joined(words, index))
                self.nodes += 1
                index = len(words)
            elif below.rest is not None and stands_at(below.rest, topic, offset):
                index += 1 + below.rest.count("/")
                offset += len(below.rest) + 1
            elif below.rest is not None:  # the topics part on the way there
                rest = below.rest.split("/")
                common = common_words(rest, words, index)
                # The upper one stays the node that it was: a walk may hold it.
                lower = RetainNode(joined(rest, common + 1))
                lower.message = below.message
                lower.children = below.children
                below.message = None
                below.children = {rest[common]: lower}
                below.rest = joined(rest[:common], 0)
                self.nodes += 1
                index += common
            node = below
        present = node.message
        node.message = message
        if present is not None:
            self.content += len(message.payload) - len(present.payload)
        else:
            self.count += 1
            self.content += size_of(topic, len(message.payload))

    def get(self, topic: str) -> Message | None:
        """The message of one topic."""
        path = self.path_of(topic, topic.split("/"))
        return None if path is None else path[-1].message

    def path_of(self, topic: str, words: list[str]) -> "list[RetainNode] | None":
        """The nodes on the way to a topic of these words, the root first; None if nothing ends there."""
        node = self.root
        path: list[RetainNode] = [node]
        index = offset = 0
        while index < len(words):
            word = words[index]
            children = node.children
            below = children.get(word) if children is not None else None
            if below is None:
                return None
            index += 1
            offset += len(word) + 1
            rest = below.rest
            if rest is not None:
                if not stands_at(rest, topic, offset):
                    return None
                index += 1 + rest.count("/")
                offset += len(rest) + 1
            path.append(below)
            node = below
        return path

    def clear(self, topic: str) -> bool:
        """Erases the topic's message [MQTT-3.3.1-10]; False if there was none."""
        words = topic.split("/")
        path = self.path_of(topic, words)
        message = None if path is None else path[-1].message
        if path is None or message is None:
            return False
        path[-1].message = None
        self.count -= 1
        self.content -= size_of(topic, len(message.payload))
        # The words that lead from node to node: the first one behind each.
        index = len(words)
        while len(path) > 1:
            node = path.pop()
            if node.message is not None or node.children is not None:
                break
            index -= 1 if node.rest is None else 2 + node.rest.count("/")
            children = path[-1].children
            assert children is not None
            del children[words[index]]
            self.nodes -= 1
            if not children:
                path[-1].children = None
        return True

    def all(self) -> list[Message]:
        """The messages of all topics."""
        return RetainedWalk(self.root, ["#"], False).rest()

    def match(self, topic_filter: str) -> list[Message]:
        """The messages of all topics that a filter matches."""
        if not has_wildcard(topic_filter):
            message = self.get(topic_filter)
            return [] if message is None else [message]
        return self.walk(topic_filter).rest()

    def walk(self, topic_filter: str) -> "RetainedWalk":
        """Goes over them, some at a time."""
        return RetainedWalk(self.root, topic_filter.split("/"), True)


class Siblings:
    """Nodes that a walk still has to visit, side by side in the tree."""

    def __init__(
        self, nodes: list[RetainNode], names: list[str] | None, index: int, tail: str | None
    ) -> None:
        self.nodes = nodes
        #: The words that lead to them, where those that begin with $ are passed over.
        self.names = names
        #: Which word of the filter comes behind those; `BELOW_HASH`: all that is below them matches.
        self.index = index
        #: The filter from there on.
        self.tail = tail
        self.position: int = 0


class RetainedWalk:
    """A walk over the retained messages that a filter matches, while which others may come and go.

    What was there before it began, and still is when the walk comes by, is found. Depth first, since a level may have a
    million nodes: of each node on the way down it holds those beside it.
    """

    def __init__(self, root: RetainNode, words: list[str], hides_system: bool) -> None:
        """`hides_system`: a wildcard does not match a first level that begins with $ [MQTT-4.7.2-1]."""
        self.words = words
        self.hides_system = hides_system
        #: Nodes that the last `take` visited.
        self.visited: int = 0
        self.stack: list[Siblings] = [Siblings([root], None, 0, None)]

    def is_over(self) -> bool:
        """Whether every node was visited."""
        return not self.stack

    def rest(self) -> list[Message]:
        """The messages of all nodes that are left."""
        found: list[Message] = []
        while self.stack:
            found.extend(self.take(FARTHEST))
        return found

    def take(self, most: int) -> list[Message]:
        """The messages of the next nodes, of which no more than so many are visited."""
        stack, words = self.stack, self.words
        count = len(words)
        found: list[Message] = []
        visited = 0
        while stack and visited < most:
            top = stack[-1]
            position = top.position
            if position == len(top.nodes):
                stack.pop()
                continue
            top.position = position + 1
            visited += 1
            names = top.names
            if names is not None and names[position].startswith("$"):
                continue
            node = top.nodes[position]
            index = top.index
            rest = node.rest
            if rest is not None and index != BELOW_HASH:
                index = count if rest == top.tail else words_matched(rest, words, index)
                if index < 0:
                    continue
            message = node.message
            # a/# matches a as well
            if message is not None and (index in (BELOW_HASH, count) or words[index] == "#"):
                found.append(message)
            children = node.children
            if children is not None and index != count:
                self.descend(children, index)
        self.visited = visited
        return found

    def descend(self, children: dict[str, RetainNode], index: int) -> None:
        """Those of a node's children come next that the filter's word matches."""
        word = "#" if index == BELOW_HASH else self.words[index]
        if word == "#":
            below, tail = BELOW_HASH, None
        else:
            below, tail = index + 1, joined(self.words, index + 1)
        if word == "#" or word == "+":
            names = list(children) if index == 0 and self.hides_system else None
            self.stack.append(Siblings(list(children.values()), names, below, tail))
        else:
            child = children.get(word)
            if child is not None:
                self.stack.append(Siblings([child], None, below, tail))


def words_matched(rest: str, words: list[str], index: int) -> int:
    """The index behind the words of a filter that the levels in `rest` match, from the one at `index` on; -2: none.

    It is that of # where this takes the rest of the rest.
    """
    for word in rest.split("/"):
        if index == len(words):
            return -2
        wanted = words[index]
        if wanted == "#":
            break
        if wanted != "+" and wanted != word:
            return -2
        index += 1
    return index


def size_of(topic: str, payload: int) -> int:
    """Bytes of a message's content: the topic is kept as text too."""
    return text_size(topic) * 2 + payload
