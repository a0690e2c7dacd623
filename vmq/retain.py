"""Retained messages: the latest of each topic, found by topic or by filter."""

from vmq.message import Message


class RetainNode:
    """One level of the topics that have a retained message."""

    def __init__(self) -> None:
        self.children: dict[str, RetainNode] | None = None
        self.message: Message | None = None


class RetainedMessages:
    """All retained messages of one topic tree."""

    def __init__(self) -> None:
        self.root = RetainNode()
        self.count: int = 0
        self.bytes: int = 0

    def keep(self, topic: str, message: Message) -> None:
        """Makes a message the topic's latest [MQTT-3.3.1-5] [MQTT-3.3.1-7]."""
        node = self.root
        for word in topic.split("/"):
            children = node.children
            if children is None:
                node.children = children = {}
            below = children.get(word)
            if below is None:
                below = RetainNode()
                children[word] = below
            node = below
        self.forget(node)
        node.message = message
        self.count += 1
        self.bytes += len(message.topic) + len(message.payload)

    def get(self, topic: str) -> Message | None:
        """The message of one topic."""
        node = self.root
        for word in topic.split("/"):
            children = node.children
            below = children.get(word) if children is not None else None
            if below is None:
                return None
            node = below
        return node.message

    def forget(self, node: RetainNode) -> None:
        message = node.message
        if message is not None:
            node.message = None
            self.count -= 1
            self.bytes -= len(message.topic) + len(message.payload)

    def clear(self, topic: str) -> bool:
        """Erases the topic's message [MQTT-3.3.1-10]; False if there was none."""
        path: list[RetainNode] = [self.root]
        words = topic.split("/")
        for word in words:
            children = path[-1].children
            below = children.get(word) if children is not None else None
            if below is None:
                return False
            path.append(below)
        if path[-1].message is None:
            return False
        self.forget(path[-1])
        for index in range(len(words) - 1, -1, -1):
            node = path[index + 1]
            if node.message is not None or node.children is not None:
                break
            children = path[index].children
            assert children is not None
            del children[words[index]]
            if not children:
                path[index].children = None
        return True

    def all(self) -> list[Message]:
        """The messages of all topics."""
        found: list[Message] = []
        collect(self.root, False, False, found)
        return found

    def match(self, topic_filter: str) -> list[Message]:
        """The messages of all topics that a filter matches."""
        words = topic_filter.split("/")
        level: list[RetainNode] = [self.root]
        found: list[Message] = []
        for index, word in enumerate(words):
            at_root = index == 0
            if word == "#":
                for node in level:
                    collect(node, not at_root, at_root, found)
                return found
            below: list[RetainNode] = []
            for node in level:
                children = node.children
                if children is None:
                    continue
                if word == "+":
                    for name, child in children.items():
                        if not (at_root and name.startswith("$")):  # [MQTT-4.7.2-1]
                            below.append(child)
                else:
                    exact = children.get(word)
                    if exact is not None:
                        below.append(exact)
            if not below:
                return found
            level = below
        for node in level:
            if node.message is not None:
                found.append(node.message)
        return found


def collect(node: RetainNode, itself: bool, hide_system: bool, found: list[Message]) -> None:
    """Adds the messages of a node (if `itself`) and of all below it."""
    message = node.message
    if itself and message is not None:
        found.append(message)
    stack: list[RetainNode] = []
    children = node.children
    if children is not None:
        for name, child in children.items():
            if not (hide_system and name.startswith("$")):
                stack.append(child)
    while stack:
        top = stack.pop()
        message = top.message
        if message is not None:
            found.append(message)
        if top.children is not None:
            stack.extend(top.children.values())
