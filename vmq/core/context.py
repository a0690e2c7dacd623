"""What every session and queue of one broker shares: options, outbox, store, hooks, counters.

The core's modules take clock and random source from here, so that a test can bring its own.
"""

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from vmq.core.cork import Cork
from vmq.core.hook_sites import Hooks
from vmq.core.losses import Losses
from vmq.core.output import MEMORY, Outbox, Output
from vmq.core.ports import (
    BanList,
    Claims,
    Elsewhere,
    JobsPort,
    MappingFinder,
    MemoryPort,
    Peers,
    Propagation,
    ReadersPort,
    ReceiptsPort,
    RecheckPort,
    RegistryFinder,
    RetainedListener,
    ServicePort,
    SessionListener,
    SessionOptionsPort,
    StreamFinder,
    Traffic,
    Wills,
)
from vmq.core.source import Source
from vmq.disk.room import DiskRoom
from vmq.mqtt.packets import MAX_REMAINING_LENGTH, REFUSED_CREDENTIALS
from vmq.mqtt.special import is_read
from vmq.store.store import Store

log = logging.getLogger("vmq.hooks")

# What `SessionListener.on_subscriber` is told of a session: a connection has it from now on; its subscriptions are
# others than before, or its client left share groups alone; it is over.
CLAIMED: Final = 0
CHANGED: Final = 1
ENDED: Final = 2

#: Milliseconds: by more the wall clock does not differ from the time that has passed unless it was set.
CLOCK_STEP: Final = 2000

#: More bytes than there ever are.
NO_LIMIT: Final = 1 << 60


class CoreOptions:
    """The core's settings, in the units that the code uses; names are those of config/reference.toml."""

    def __init__(self) -> None:
        self.max_client_id_size: int = 100
        #: Retained messages go to new subscribers only while their sources may publish them.
        self.check_retain_source = True
        #: The return code of the CONNACK to wrong credentials.
        self.refusal_code: int = REFUSED_CREDENTIALS
        #: Bytes of a CONNECT, of any packet behind it, and of one that is not PUBLISH.
        self.max_connect_size: int = 16 * 1024
        self.max_packet_size: int = 16 * 1024 * 1024
        self.max_control_packet_size: int = 256 * 1024
        #: The largest remaining length of a PUBLISH to a client: what MQTT can express (section 2.2.3).
        self.max_outgoing_length: int = MAX_REMAINING_LENGTH
        #: The names of those that a plugin has decided for a session.
        self.own: tuple[str, ...] = ()
        self.upgrade_outgoing_qos = False
        #: Seconds; 0 is off.
        self.retry_interval: float = 0.0
        self.shared_subscription_policy = "prefer_local"
        # What a client may do while a member of the cluster cannot be reached.
        self.allow_register_during_netsplit = True
        self.allow_publish_during_netsplit = True
        self.allow_subscribe_during_netsplit = True
        self.allow_unsubscribe_during_netsplit = True
        #: A durable session is its user's, whoever else connects with its client id.
        self.sessions_are_users = True
        self.suppress_lwt_on_session_takeover = False
        self.disconnect_on_unauthorized_publish_v3 = False
        #: 0 is no limit (but that of packet ids).
        self.max_inflight_messages: int = 20
        #: -1 is no limit.
        self.max_online_messages: int = -1
        self.max_offline_messages: int = -1
        #: Bytes; -1 is no limit.
        self.max_bytes: int = 256 << 20
        self.max_memory_bytes: int = 16 << 20
        self.max_inflight_bytes: int = 1 << 20
        #: Seconds that a message may wait; 0 is any time.
        self.max_age: float = 0.0
        self.lifo = False
        self.drop_oldest = False
        self.max_msgs_per_drain_step: int = 100
        self.topic_cache: int = 65536
        # Limits on what one client may do; 0 is no limit.
        self.max_message_size: int = 0
        #: Messages and bytes a second, over which reading pauses.
        self.max_message_rate: float = 0.0
        self.max_byte_rate: float = 0.0
        self.max_subscriptions_per_client: int = 0
        self.max_subscription_bytes_per_client: int = 0
        self.topic_max_depth: int = 0
        self.topic_max_plus: int = 0
        self.max_retained_messages: int = 0
        self.max_retained_bytes: int = 0
        self.max_subscription_bytes: int = 0
        #: A full queue of a connected client pauses the publisher instead of dropping.
        self.pause_publisher = False
        #: Seconds that a connection may take nothing of what is written to it.
        self.stalled_client_timeout: float = 0.0
        #: Connections from one address, as `Peer.network` has it; 0 is no limit.
        self.max_connections_per_ip: int = 0
        #: Seconds that a client waits at most for the verdict on its CONNECT.
        self.login_timeout: float = 600.0
        #: Bytes that clients may hold who wait for that.
        self.max_login_bytes: int = 536_870_912
        #: Seconds that a user's next password is not looked at after wrong ones from the same address, at most.
        self.failed_login_delay: float = 10.0
        #: Connects of one user's client id within `flapping_window` seconds, over which it is refused for
        #: `flapping_ban` seconds.
        self.flapping_limit: int = 0
        self.flapping_window: float = 60.0
        self.flapping_ban: float = 300.0
        #: Writes gathered for one commit, above which publishers pause.
        self.max_uncommitted_writes: int = 100_000
        #: Seconds; 0 is never.
        self.persistent_client_expiration: float = 0.0


