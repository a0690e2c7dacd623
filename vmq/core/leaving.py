"""What a session leaves that has ended, in steps: a client may have a hundred thousand subscriptions, and messages."""

from collections.abc import Callable
from typing import Final

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.route_cache import RouteCache
from vmq.core.trie import Trie
from vmq.store.store import StoreError

#: Filters of one step.
FILTERS_A_STEP: Final = 256


class EndingSubscriptions:
    """The end of one session's subscriptions. What they match meanwhile goes to nobody."""

    def __init__(
        self, core: Core, trie: Trie, routes: RouteCache, queue: Queue, filters: list[str]
    ) -> None:
        self.core = core
        self.trie = trie
        self.routes = routes
        self.queue = queue
        self.filters = filters
        self.position: int = 0

    def step(self) -> None:
        """Takes the next filters out, and asks for another step if there are more."""
        core, queue = self.core, self.queue
        filters = self.filters[self.position : self.position + FILTERS_A_STEP]
        self.position += len(filters)
        for topic_filter in filters:
            self.trie.unsubscribe(topic_filter, queue.client_id, queue)
            self.routes.filter_changed(topic_filter)
        hook = core.hooks.on_topic_unsubscribed
        if hook is not None and filters:
            core.tell("on_topic_unsubscribed", hook, queue.subscriber_id(), filters)
        if self.position < len(self.filters):
            core.call_soon(self.step)


class EndingShares:
    """What share groups chose a durable session for that is over goes to other members; then `purge` has the rest."""

    def __init__(
        self, core: Core, queue: Queue, groups: set[str], purge: Callable[[bytes], None]
    ) -> None:
        self.core = core
        self.queue = queue
        self.groups = groups
        self.purge = purge

    def step(self) -> None:
        """Passes on what is in flight or next to be loaded, and asks for another step if there is more."""
        queue, left = self.queue, self.queue.backlog
        if self.groups:
            self.pass_on()
        if 0 < queue.backlog < left:
            self.core.call_soon(self.step)
        else:
            self.purge(queue.session)

    def pass_on(self) -> None:
        core, queue = self.core, self.queue
        try:
            queue.load_inflight()
        except StoreError:
            pass  # what cannot be read nobody gets
        for delivery in queue.take_shared(self.groups):
            queue.pass_on(delivery)
        queue.pending = None
        core.call_soon(core.outbox.flush)
