"""Routes of topics that were published to, so that a walk of the trie is rare."""

from typing import Final

from vmq.core.trie import Route, Trie
from vmq.mqtt.topics import has_wildcard, split_shared

#: Bytes of a topic of which something is remembered. Longer ones are rare, and would fill the memory.
LONGEST_KEPT: Final = 512
#: The route of no topic.
NO_ROUTE: Final = Route(b"", "")


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
        #: What was found last: most publishers have one topic, and most chunks of theirs several messages.
        self.last: Route = NO_ROUTE

    def resize(self, limit: int) -> None:
        """Forgets every route, and remembers up to `limit` from now on."""
        self.half = max(1, limit // 2)
        self.last = NO_ROUTE
        self.young = {}
        self.old = {}

    def keep(self, route: Route) -> None:
        """Keeps a route that `find` did not know."""
        if len(route.topic) > LONGEST_KEPT:
            return
        if len(self.young) >= self.half:
            self.old = self.young
            self.young = {}
        self.young[route.topic] = route

    def find(self, topic: bytes) -> Route | None:
        """The route of a topic, up to date; None if it has to be made."""
        last = self.last
        if last.topic == topic and last.generation == self.trie.generation:
            return last
        route = self.young.get(topic)
        if route is None:
            route = self.old.get(topic)
            if route is None:
                return None
            self.keep(route)
        if route.generation != self.trie.generation:
            self.trie.resolve(route)
        self.last = route
        return route

    def filter_changed(self, topic_filter: str) -> None:
        """Subscriptions to a filter changed: forgets the routes that it may concern."""
        plain = split_shared(topic_filter)[1]
        if has_wildcard(plain):
            self.trie.generation += 1
        else:
            topic = plain.encode()
            self.last = NO_ROUTE
            self.young.pop(topic, None)
            self.old.pop(topic, None)
