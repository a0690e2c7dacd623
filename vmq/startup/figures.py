"""What a whole broker says of itself: whether it is well, and the figures of its parts beside the core's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vmq.listeners.renewing import not_renewed
from vmq.plugins.figures import families
from vmq.plugins.status import not_asked, not_taken
from vmq.runtime.health import Health, add_core, add_listener
from vmq.runtime.metrics import Family

if TYPE_CHECKING:
    from vmq.startup.whole import WholeBroker


def condition_of(broker: "WholeBroker") -> Health:
    """What is wrong with a broker now, and which of it keeps new clients out."""
    health = Health([], [])
    for listener in broker.listeners.values():
        add_listener(health, listener)
    health.degraded.extend(not_renewed(broker.listeners.values()))
    if broker.is_started:
        health.degraded.extend(broker.parts.certificates.outdated)
        health.degraded.extend(broker.parts.damage.reasons())
        add_core(health, broker.parts.core, broker.monitor.recent_lag())
        health.degraded.extend(not_asked(broker.plugins.in_order()))
        plugins = broker.plugins
        health.degraded.extend(not_taken(plugins.behind, plugins.not_reloaded, plugins.in_order()))
    if broker.streaming is not None:
        health.degraded.extend(broker.streaming.problems())
    health.degraded.extend(broker.jobs.problems())
    if broker.clustering is not None:
        if broker.clustering.admission.reason:
            health.failing.append(broker.clustering.admission.reason)
        health.degraded.extend(broker.clustering.problems())
    return health


def families_of(broker: "WholeBroker") -> Iterator[Family]:
    """The figures of plugins, streams, jobs and the cluster."""
    plugins = broker.plugins
    yield from families(plugins.guards, plugins.counters, plugins.gauges)
    if broker.streaming is not None:
        yield from broker.streaming.families()
    yield from broker.jobs.families()
    if broker.clustering is not None:
        yield from broker.clustering.families()


def away_in_slots(broker: "WholeBroker") -> int:
    """The durable sessions in slots of this node whose clients are not connected to any."""
    slots = None if broker.clustering is None else broker.clustering.slots
    return 0 if slots is None else slots.status.count_away()