class Counters:
    """What happened since the start, under VerneMQ's names. Reading them is the business of metrics.

    Plain attributes, so that counting costs the compiled core next to nothing.
    """

    def __init__(self) -> None:
        self.socket_open: int = 0
        self.socket_close: int = 0
        self.socket_close_timeout: int = 0
        self.socket_error: int = 0
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.mqtt_connect_received: int = 0
        self.mqtt_publish_received: int = 0
        self.mqtt_publish_sent: int = 0
        self.mqtt_puback_received: int = 0
        self.mqtt_puback_sent: int = 0
        self.mqtt_pubrec_received: int = 0
        self.mqtt_pubrec_sent: int = 0
        self.mqtt_pubrel_received: int = 0
        self.mqtt_pubrel_sent: int = 0
        self.mqtt_pubcomp_received: int = 0
        self.mqtt_pubcomp_sent: int = 0
        self.mqtt_subscribe_received: int = 0
        self.mqtt_suback_sent: int = 0
        self.mqtt_unsubscribe_received: int = 0
        self.mqtt_unsuback_sent: int = 0
        self.mqtt_pingreq_received: int = 0
        self.mqtt_pingresp_sent: int = 0
        self.mqtt_disconnect_received: int = 0
        self.mqtt_puback_invalid_error: int = 0
        self.mqtt_pubrec_invalid_error: int = 0
        self.mqtt_pubrel_invalid_error: int = 0
        self.mqtt_pubcomp_invalid_error: int = 0
        self.mqtt_publish_error: int = 0
        self.mqtt_connect_error: int = 0
        self.mqtt_publish_auth_error: int = 0
        self.mqtt_subscribe_auth_error: int = 0
        self.mqtt_subscribe_error: int = 0
        self.mqtt_unsubscribe_error: int = 0
        self.client_keepalive_expired: int = 0
        self.client_expired: int = 0
        self.takeovers: int = 0
        self.protocol_errors: int = 0
        self.queue_setup: int = 0
        self.queue_teardown: int = 0
        self.queue_message_in: int = 0
        self.queue_message_drop: int = 0
        self.queue_message_expired: int = 0
        self.queue_message_unhandled: int = 0
        self.queue_initialized_from_storage: int = 0
        self.router_matches_local: int = 0
        self.router_matches_remote: int = 0
        self.retain_refused: int = 0
        self.retain_withheld: int = 0
        self.retain_bursts_refused: int = 0
        self.subscriptions_refused: int = 0
        self.publishers_paused: int = 0
        self.rate_limited: int = 0
        self.stalled_clients: int = 0
        self.hook_errors: int = 0
        self.flapping_refused: int = 0
        self.logins_failed: int = 0
        self.logins_delayed: int = 0
        self.logins_put_off: int = 0
        self.memory_refused: int = 0
        self.banned_refused: int = 0
        self.memory_ended: int = 0
        self.accept_paced: int = 0
        self.accept_failed: int = 0
        self.tls_handshakes_queued: int = 0
        self.http_timeouts: int = 0
        self.ws_frame_too_large: int = 0
        self.ws_page_refused: int = 0
        #: CONNACKs by return code.
        self.mqtt_connack_sent: list[int] = [0, 0, 0, 0, 0, 0]


def at_once(call: Callable[[], None]) -> None:
    """There is no event loop, and no next turn of it."""
    call()


