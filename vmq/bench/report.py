"""Results as tables."""

from collections.abc import Iterator

from vmq.bench.compare import Comparison, ComparisonRow
from vmq.bench.result import BrokerCost, Latency, Result

COMPARE_HEADERS = (
    *("scenario", "broker", "rate/s", "× vmq", "CPU µs", "× vmq", "p50", "p99", "loader", "check"),
)


def rows_of(result: Result) -> Iterator[tuple[str, str]]:
    """What one measurement found, as (what, value)."""
    yield "scenario", _title(result)
    if result.filters:
        yield "filters held", f"{result.filters:,}, confirmed at {result.filter_rate:,.0f}/s"
    if result.store_rate:
        yield "stored", f"{result.store_rate:,.0f} msg/s"
    if result.connects is not None:
        crowd = result.connects
        yield (
            "accepted",
            f"{crowd.rate:,.0f}/s ({crowd.came:,} of {crowd.asked:,} in {crowd.seconds:.2f} s)",
        )
        yield "connect latency", latency(crowd.latency_us)
        if crowd.held < crowd.came:
            yield "still connected", f"{crowd.held:,}"
    if result.sent:
        rate = f"{result.receive_rate:,.0f} msg/s"
        yield "received", f"{rate} ({result.received:,} in {result.seconds:.2f} s)"
        if abs(result.send_rate - result.receive_rate) > result.send_rate / 100:
            yield "sent", f"{result.send_rate:,.0f} msg/s ({result.sent:,})"
        if result.latency_us is not None:
            yield "latency", latency(result.latency_us)
        if result.quiet_latency_us is not None:
            yield "before the storm", latency(result.quiet_latency_us)
    if result.broker is not None:
        yield from _broker(result.broker)
    if result.loader is not None:
        late = result.loader.late_us
        behind = f", behind its schedule by {duration(late.p99)} (p99)" if late else ""
        yield "load generator", f"{result.loader.cpu_share:.0%} of a core{behind}"
    yield "end", result.end
    yield "check", result.faults_text()


def _title(result: Result) -> str:
    words = [f"{result.scenario} at {result.url}"]
    if result.qos is not None:
        words.append(f"QoS {result.qos}, {result.size} bytes")
    if result.pubs is not None:
        words.append(f"{result.pubs} to {result.subs} clients")
    return ", ".join(words)


def _broker(cost: BrokerCost) -> Iterator[tuple[str, str]]:
    if cost.cpu_us_per_message is not None:
        yield "broker CPU", f"{cost.cpu_us_per_message:.3g} µs a message"
    elif cost.cpu_us_per_connection is not None:
        yield "broker CPU", f"{cost.cpu_us_per_connection:.3g} µs a connection"
    else:
        yield "broker CPU", f"{cost.cpu_seconds:.3g} s"
    parts = [f"{cost.rss_end / 2**20:.1f} MiB (peak {cost.rss_peak / 2**20:.1f})"]
    for value, what in (
        (cost.bytes_per_connection, "connection"),
        (cost.bytes_per_filter, "filter"),
        (cost.bytes_per_retained, "retained message"),
    ):
        if value is not None:
            parts.append(f"{value:,.0f} bytes a {what}")
    yield "broker memory", ", ".join(parts)


def latency(found: Latency | None) -> str:
    """Quantiles in a line."""
    if found is None:
        return "-"
    return (
        f"p50 {duration(found.p50)}  p99 {duration(found.p99)}  "
        f"p99.9 {duration(found.p999)}  max {duration(found.max)}"
    )


def duration(microseconds: float) -> str:
    """A time in the unit that suits it."""
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.3g} ms"
    return f"{microseconds / 1_000_000:.3g} s"


def compare_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """The lines of the table of a comparison."""
    scenario = ""
    for row in comparison.rows:
        yield (row.scenario if row.scenario != scenario else "", *_cells(row))
        scenario = row.scenario


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    if not row.rate or not row.is_sound:
        return (row.broker, *("-",) * 7, row.problem or "-")
    return (
        row.broker,
        f"{row.rate:,.0f}",
        "" if row.rate_ratio is None else f"{row.rate_ratio:.2f}",
        f"{row.cpu_us:.3g}",
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.3g}",
        duration(row.p50_us) if row.p50_us else "-",
        duration(row.p99_us) if row.p99_us else "-",
        f"{row.loader_share:.0%}",
        row.problem or "ok",
    )
