"""The subscriptions of one client, by filter."""

from vmq.core.trie import Subscription, cost_of


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
