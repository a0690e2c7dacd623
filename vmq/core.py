"""What every session and queue of one broker shares: options, outbox, store, hooks, counters.

The core's modules take clock and random source from here, so that a test can bring its own.
"""

from collections.abc import Callable

from vmq.hooks import Hooks
from vmq.output import Outbox
from vmq.store import Store


class Options:
    """The core's settings, in the units that the code uses; names are those of config/vmq.toml."""

    def __init__(self) -> None:
        self.max_client_id_size: int = 100
        self.max_packet_size: int = 16 * 1024 * 1024
        self.upgrade_outgoing_qos = False
        #: Seconds; 0 is off.
        self.retry_interval: float = 0.0
        self.shared_subscription_policy = "prefer_local"
        self.suppress_lwt_on_session_takeover = False
        #: 0 is no limit (but that of packet ids).
        self.max_inflight_messages: int = 20
        #: -1 is no limit.
        self.max_online_messages: int = 1000
        self.max_offline_messages: int = 1000
        self.lifo = False
        self.drop_oldest = False
        self.max_msgs_per_drain_step: int = 100
        self.topic_cache: int = 65536
        #: Seconds; 0 is never.
        self.persistent_client_expiration: float = 0.0


class Counters:
    """What happened since the start. Plain numbers: reading them is the business of metrics."""

    def __init__(self) -> None:
        self.connects: int = 0
        self.publish_received: int = 0
        self.publish_sent: int = 0
        self.queue_message_drop: int = 0
        self.protocol_errors: int = 0
        self.takeovers: int = 0
        #: Connections that ended before MQTT began: no room, no TLS, no PROXY header.
        self.socket_error: int = 0


class Core:
    """Shared by all sessions and queues of a broker."""

    def __init__(
        self,
        options: Options,
        store: Store | None,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        choose: Callable[[int], int],
    ) -> None:
        self.options = options
        self.outbox = Outbox()
        self.store = store
        self.hooks = Hooks()
        self.counters = Counters()
        #: Monotonic seconds.
        self.clock = clock
        #: Seconds since 1970, for what must mean the same after a restart.
        self.wall_clock = wall_clock
        #: choose(n) is a random number from 0 to n - 1.
        self.choose = choose
