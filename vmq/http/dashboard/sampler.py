"""One row of a broker's figures a second: rates of its counters, and what it holds at the moment."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from vmq.runtime.histogram import BOUNDS, Histogram

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Counters whose rates are shown: by what name, and the counters that are added up.
RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "received": ("mqtt_publish_received",),
    "sent": ("mqtt_publish_sent",),
    "bytes_in": ("bytes_received",),
    "bytes_out": ("bytes_sent",),
    "opened": ("socket_open",),
    "closed": ("socket_close",),
    "dropped": ("queue_message_drop", "queue_message_expired", "queue_message_unhandled"),
    "logins_refused": ("logins_failed", "banned_refused", "flapping_refused", "memory_refused"),
    "rights_refused": ("mqtt_publish_auth_error", "mqtt_subscribe_auth_error"),
    "protocol_errors": ("protocol_errors",),
}
#: Gauges that are shown, by what name.
LEVELS: Final[Mapping[str, str]] = {
    "connections": "total_active_connections",
    "sessions": "queue_processes",
    "offline": "queue_offline",
    "subscriptions": "router_subscriptions",
    "retained": "retain_messages",
    "memory": "process_resident_memory_bytes",
    "memory_limit": "memory_limit_bytes",
    "store": "store_bytes",
    "stored": "store_message_bytes",
}
#: The rest: processor in percent of a core, how late the event loop was, what commits of the store took, in
#: milliseconds; bytes that wait in memory; bytes of the disk.
OTHERS: Final = (
    "cpu",
    "lag",
    "lag_p99",
    "commit_p50",
    "commit_p99",
    "waiting",
    "disk_free",
    "disk",
)
SERIES: Final = (*RATES, *LEVELS, *OTHERS)


class Sampler:
    """Reads one broker; rates are those since the reading before."""

    def __init__(self, broker: "BrokerView") -> None:
        self._broker = broker
        self._counters: Mapping[str, int] = {}
        self._cpu = 0.0
        self._when = 0.0
        self._lags = Spread()
        self._commits = Spread()

    def sample(self, now: float) -> list[float]:
        """The figures at monotonic second `now`, in the order of `SERIES`."""
        broker = self._broker
        counters, gauges = broker.metrics.counters(), broker.metrics.gauges()
        before, span = self._counters or counters, max(now - self._when, 1e-3)
        rates = [
            max(0.0, sum(counters[name] - before[name] for name in names) / span)
            for names in RATES.values()
        ]
        cpu = gauges["process_cpu_seconds"]
        used = 100 * (cpu - self._cpu) / span if self._counters else 0.0
        self._counters, self._cpu, self._when = counters, cpu, now
        self._lags.see(broker.monitor.lags)
        self._commits.see(broker.metrics.commits)
        free, size = _disk(broker.config.broker.data_dir)
        return [
            *rates,
            *(float(gauges[name]) for name in LEVELS.values()),
            used,
            1000 * gauges["event_loop_lag_recent_seconds"],
            1000 * self._lags.quantile(0.99),
            1000 * self._commits.quantile(0.5),
            1000 * self._commits.quantile(0.99),
            float(broker.monitor.core.waiting_bytes),
            free,
            size,
        ]


class Spread:
    """What a histogram has seen between two looks at it."""

    def __init__(self) -> None:
        self._seen = [0] * (len(BOUNDS) + 1)
        self._fresh = Histogram()

    def see(self, histogram: Histogram) -> None:
        """Looks at it."""
        self._fresh.counts = [
            now - then for now, then in zip(histogram.counts, self._seen, strict=True)
        ]
        self._fresh.count = sum(self._fresh.counts)
        self._seen = list(histogram.counts)

    def quantile(self, share: float) -> float:
        """An upper bound in seconds of that share of what came; above the last bound twice that."""
        return min(self._fresh.quantile(share), 2 * BOUNDS[-1])


def _disk(folder: str) -> tuple[float, float]:
    """Bytes free for us, and bytes of the disk that a folder lies on; 0 and 0 if it does not say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0.0, 0.0
    return float(found.f_bavail * found.f_frsize), float(found.f_blocks * found.f_frsize)
