"""Retained messages that other nodes publish before they know of a subscription: they come to it all the same.

A node sends a client that subscribes what is retained there. What another node publishes just then does not go to that
client, if the node does not route to it yet, and comes by the metadata when the client has been served. So what has
come by the metadata since is sent as retained, too, once each node that is up has said that it routes to the client,
and this one has what that had written by then: no later ones, which come live.

What came by the metadata may be older than what has come live. Of topics that were sent so the next values are sent,
too, for some seconds: so the last one that a client gets is the one that stays.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import RETAINED, encode_key
from vmq.clustering.routing.subscribe_barrier import SubscribeBarrier
from vmq.core.hook_sites import Hooks
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.mqtt.message import Message
from vmq.mqtt.topics import matches, split_shared
from vmq.protocol.retain_source import send_retained
from vmq_cluster.clocks import NodeClock
from vmq_cluster.node import ClusterNode

#: Seconds for which a topic that was sent is sent again.
AFTER: Final = 5.0
#: SUBSCRIBEs that are seen to at a time, and topics of one; others have what they were sent first.
_MOST: Final = 10_000
_MOST_TOPICS: Final = 1000


class _Fresh:
    """A SUBSCRIBE that other nodes may not know of."""

    def __init__(
        self, registry: Registry, subscriber: Subscriber, granted: Mapping[str, int], hooks: Hooks
    ) -> None:
        self.registry = registry
        self.subscriber = subscriber
        self.output = subscriber.output
        self.granted = granted
        self.hooks = hooks
        self.is_known = False
        #: What has come by the metadata since; once it is known what was sent of it.
        self.topics: set[str] = set()

    def filter_of(self, topic: str) -> str:
        """A filter by which the client is to get a topic still; "" if there is none."""
        if self.subscriber.output is not self.output or (
            self.is_known and topic not in self.topics
        ):
            return ""
        here = (each for each in self.granted if matches(each, topic))
        return next((each for each in here if self.subscriber.find(each) is not None), "")

    def send(self, topic: str) -> None:
        """Sends what is retained of a topic; if that is nothing what who was subscribed before has seen of it."""
        found = self.filter_of(topic)
        if not found:
            return
        registry, subscriber = self.registry, self.subscriber
        message = registry.retained.get(topic)
        if message is not None:
            qos = self.granted[found]
            send_retained(registry, self.hooks, subscriber, found, [message], qos, False)
        else:
            erased = Message(topic.encode(), b"", 0, False)
            subscriber.queue.deliver(erased, 0, False, "", registry.core.nobody)


class LateRetained:
    """The SUBSCRIBEs of one node that others may not know of.

    Args:
        node: has the metadata.
        barrier: by which others say that they do.
        directory: has subscriptions in the metadata.
        call_later: calls back after so many seconds.
    """

    def __init__(
        self,
        node: ClusterNode,
        barrier: SubscribeBarrier,
        directory: Directory,
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._node = node
        self._barrier = barrier
        self._directory = directory
        self._call_later = call_later
        self._fresh: dict[_Fresh, None] = {}

    def on_subscribed(
        self, registry: Registry, subscriber: Subscriber, granted: Mapping[str, int], hooks: Hooks
    ) -> None:
        """What `vmq.core.ports.RetainedListener.on_subscribed` is told."""
        # Shared subscriptions get nothing that is retained.
        plain = {each: qos for each, qos in granted.items() if not split_shared(each)[0]}
        if not plain or len(self._fresh) >= _MOST:
            return
        keys = partial(self._directory.keys, registry, subscriber, plain)
        pending = self._barrier.wait(keys, kind="news")
        if pending is not None:
            self._fresh[fresh := _Fresh(registry, subscriber, plain, hooks)] = None
            pending.then = lambda heard: self._on_known(fresh, heard)

    def on_changed(self, registry: Registry, topic: str) -> None:
        """Another node has written what is retained of a topic, or that nothing is."""
        those = [
            each for each in self._fresh if each.registry is registry and each.filter_of(topic)
        ]
        for each in those:
            if each.is_known:
                each.send(topic)
            elif len(each.topics) < _MOST_TOPICS:
                each.topics.add(topic)
        if those:
            registry.core.outbox.flush()

    def _on_known(self, fresh: _Fresh, heard: NodeClock) -> None:
        """Every node that is up routes to it; what those had written before has come, and was `heard`."""
        fresh.is_known = True
        # What these have written else, and this node, has come live.
        routing = heard.runs.keys() | self._node.machine.metadata.own_dots().runs.keys()
        for topic in list(fresh.topics):
            key = encode_key(fresh.registry.mountpoint, topic)
            dots = list(self._node.dots(RETAINED, [key]))
            if any(each[0] in routing and each not in heard for each in dots):
                fresh.topics.discard(topic)
            else:
                fresh.send(topic)
        if fresh.topics:
            fresh.registry.core.outbox.flush()
            self._call_later(AFTER, lambda: self._fresh.pop(fresh))
        else:
            del self._fresh[fresh]
