"""Retained messages: the latest of each topic, found by topic or by filter.

They lie in the order of their topics' bytes, as in a store on disk: a place in a list is all that a message takes
besides itself. What a filter matches lies side by side for each word that its + stand for, and a walk leaps from the
one run of topics to the next. A SUBSCRIBE has them sent (`vmq.protocol.subscribe`).
"""

from bisect import bisect_right
from typing import Final

from mypy_extensions import i64

from vmq.mqtt.message import Message
from vmq.mqtt.topics import has_wildcard

#: Bytes of a message beside topic and payload: measured, as RSS, with many short topics (tests/attacks/test_memory.py).
MESSAGE_SIZE: Final = 200
#: Messages in a list; one more parts it. A message that comes has those behind it in its list move on by a place.
MOST_IN_BLOCK: Final = 512
#: More messages than there are.
FARTHEST: Final = 1 << 60

SLASH: Final[i64] = 47
#: Of the bytes the one behind /: with that in the place of a /, a topic is behind all that are below it.
BEHIND_SLASH: Final = b"0"
BEHIND_DOLLAR: Final = b"%"
#: With that at its end, a topic is behind itself and in front of all others.
NEXT: Final = b"\0"


class RetainedMessages:
    """All retained messages of one topic tree."""

    def __init__(self, longest: int = MOST_IN_BLOCK) -> None:
        self.longest = longest
        #: Lists of messages, and the least topic that each of these may hold.
        self.blocks: list[list[Message]] = [[]]
        self.bounds: list[bytes] = [b""]
        self.count: int = 0
        #: Of payloads and topics.
        self.content: int = 0

    def size(self) -> int:
        """Bytes of memory, about."""
        return self.content + MESSAGE_SIZE * self.count

    def has_room(self, topic: str, payload: int, messages: int, size: int) -> bool:
        """Whether a topic's next message of so many bytes leaves them within these limits; 0 is none."""
        if not messages and not size:
            return True
        # Where there is room for one more there is for one in the place of another: few have to look for that.
        if (not messages or self.count < messages) and (
            not size or self.size_with(topic, payload, None) <= size
        ):
            return True
        present = self.get(topic)
        return (
            present is not None
            and (not messages or self.count <= messages)
            and (not size or self.size_with(topic, payload, present) <= size)
        )

    def size_with(self, topic: str, payload: int, present: Message | None) -> int:
        """Bytes of memory, if the topic had a message with a payload of so many bytes, not `present`."""
        if present is not None:
            return self.size() - len(present.payload) + payload
        return self.size() + len(raw_of(topic)) + payload + MESSAGE_SIZE

    def keep(self, message: Message) -> None:
        """Makes a message its topic's latest [MQTT-3.3.1-5] [MQTT-3.3.1-7]."""
        topic = message.topic
        number = self.block_of(topic)
        block = self.blocks[number]
        place = place_of(topic, block, 0)
        if is_at(place, topic, block):
            self.content -= block[place].length()
            block[place] = message
        else:
            block.insert(place, message)
            self.count += 1
        self.content += message.length()
        if len(block) > self.longest:
            middle = len(block) // 2
            self.blocks[number : number + 1] = [block[:middle], block[middle:]]
            self.bounds.insert(number + 1, block[middle].topic)

    def get(self, topic: str) -> Message | None:
        """The message of one topic."""
        name = raw_of(topic)
        block = self.blocks[self.block_of(name)]
        place = place_of(name, block, 0)
        return block[place] if is_at(place, name, block) else None

    def clear(self, topic: str) -> bool:
        """Erases the topic's message [MQTT-3.3.1-10]; False if there was none."""
        name = raw_of(topic)
        number = self.block_of(name)
        block = self.blocks[number]
        place = place_of(name, block, 0)
        if not is_at(place, name, block):
            return False
        self.count -= 1
        self.content -= block.pop(place).length()
        if len(block) <= self.longest // 4:
            self.join(number)
        return True

    def join(self, number: i64) -> None:
        """Makes one list of a short one and that beside it, if both together are short or the first is empty."""
        upper = max(number, 1)
        if upper == len(self.blocks):
            return
        short, beside = self.blocks[upper - 1], self.blocks[upper]
        if len(short) + len(beside) <= self.longest // 2 or not self.blocks[number]:
            self.blocks[upper - 1 : upper + 1] = [short + beside]
            # Bounds hold topics in memory, of messages that are gone, too.
            del self.bounds[upper]

    def block_of(self, topic: bytes) -> i64:
        """The number of the list that holds a topic if any does."""
        return bisect_right(self.bounds, topic) - 1

    def all(self) -> list[Message]:
        """The messages of all topics."""
        return self.walk("").rest()

    def match(self, topic_filter: str) -> list[Message]:
        """The messages of all topics that a filter matches."""
        if not has_wildcard(topic_filter):
            message = self.get(topic_filter)
            return [] if message is None else [message]
        return self.walk(topic_filter).rest()

    def walk(self, topic_filter: str) -> "RetainedWalk":
        """Goes over them, some at a time. "" matches all topics, and those that begin with $, too."""
        return RetainedWalk(self, topic_filter)


