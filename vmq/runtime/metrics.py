"""Every figure that the broker gives out: its name, kind and meaning, and where its value comes from.

The names are VerneMQ's where VerneMQ has the figure. Counters are plain attributes that the core
counts up; a gauge is read when somebody asks. Nothing here is on the path of a message, and reading
everything costs the same however many clients there are.

The Prometheus text adds `_total` to the names of counters, as Prometheus wants it; `$SYS`, the
command line and JSON use the names as they stand here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.runtime import process
from vmq.runtime.histogram import Histogram
from vmq.store.store import Store
from vmq.version import __version__, is_compiled

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]

#: Counters: the name is that of the attribute of `vmq.core.context.Counters`.
COUNTERS: Final[Mapping[str, str]] = {
    "socket_open": "Connections accepted.",
    "socket_close": "Connections closed.",
    "socket_close_timeout": "Connections closed because no CONNECT came in time.",
    "socket_error": "Connections that ended with an error of the socket.",
    "bytes_received": "Bytes received from clients.",
    "bytes_sent": "Bytes sent to clients.",
    "mqtt_connect_received": "CONNECT packets received.",
    "mqtt_connack_sent": "CONNACK packets sent, by return code.",
    "mqtt_publish_received": "PUBLISH packets received.",
    "mqtt_publish_sent": "PUBLISH packets sent.",
    "mqtt_puback_received": "PUBACK packets received.",
    "mqtt_puback_sent": "PUBACK packets sent.",
    "mqtt_pubrec_received": "PUBREC packets received.",
    "mqtt_pubrec_sent": "PUBREC packets sent.",
    "mqtt_pubrel_received": "PUBREL packets received.",
    "mqtt_pubrel_sent": "PUBREL packets sent.",
    "mqtt_pubcomp_received": "PUBCOMP packets received.",
    "mqtt_pubcomp_sent": "PUBCOMP packets sent.",
    "mqtt_subscribe_received": "SUBSCRIBE packets received.",
    "mqtt_suback_sent": "SUBACK packets sent.",
    "mqtt_unsubscribe_received": "UNSUBSCRIBE packets received.",
    "mqtt_unsuback_sent": "UNSUBACK packets sent.",
    "mqtt_pingreq_received": "PINGREQ packets received.",
    "mqtt_pingresp_sent": "PINGRESP packets sent.",
    "mqtt_disconnect_received": "DISCONNECT packets received.",
    "mqtt_puback_invalid_error": "PUBACK packets with a packet id that nothing waits for.",
    "mqtt_pubrec_invalid_error": "PUBREC packets with a packet id that nothing waits for.",
    "mqtt_pubrel_invalid_error": "PUBREL packets with a packet id that nothing waits for.",
    "mqtt_pubcomp_invalid_error": "PUBCOMP packets with a packet id that nothing waits for.",
    "mqtt_publish_error": "PUBLISH packets that could not be handled.",
    "mqtt_connect_error": "CONNECT packets that could not be handled.",
    "mqtt_publish_auth_error": "PUBLISH packets that the client was not allowed.",
    "mqtt_subscribe_auth_error": "SUBSCRIBE packets that the client was not allowed.",
    "mqtt_subscribe_error": "SUBSCRIBE packets that could not be handled.",
    "mqtt_unsubscribe_error": "UNSUBSCRIBE packets that could not be handled.",
    "client_keepalive_expired": "Clients closed because their keep alive ran out.",
    "client_expired": "Durable sessions that ended because their client stayed away too long.",
    "takeovers": "Connections closed because their client id connected anew.",
    "protocol_errors": "Connections closed because the client broke the protocol.",
    "queue_setup": "Queues made.",
    "queue_teardown": "Queues ended.",
    "queue_message_in": "Messages given to queues.",
    "queue_message_drop": "Messages dropped: a queue was full, or the store, or memory, or they were too old.",
    "queue_message_expired": "Messages dropped because they waited longer than queue.max_age.",
    "queue_message_unhandled": "Messages lost with the end of a queue.",
    "queue_initialized_from_storage": "Queues restored from the store.",
    "router_matches_local": "Subscriptions that published messages matched.",
    "router_matches_remote": "Copies of published messages that went to other nodes.",
    "retain_refused": "Retained messages not kept because of a limit.",
    "hook_errors": "Plugins' hooks that raised; auth hooks refuse then.",
    "retain_withheld": "Retained messages not sent to a new subscriber because their publisher may not publish them.",
    "retain_bursts_refused": "Clients closed because too many retained messages waited for them, unread or unjudged.",
    "subscriptions_refused": "Subscriptions refused because of a limit.",
    "publishers_paused": "Times that a publisher was not read because others could not follow.",
    "rate_limited": "Times that a client was not read because it was over its rate.",
    "stalled_clients": "Clients closed because they took nothing of what was sent to them.",
    "flapping_refused": "Connections refused because their client connected too often.",
    "logins_failed": "CONNECTs with a wrong user name or password.",
    "logins_delayed": "CONNECTs that waited because of wrong passwords of their user from their address.",
    "logins_put_off": "CONNECTs answered with code 3 because too many waited, or one for too long.",
    "banned_refused": "Connections refused because of a ban (vmq ban).",
    "memory_refused": "Connections refused because memory was short.",
    "memory_ended": "Clients closed because memory was short and the packet that they were sending was large.",
    "accept_paced": "Times that new connections had to wait because the event loop was late.",
    "tls_handshakes_queued": "Parts of TLS handshakes that waited because others had their share of the event loop.",
    "http_timeouts": "HTTP connections closed because no request came in time.",
    "ws_page_refused": "WebSocket upgrades and CONNECTs of web pages refused because of allowed_origins or Host.",
    "ws_frame_too_large": "WebSocket connections closed because of max_ws_frame_size.",
    "accept_failed": "Times that no connection could be accepted for want of files or memory.",
}

#: Gauges: read when asked.
GAUGES: Final[Mapping[str, str]] = {
    "active_mqtt_connections": "Open connections of MQTT clients over TCP, TLS or a Unix socket.",
    "active_mqttws_connections": "Open connections of MQTT clients over WebSocket.",
    "total_active_connections": "Open connections of MQTT clients.",
    "queue_processes": "Queues: one a client that is connected, and those of queue_offline.",
    "queue_offline": "Queues of durable sessions whose client is away; in a cluster those in this node's slots.",
    "router_subscriptions": "Subscriptions.",
    "retain_messages": "Retained messages.",
    "router_memory": "Bytes of memory that subscriptions take, about.",
    "retain_memory": "Bytes of memory that retained messages take, about.",
    "store_bytes": "Bytes of the store on disk, about; its latest writes are not in it.",
    "store_memory_bytes": "Bytes of memory that the store uses, about.",
    "store_uncommitted_writes": "Records of the store that the next commits will write or delete.",
    "store_message_bytes": "Bytes on disk that the messages for durable sessions have, shared ones counted once.",
    "store_max_message_bytes": "Bytes that they may have (store.max_bytes); 0: any number.",
    "store_short_of_disk": "1 while the disk has less than store.min_free_bytes free, else 0.",
    "store_failing": "1 while the store cannot write and durable work is refused, else 0.",
    "event_loop_lag_recent_seconds": "Worst lag of the event loop in the last five seconds.",
    "uptime_seconds": "Seconds since the broker began to start.",
    "process_cpu_seconds": "Processor time that the process has used.",
    "process_resident_memory_bytes": "Memory that the process has in RAM.",
    "memory_limit_bytes": "Memory in RAM above which new clients are refused and publishers wait; 0: no limit.",
    "process_open_fds": "Open file descriptors.",
    "process_max_fds": "File descriptors that may be open.",
    "vmq_build_info": "1, with what runs as labels.",
}

HISTOGRAMS: Final[Mapping[str, str]] = {
    "event_loop_lag_seconds": "How much later than asked a timer of the event loop fires.",
    "store_commit_seconds": "How long the writes of the store's commits take.",
}

#: Words for the return codes 0 to 5 of CONNACK.
RETURN_CODES: Final = (
    "success",
    "unsupported_protocol_version",
    "client_identifier_not_valid",
    "server_unavailable",
    "bad_username_or_password",
    "not_authorized",
)


class Sample(NamedTuple):
    """One value of a metric, with the labels that tell it from the others of its name."""

    labels: Labels
    value: float


class Family(NamedTuple):
    """One metric: its samples, or its histograms, each with its labels."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...] = ()
    histograms: tuple[tuple[Labels, Histogram], ...] = ()


