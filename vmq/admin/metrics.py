"""Metrics as rows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from vmq.admin.listing import Listing, Selection
from vmq.runtime.metrics import Metrics

if TYPE_CHECKING:
    from vmq.ports import BrokerView


class MetricRow(Struct, frozen=True):
    """One metric."""

    name: str
    value: float


def list_metrics(broker: "BrokerView", selection: Selection) -> Listing[MetricRow]:
    """Counters and gauges, those of plugins included, labels summed up; histograms are for /metrics."""
    return Listing(MetricRow, _rows(broker.metrics), selection)


def _rows(metrics: Metrics) -> Iterator[MetricRow]:
    for values in (metrics.counters(), metrics.gauges()):
        for name, value in values.items():
            yield MetricRow(name, value)
    for family in metrics.others():
        if family.samples:
            yield MetricRow(family.name, sum(sample.value for sample in family.samples))
