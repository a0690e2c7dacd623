"""The limits of queues in slots, from the options of the broker and of its sessions."""

from vmq.clustering.messages.fronts import SessionLimits
from vmq.clustering.routing.shares import RANDOM
from vmq.clustering.slots.flow import PACKETS
from vmq.clustering.slots.limits import QueueLimits
from vmq.core.context import CoreOptions


def limits_as_configured(options: CoreOptions) -> QueueLimits:
    """Those of sessions for which no plugin has decided anything."""
    limits = QueueLimits(options.max_inflight_messages or PACKETS)
    limits.window_bytes = options.max_inflight_bytes
    limits.online, limits.offline = options.max_online_messages, options.max_offline_messages
    limits.bytes, limits.drops_oldest = options.max_bytes, options.drop_oldest
    limits.prefers_near = options.shared_subscription_policy != RANDOM
    limits.pauses = options.pause_publisher
    limits.newest_first, limits.upgrades = options.lifo, options.upgrade_outgoing_qos
    limits.age = int(options.max_age * 1000)
    limits.expiry = int(options.persistent_client_expiration * 1000)
    return limits


def limits_of(options: CoreOptions | None) -> SessionLimits | None:
    """What plugins have decided for a session; None: nothing that concerns its queue."""
    own = () if options is None else options.own
    if options is None or not own:
        return None
    limits = SessionLimits(
        min(options.max_inflight_messages or PACKETS, PACKETS)
        if "max_inflight_messages" in own
        else None,
        options.max_online_messages if "max_online_messages" in own else None,
        options.max_offline_messages if "max_offline_messages" in own else None,
        options.lifo if "lifo" in own else None,
        options.upgrade_outgoing_qos if "upgrade_outgoing_qos" in own else None,
    )
    return None if limits == SessionLimits() else limits