class Core:
    """Shared by all sessions and queues of a broker."""

    def __init__(
        self,
        options: CoreOptions,
        store: Store | None,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        choose: Callable[[int], int],
    ) -> None:
        self.options = options
        self.outbox = Outbox()
        #: Of what the broker gives on by itself, whose publisher waits for nothing any more.
        self.nobody = Source(self.outbox.nowhere)
        self.cork = Cork(clock, self.after_turn)
        self.store = store
        self.hooks = Hooks()
        self.counters = Counters()
        #: Bytes that wait for all subscribers in memory alone; see `Waiting.droppable_bytes`.
        self.waiting_bytes: int = 0
        #: What subscribers lost, until the log tells.
        self.losses = Losses()
        #: Monotonic seconds.
        self.clock = clock
        #: Seconds since 1970, for what must mean the same after a restart.
        self.wall_clock = wall_clock
        wall = int(wall_clock() * 1000)
        #: Milliseconds by which the wall clock is ahead of the monotonic one, as it was when it was looked at last.
        self.ahead: int = wall - int(clock() * 1000)
        #: Milliseconds by which it was set while the broker ran, in earlier lives too, if there is a store. A machine
        #: whose clock begins anew at each boot, and is set then, is not further behind each time.
        self.clock_set: int = 0 if store is None else min(store.clock_set, wall - store.clock_noted)
        #: When the commit of which number began to gather what waits, as `waits_now` has it.
        self.gathers_since: int = 0
        self.gathers: int = 0
        #: choose(n) is a random number from 0 to n - 1.
        self.choose = choose
        #: What was done so far, in messages for one queue or nodes of the trie that were visited, so that a pass knows
        #: when it did enough.
        self.work: i64 = 0
        #: Set by the memory watch: no new clients, and publishers pause.
        self.memory_is_high = False
        #: Resident bytes above which it is; 0 is no limit.
        self.memory_limit: int = 0
        #: Bytes that came or were kept since memory was measured, and how many may until it is measured again.
        self.memory_grown: i64 = 0
        self.memory_room: i64 = NO_LIMIT
        self.memory = MemoryPort()
        #: What is to stay free of disks.
        self.disk_room = DiskRoom(self.clock)
        #: Seconds that the event loop was late at the last look.
        self.loop_lag: float = 0.0
        #: Set by the cluster node while a member cannot be reached.
        self.cluster_is_split = False
        #: Set by the cluster node: why no client may be here; nothing: clients are let in.
        self.shut_to_clients: str = ""
        #: Set while the streams' disk lags behind: who publishes to streams pauses.
        self.streams_are_behind = False
        #: Without streams: in none, and nothing of theirs.
        self.stream_finder = StreamFinder()
        self.receipts = ReceiptsPort()
        self.jobs = JobsPort()
        self.mappings = MappingFinder()
        self.readers = ReadersPort()
        #: Connections that do not read until memory is there, or the store has committed.
        self.waiting_for_memory: list[Output] = []
        self.waiting_for_store: list[Output] = []
        self.waiting_for_streams: list[Output] = []
        #: Has something done in the next turn of the event loop, set by the broker; at once without one.
        self.call_soon: Callable[[Callable[[], None]], object] = at_once
        #: The event loop's, set by the broker.
        self.call_later: Callable[[float, Callable[[], None]], object] | None = None
        self.registries = RegistryFinder()
        #: How many connections there are from each address.
        self.networks: dict[str, int] = {}
        self.bans = BanList()
        # What follows is another node's business; these are for a broker that is none.
        self.sessions = SessionListener()
        self.claims = Claims()
        self.wills = Wills()
        self.propagation = Propagation()
        self.elsewhere = Elsewhere()
        self.peers = Peers()
        self.retained_listener = RetainedListener()
        self.traffic = Traffic()
        self.rechecks = RecheckPort()
        self.session_options = SessionOptionsPort()
        #: Wills about which plugins are being asked.
        self.awaited_wills: int = 0

    def service_of(self, topic: str) -> ServicePort:
        """What has the say of a topic or filter that is served."""
        return self.readers if is_read(topic) else self.jobs

    def tell(self, name: str, hook: Callable[..., object] | None, *arguments: object) -> None:
        """Calls a hook for its information, if there is one; whatever it raises ends here."""
        if hook is None:
            return
        try:
            hook(*arguments)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            self.hook_failed(name, error)

    def hook_failed(self, name: str, error: Exception) -> None:
        """Logs and counts what a hook raised; the caller says what happens instead."""
        self.counters.hook_errors += 1
        log.error("hook %s failed", name, exc_info=error)

    def after_turn(self, call: Callable[[], None]) -> None:
        """Has something done in the next turn of the event loop."""
        self.call_soon(call)

    def waits_now(self) -> int:
        """The time by which it counts how long messages wait, in milliseconds.

        It is wall clock time, so that it goes on across restarts, as if that clock had never been set while the broker
        ran: a step forward, as by NTP, makes nothing older. It is above 0.
        """
        now = int(self.wall_clock() * 1000)
        ahead = now - int(self.clock() * 1000)
        step = ahead - self.ahead
        self.ahead = ahead
        if abs(step) > CLOCK_STEP:
            self.clock_set += step
            if self.store is not None:
                self.store.put_clock_set(self.clock_set, max(1, now - self.clock_set))
        return max(1, now - self.clock_set)

    def waits_since(self, store: Store) -> int:
        """Since when that waits which the store takes now, by `waits_now`.

        The clock is read once a commit, unless one may gather for long.
        """
        if self.gathers != store.number or store.acknowledge_early:
            self.gathers = store.number
            self.gathers_since = self.waits_now()
        return self.gathers_since

    def end_memory_alarm(self) -> None:
        """There is memory: whoever waited for it is read again."""
        self.memory_is_high = False
        waiting = self.waiting_for_memory
        self.waiting_for_memory = []
        for output in waiting:
            output.resume_from(MEMORY)

    def resume_all(self, waiting: list[Output]) -> None:
        """Lets connections read again that waited for the store, or for streams."""
        found = list(waiting)
        waiting.clear()
        for output in found:
            output.resume()