class RetainedWalk:
    """A walk over the retained messages that a filter matches, while which others may come and go.

    What was there before it began, and still is when the walk comes by, is found: in order, each once.
    """

    def __init__(self, messages: RetainedMessages, topic_filter: str) -> None:
        words = (topic_filter or "#").split("/")
        #: Whether further levels may follow: # is +/# here, which matches as much.
        self.is_open = words[-1] == "#"
        if self.is_open:
            words = words[:-1] or ["+"]
        #: What is in front of the first +, and behind each.
        self.pieces: list[bytes] = raw_of("/".join(words)).split(b"+")
        #: A wildcard does not match a first level that begins with $ [MQTT-4.7.2-1].
        self.hides_system = topic_filter.startswith(("+", "#"))
        self.messages = messages
        #: The least topic that was not looked at, and None with the last one's.
        self.next: bytes | None = self.pieces[0]
        #: Messages that the last `take` looked at.
        self.visited: int = 0

    def is_over(self) -> bool:
        """Whether every message was visited."""
        return self.next is None

    def rest(self) -> list[Message]:
        """All messages that are left."""
        found: list[Message] = []
        while self.next is not None:
            found.extend(self.take(FARTHEST))
        return found

    def take(self, most: int) -> list[Message]:
        """The next messages, no more than so many of which are looked at."""
        found: list[Message] = []
        self.visited = 0
        left: i64 = most
        goal = self.next
        if goal is None:
            return found
        blocks = self.messages.blocks
        number = self.messages.block_of(goal)
        block = blocks[number]
        place = place_of(goal, block, 0)
        topic = b""
        while left > 0:
            if place == len(block):
                number += 1
                if number == len(blocks):
                    goal = None
                    break
                block = blocks[number]
                place = 0
                continue
            message = block[place]
            topic = message.topic
            left -= 1
            goal = self.goal_of(topic)
            if goal is None:
                break
            if goal is topic:
                found.append(message)
                place += 1
            elif block[-1].topic < goal:
                number = self.messages.block_of(goal)
                block = blocks[number]
                place = place_of(goal, block, 0)
            else:
                place = place_of(goal, block, place + 1)
        self.next = topic + NEXT if goal is topic else goal
        self.visited = most - left
        return found

    def goal_of(self, topic: bytes) -> bytes | None:
        """A topic itself if the filter matches it; else the least one behind it that it may match, None if none."""
        if self.hides_system and topic.startswith(b"$"):
            return BEHIND_DOLLAR
        pieces = self.pieces
        last: i64 = len(pieces) - 1
        number: i64 = 0
        start: i64 = 0
        end: i64 = 0
        while number <= last:
            piece = pieces[number]
            if number > 0:
                start = level_end(topic, end)
            if not is_in(topic, start, piece):
                break
            end = start + len(piece)
            number += 1
        if 0 < number <= last and start == len(topic):
            # Topics whose word goes on, with what is in front of /, come before those below this one.
            return topic + NEXT
        if number > last:
            if end == len(topic) or (self.is_open and topic[end] == SLASH):
                return topic
            number = last
        goal = topic[:start] + pieces[number]
        if self.is_open and number == last and goal <= topic:
            goal += b"/"
        if goal > topic:
            return goal
        # No other topic has these words for the + in front: the next one has others.
        return topic[:start] + BEHIND_SLASH if number > 0 else None


def raw_of(text: str) -> bytes:
    """The bytes of a topic or a filter; of text that no client can send, and an operator may ask for, too."""
    return text.encode("utf-8", "surrogatepass")


def place_of(topic: bytes, block: list[Message], low: i64) -> i64:
    """The place in a list, from one on, of the first message whose topic is not in front of this one."""
    high: i64 = len(block)
    while low < high:
        middle = (low + high) // 2
        if block[middle].topic < topic:
            low = middle + 1
        else:
            high = middle
    return low


def is_at(place: i64, topic: bytes, block: list[Message]) -> bool:
    """Whether the message at that place of a list, which may be its end, is a topic's."""
    return place < len(block) and block[place].topic == topic


def level_end(topic: bytes, start: i64) -> i64:
    """Where the level ends that begins at `start`."""
    end = start
    while end < len(topic) and topic[end] != SLASH:
        end += 1
    return end


def is_in(topic: bytes, start: i64, piece: bytes) -> bool:
    """Whether a topic goes on with these bytes at `start`."""
    length: i64 = len(piece)
    if len(topic) - start < length:
        return False
    index: i64 = 0
    while index < length and topic[start + index] == piece[index]:
        index += 1
    return index == length
