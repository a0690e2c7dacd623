"""Retained messages on their way to a subscriber: one burst for each filter that brought some.

A client that subscribes to a filter again gets its retained messages again [MQTT-3.8.4-3]; what was
left of the first time then goes, as it is part of the second. So a client that subscribes and never
reads holds one burst a filter, and all of them together no more than `allowance_for` says.
"""

from collections import OrderedDict

from vmq.mqtt.message import Message


def allowance_for(retained: int) -> int:
    """How many retained messages one subscriber may leave unread where so many are retained.

    Overlapping filters bring a message more than once. The constant is for brokers with few.
    """
    return 4 * retained + 1000


class Burst:
    """Retained messages for one new subscription, and how far they are sent."""

    def __init__(self, topic_filter: str, messages: list[Message], granted: int) -> None:
        self.topic_filter = topic_filter
        self.messages = messages
        self.granted = granted
        self.position: int = 0


class Bursts:
    """The unfinished bursts of one subscriber, in the order of its subscriptions."""

    def __init__(self) -> None:
        # Not a plain dict, whose first entry is far behind those that were taken from its front.
        self.by_filter: OrderedDict[str, Burst] = OrderedDict()
        #: How many messages are not sent yet.
        self.unsent: int = 0

    def add(self, topic_filter: str, messages: list[Message], granted: int) -> None:
        """A subscription brought these messages, or these as well."""
        burst = self.by_filter.get(topic_filter)
        if burst is None:
            self.by_filter[topic_filter] = Burst(topic_filter, messages, granted)
        else:
            burst.messages.extend(messages)
        self.unsent += len(messages)

    def drop(self, topic_filter: str) -> None:
        """The filter's burst goes unsent, if it has one."""
        burst = self.by_filter.pop(topic_filter, None)
        if burst is not None:
            self.unsent -= len(burst.messages) - burst.position

    def first(self) -> Burst:
        """The burst whose turn it is; there is one while `unsent` is not 0."""
        return next(iter(self.by_filter.values()))

    def step(self, burst: Burst) -> None:
        """The next message of this burst was sent."""
        burst.position += 1
        self.unsent -= 1
        if burst.position == len(burst.messages):
            del self.by_filter[burst.topic_filter]

    def rest(self) -> list[tuple[Message, int]]:
        """Every message that is not sent yet, with the QoS granted to its subscription."""
        found: list[tuple[Message, int]] = []
        for burst in self.by_filter.values():
            for message in burst.messages[burst.position :]:
                found.append((message, burst.granted))
        return found