class Metrics:
    """The broker's figures.

    Args:
        core: whose counters and store are read.
        registries: whose queues, subscriptions and retained messages are counted.
        commits: how long the store's writes took.
        lags: how late the event loop was.
        recent_lag: the worst of the last seconds.
        uptime: seconds since the start.
        connections: open connections, by "mqtt" and "mqttws".
    """

    def __init__(
        self,
        core: Core,
        registries: Callable[[], Iterable[Registry]],
        commits: Histogram,
        lags: Histogram,
        recent_lag: Callable[[], float],
        uptime: Callable[[], float],
        connections: Callable[[], Mapping[str, int]],
    ) -> None:
        self._core = core
        self._registries = registries
        self._histograms = {"event_loop_lag_seconds": lags, "store_commit_seconds": commits}
        self._recent_lag = recent_lag
        self._uptime = uptime
        self._connections = connections
        #: How long the store's writes took.
        self.commits = commits
        #: Queues that are in no registry: durable sessions in slots of a cluster, whose clients are away.
        self.away: Callable[[], int] = int
        #: Metrics that others bring; told anew each time.
        self.others: Callable[[], Iterable[Family]] = tuple

    def families(self) -> Iterator[Family]:
        """Every metric with its values of now."""
        for name, text in COUNTERS.items():
            yield Family(name, "counter", text, self._counter(name))
        values = self.gauges()
        for name, text in GAUGES.items():
            labels = _build_labels() if name == "vmq_build_info" else ()
            # The processor's time only grows, though it is read and not counted.
            kind: Kind = "counter" if name == "process_cpu_seconds" else "gauge"
            yield Family(name, kind, text, (Sample(labels, values[name]),))
        for name, text in HISTOGRAMS.items():
            yield Family(name, "histogram", text, histograms=(((), self._histograms[name]),))
        yield from self.others()

    def counters(self) -> dict[str, int]:
        """Every counter by name; one with labels as the sum of its samples."""
        counters = self._core.counters
        found = {name: getattr(counters, name) for name in COUNTERS}
        return found | {"mqtt_connack_sent": sum(counters.mqtt_connack_sent)}

    def gauges(self) -> dict[str, float]:
        """Every gauge by name."""
        registries = list(self._registries())
        connections, away = self._connections(), self.away()
        return {
            "active_mqtt_connections": connections.get("mqtt", 0),
            "active_mqttws_connections": connections.get("mqttws", 0),
            "total_active_connections": sum(connections.values()),
            "queue_processes": sum(len(each.subscribers) for each in registries) + away,
            "queue_offline": sum(len(each.offline) for each in registries) + away,
            "router_subscriptions": sum(each.trie.count for each in registries),
            "retain_messages": sum(each.retained.count for each in registries),
            "router_memory": sum(each.trie.size() for each in registries),
            "retain_memory": sum(each.retained.size() for each in registries),
            **_store_gauges(self._core.store),
            "event_loop_lag_recent_seconds": self._recent_lag(),
            "uptime_seconds": self._uptime(),
            "process_cpu_seconds": process.cpu_seconds(),
            "process_resident_memory_bytes": process.resident_bytes(),
            "memory_limit_bytes": self._core.memory_limit,
            "process_open_fds": process.open_files(),
            "process_max_fds": process.max_files(),
            "vmq_build_info": 1,
        }

    def _counter(self, name: str) -> tuple[Sample, ...]:
        counters = self._core.counters
        if name != "mqtt_connack_sent":
            return (Sample((), getattr(counters, name)),)
        codes = counters.mqtt_connack_sent
        return tuple(
            Sample((("return_code", word),), number)
            for word, number in zip(RETURN_CODES, codes, strict=True)
        )


def _store_gauges(store: Store | None) -> dict[str, float]:
    if store is None:
        return dict.fromkeys((name for name in GAUGES if name.startswith("store_")), 0)
    size = memory = 0
    try:
        size = int(store.db.approximate_size(b"\x00", b"\xff"))
        memory = int(store.db.get_property(b"leveldb.approximate-memory-usage") or 0)
    except RuntimeError:
        pass  # closed, while it cannot be opened anew after a failed write
    return {
        "store_bytes": size,
        "store_memory_bytes": memory,
        "store_uncommitted_writes": len(store.dirty) + len(store.unwritten) + len(store.writing),
        "store_message_bytes": store.sizes.total,
        "store_max_message_bytes": store.max_total,
        "store_short_of_disk": int(store.is_short),
        "store_failing": int(store.failing),
    }


def _build_labels() -> Labels:
    return (
        ("version", __version__),
        ("compiled", "yes" if is_compiled() else "no"),
        ("python", process.python_version()),
    )
