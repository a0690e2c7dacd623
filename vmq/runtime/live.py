"""Takes changed options to what is at work already: connections, topic trees, their caches and limits.

Most options are read where they are needed, and hold at once. Here are those of which something was made: a bucket of
a rate limit, a remembered route, a buffer of a socket.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from vmq.config.options import Config
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.protocol.connection import Connection


def begin_retries(core: Core, registries: Iterable[Registry]) -> None:
    """Retries are on from now: nobody noted when packets were sent, so they are not due at once."""
    now = core.clock()
    for registry in registries:
        for subscriber in registry.subscribers.values():
            for delivery in subscriber.queue.inflight.values():
                delivery.sent_at = now


def update_trees(changed: AbstractSet[str], config: Config, registries: Iterable[Registry]) -> None:
    """Has topic trees go by changed options."""
    limits = config.limits
    for registry in registries:
        flapping = registry.flapping
        flapping.limit = limits.flapping_limit
        flapping.window = float(limits.flapping_window)
        flapping.ban = float(limits.flapping_ban)
        if changed & {"limits.topic_max_depth", "network.topic_cache"}:
            # A remembered route is of a topic that was good once.
            registry.routes.resize(config.network.topic_cache)


def update_connections(
    changed: AbstractSet[str], config: Config, connections: Iterable[Connection]
) -> None:
    """Has open connections go by changed options."""
    rates = not changed.isdisjoint({"limits.max_message_rate", "limits.max_byte_rate"})
    buffers = "network.write_buffer" in changed
    packets = not changed.isdisjoint({"session.max_packet_size", "session.max_control_packet_size"})
    queues = any(key.startswith("queue.") for key in changed)
    if not (rates or buffers or packets or queues):
        return
    for connection in connections:
        subscriber = connection.session.subscriber
        if queues and subscriber is not None and subscriber.queue.has_waiting():
            subscriber.queue.wake(subscriber.queue)  # a larger window may have room for it
        if rates:
            connection.set_rates()
        if packets and subscriber is not None:
            connection.session.limit_packets()
        if buffers and connection.transport is not None:
            connection.transport.set_write_buffer_limits(high=config.network.write_buffer)
