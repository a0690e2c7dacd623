"""What a measurement found, in the form that `--json` prints."""

from msgspec import Struct

from vmq.bench.load.checks import Faults
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.usage import Usage


class Latency(Struct):
    """Microseconds: quantiles of a histogram."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, histogram: LatencyHistogram) -> "Latency | None":
        """The quantiles; None if nothing was counted."""
        if not histogram.count:
            return None

        def quantile(share: float) -> float:
            return round(histogram.quantile(share) / 1000, 1)

        return cls(
            histogram.count,
            p50=quantile(0.5),
            p90=quantile(0.9),
            p99=quantile(0.99),
            p999=quantile(0.999),
            max=round(histogram.max / 1000, 1),
        )


class BrokerCost(Struct):
    """What the broker's processes used during the measurement."""

    cpu_seconds: float
    rss_start: int  # bytes
    rss_end: int
    rss_peak: int
    processes: int
    threads: int
    cpu_us_per_message: float | None = None
    cpu_us_per_connection: float | None = None
    bytes_per_connection: float | None = None
    bytes_per_filter: float | None = None
    bytes_per_retained: float | None = None

    @classmethod
    def between(cls, before: Usage, after: Usage, peak: int = 0) -> "BrokerCost":
        """The difference of two readings."""
        return cls(
            cpu_seconds=round(after.cpu - before.cpu, 6),
            rss_start=before.rss,
            rss_end=after.rss,
            rss_peak=max(peak, before.rss, after.rss),
            processes=after.processes,
            threads=after.threads,
        )


class LoaderCost(Struct):
    """What the load generator itself used: close to 1, it was the limit, not the broker."""

    cpu_seconds: float
    cpu_share: float
    reads: int
    writes: int
    #: How far behind its schedule it was (`--rate`).
    late_us: Latency | None = None


class Connects(Struct):
    """How a crowd of clients came in."""

    asked: int
    came: int
    held: int  # still connected at the end
    seconds: float
    rate: float  # accepted a second
    latency_us: Latency | None = None


class Result(Struct, omit_defaults=True):
    """One measurement."""

    scenario: str
    url: str
    #: How it ended: complete, time (before the count was reached), stalled, interrupted, disconnected.
    end: str = "complete"
    qos: int | None = None
    size: int | None = None
    pubs: int | None = None
    subs: int | None = None
    seconds: float = 0.0
    sent: int = 0
    expected: int = 0
    received: int = 0
    send_rate: float = 0.0
    receive_rate: float = 0.0
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    damaged: int = 0
    foreign: int = 0
    protocol_errors: int = 0
    disconnected: int = 0
    unacknowledged: int = 0
    first_problem: str = ""
    latency_us: Latency | None = None
    #: Before the storm, with the same load.
    quiet_latency_us: Latency | None = None
    connects: Connects | None = None
    filters: int = 0
    filter_rate: float = 0.0
    store_rate: float = 0.0
    broker: BrokerCost | None = None
    loader: LoaderCost | None = None

    def take_faults(self, faults: Faults) -> None:
        """Adds the faults that were found at one subscriber."""
        self.lost += faults.lost
        self.duplicates += faults.duplicates
        self.reordered += faults.reordered
        self.damaged += faults.damaged
        self.foreign += faults.foreign

    @property
    def is_sound(self) -> bool:
        """Whether every message arrived once and in order, and nobody was cut off."""
        crowd = self.connects
        if crowd is not None and crowd.came < crowd.asked and self.end != "interrupted":
            return False
        return not (
            self.lost
            or self.duplicates
            or self.reordered
            or self.damaged
            or self.foreign
            or self.protocol_errors
            or self.disconnected
            or (self.unacknowledged and self.end != "interrupted")
            or self.end in {"stalled", "disconnected"}
        )

    def faults_text(self) -> str:
        """What was found to be wrong, in words."""
        counts = {
            "lost": self.lost,
            "duplicates": self.duplicates,
            "reordered": self.reordered,
            "damaged": self.damaged,
            "foreign": self.foreign,
            "protocol errors": self.protocol_errors,
            "cut off": self.disconnected,
        }
        words = [f"{count:,} {name}" for name, count in counts.items() if count]
        if self.end != "interrupted":
            if self.unacknowledged:
                words.append(f"{self.unacknowledged:,} unacknowledged")
            if self.connects is not None and self.connects.came < self.connects.asked:
                words.append(f"{self.connects.asked - self.connects.came:,} not let in")
        if self.first_problem:
            words.append(self.first_problem)
        return ", ".join(words) or "ok"
