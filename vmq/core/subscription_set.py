"""A subscription and what it takes of memory; those of a share group, and those of one client, by filter."""

from typing import Final

from mypy_extensions import i16, i32

from vmq.core.queue import Queue
from vmq.mqtt.topics import text_size

#: Bytes of a node of the trie beside its text, and of a subscription beside that of its filter, which its subscriber
#: keeps too: measured, as RSS, with many short filters (tests/attacks/test_memory.py).
NODE_SIZE: Final = 200
SUBSCRIPTION_SIZE: Final = 230
#: What a member of a share group has besides.
SHARED_SIZE: Final = 400


class Subscription:
    """A subscriber's wish for one filter.

    `group` is empty, or the whole filter if that is `$share/name/filter`. `renewed` counts how often it was asked for
    again.
    """

    def __init__(self, queue: Queue, qos: int, group: str) -> None:
        self.queue = queue
        self.group = group
        # Side by side, they share a word.
        self.qos: i16 = qos
        self.renewed: i32 = 0


class Group:
    """The members of one shared subscription, whose name is the whole `$share/name/filter`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, Subscription] = {}
        #: The members in a list, for a choice by number.
        self.order: list[Subscription] = []

    def is_online(self, qos: int) -> bool:
        """Whether any member is connected that may be chosen for what is of this QoS."""
        return any(
            each.queue.online and each.queue.is_for(min(qos, each.qos)) for each in self.order
        )


def has(subscriptions: dict[str, Subscription], client_id: str, queue: Queue | None) -> bool:
    """Whether the client's is among them, and is this queue's if one is given."""
    found = subscriptions.get(client_id)
    return found is not None and (queue is None or found.queue is queue)


def content_of(topic_filter: str, group: str) -> int:
    """Bytes of a subscription that depend on its filter."""
    return 2 * text_size(topic_filter) + (SHARED_SIZE if group else 0)


def cost_of(topic_filter: str, group: str) -> int:
    """Bytes that a subscription takes, about, at most, with a node of its own."""
    return content_of(topic_filter, group) + SUBSCRIPTION_SIZE + NODE_SIZE


class SubscriptionSet:
    """A slot for the only subscription, as most clients have one, and a dict from the second on.

    A base class: an object of its own would take a third of what it saves.
    """

    def __init__(self) -> None:
        #: The only subscription and its filter, as most clients have one. The second one makes the dict of all.
        self.one: Subscription | None = None
        self.one_filter = ""
        self.many: dict[str, Subscription] | None = None
        #: Of filters that a plugin has put in place of what the client asked for: what that was. None: there is none.
        self.asked: dict[str, str] | None = None
        #: Bytes of memory that they take, about.
        self.cost: int = 0

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """By filter, to be looked at only."""
        many = self.many
        if many is not None:
            return many
        one = self.one
        return {} if one is None else {self.one_filter: one}

    def find(self, topic_filter: str) -> Subscription | None:
        """The subscription to exactly this filter."""
        many = self.many
        if many is not None:
            return many.get(topic_filter)
        return self.one if topic_filter == self.one_filter else None

    def put(self, topic_filter: str, subscription: Subscription) -> None:
        """Adds a subscription to a filter that has none."""
        self.cost += cost_of(topic_filter, subscription.group)
        many = self.many
        one = self.one
        if many is not None:
            many[topic_filter] = subscription
        elif one is None:
            self.one = subscription
            self.one_filter = topic_filter
        else:
            self.many = {self.one_filter: one, topic_filter: subscription}
            self.one = None
            self.one_filter = ""

    def asked_for(self, topic_filter: str) -> str:
        """The filter that the client asked for, of which a plugin may have made this one."""
        asked = self.asked
        return topic_filter if asked is None else asked.get(topic_filter, topic_filter)

    def note_asked(self, topic_filter: str, asked_for: str) -> None:
        """The subscription to this filter was asked for by that one; "" or the same: no plugin has made it."""
        asked = self.asked
        if asked is not None and topic_filter in asked:
            self.cost -= len(asked.pop(topic_filter))
            if not asked:
                self.asked = None
        if asked_for and asked_for != topic_filter:
            self.cost += len(asked_for)
            if self.asked is None:
                self.asked = {}
            self.asked[topic_filter] = asked_for

    def take(self, topic_filter: str) -> bool:
        """Removes the subscription to exactly this filter; False if there is none."""
        present = self.find(topic_filter)
        if present is None:
            return False
        self.note_asked(topic_filter, "")
        self.cost -= cost_of(topic_filter, present.group)
        many = self.many
        if many is not None:
            del many[topic_filter]
            if many:
                return True
        self.take_all()
        return True

    def take_all(self) -> None:
        """Removes every subscription."""
        self.cost = 0
        self.one = None
        self.one_filter = ""
        self.many = None
        self.asked = None
