"""Metrics as rows, from whoever has them."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from vmq.admin.listing import Listing, Selection

if TYPE_CHECKING:
    from vmq.broker import Broker

#: Gives name and value of every metric.
Provider = Callable[[], Iterable[tuple[str, float]]]


class MetricRow(Struct, frozen=True):
    """One metric."""

    name: str
    value: float


def list_metrics(
    broker: "Broker", selection: Selection, provider: Provider | None = None
) -> Listing[MetricRow]:
    """The metrics of a provider; without one, the core's counters."""
    pairs = counters_of(broker) if provider is None else provider()
    return Listing(MetricRow, (MetricRow(name, value) for name, value in pairs), selection)


def counters_of(broker: "Broker") -> list[tuple[str, float]]:
    """The core's counters, by name."""
    counters = broker.registry.core.counters
    found: list[tuple[str, float]] = []
    for name in dir(counters):  # a compiled class has no __dict__
        value = None if name.startswith("_") else getattr(counters, name)
        if isinstance(value, int | float):
            found.append((name, value))
    return found
