"""The figures of all workers as one broker's. Pure.

Prometheus gets each worker's figures under a label of their own: a counter that begins anew with its process is a
series that was reset, as the database knows them, and no fall in a sum. People get sums over the workers that run.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import HistogramMetricFamily, Metric

from vmq.admin.metrics import MetricRow
from vmq.http.metrics import buckets_of
from vmq.http.report import BrokerReport, FamilyReport, ListenerReport

#: Figures that all workers have alike, or of which only the worst counts.
GREATEST: Final = frozenset(
    {
        "cluster_node_up",
        "cluster_nodes",
        "cluster_nodes_up",
        "cluster_round_trip_seconds",
        "event_loop_lag_recent_seconds",
        "job_nodes",
        "job_queue_oldest_seconds",
        "process_max_fds",
        "retain_memory",
        "retain_messages",
        "store_failing",
        "store_short_of_disk",
        "uptime_seconds",
        "vmq_build_info",
    }
)
#: Parts of the status of which the same is true.
_GREATEST_PARTS: Final = frozenset({"retained", "event_loop", "uptime_seconds"})

Reports = Mapping[str, Iterable[FamilyReport]]


def metrics_of(reports: Reports) -> Iterator[Metric]:
    """Every metric, its samples labelled with whose they are."""
    metrics: dict[str, Metric] = {}
    for worker, families in reports.items():
        for family in families:
            metric = metrics.get(family.name)
            if metric is None:
                metrics[family.name] = metric = _metric_of(family)
            _add(metric, family, worker)
    yield from metrics.values()


def _metric_of(family: FamilyReport) -> Metric:
    if family.histograms:
        names = [name for name, _ in family.histograms[0].labels]
        return HistogramMetricFamily(family.name, family.help, labels=[*names, "worker"])
    return Metric(family.name, family.help, family.kind)


def _add(metric: Metric, family: FamilyReport, worker: str) -> None:
    if isinstance(metric, HistogramMetricFamily):
        for each in family.histograms:
            values = [value for _, value in each.labels]
            metric.add_metric([*values, worker], buckets_of(each.buckets), each.total)
        return
    name = family.name + "_total" if family.kind == "counter" else family.name
    for sample in family.samples:
        metric.add_sample(name, {**dict(sample.labels), "worker": worker}, sample.value)


def rows_of(reports: Reports) -> list[MetricRow]:
    """Counters and gauges as sums over all workers, or their greatest where a sum means nothing."""
    values: dict[str, list[float]] = {}
    for families in reports.values():
        for family in families:
            if family.samples:
                total = sum(sample.value for sample in family.samples)
                values.setdefault(family.name, []).append(total)
    return [
        MetricRow(name, max(each) if name in GREATEST else sum(each))
        for name, each in values.items()
    ]


def status_of(statuses: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The status of all out of that of each."""
    return _merged(list(statuses), greatest=False)


def _merged(parts: list[Mapping[str, Any]], *, greatest: bool) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if part.get(name) is not None]
        is_greatest = greatest or name in _GREATEST_PARTS
        first = values[0] if values else None
        if isinstance(first, dict):
            merged[name] = _merged(values, greatest=is_greatest)
        elif isinstance(first, bool):
            merged[name] = any(values)
        elif isinstance(first, int | float):
            total = max(values) if is_greatest else sum(values)
            merged[name] = round(total, 3) if isinstance(total, float) else total
        else:
            merged[name] = first
    return merged


def listeners_of(reports: Iterable[BrokerReport]) -> dict[str, ListenerReport]:
    """The listeners: one accepts if it does in every worker that has it."""
    merged: dict[str, ListenerReport] = {}
    for report in reports:
        for name, each in report.listeners.items():
            found = merged.get(name)
            merged[name] = ListenerReport(
                each.url if found is None else found.url,
                each.accepting and (found is None or found.accepting),
                each.connections + (0 if found is None else found.connections),
            )
    return merged
