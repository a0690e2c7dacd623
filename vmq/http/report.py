"""`/report` on the admin socket: all figures of a broker in one answer, for the frontend of several workers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web
from msgspec import Struct

from vmq.http.keys import BROKER
from vmq.http.status import status_of
from vmq.listeners.state import AnyListener
from vmq.runtime.health import Health
from vmq.runtime.metrics import Family, Labels, Sample

if TYPE_CHECKING:
    from vmq.ports import BrokerView

PATH: Final = "/report"


class HistogramReport(Struct, array_like=True):
    """A histogram: its labels, its cumulated buckets, and the sum of what it saw."""

    labels: Labels
    buckets: tuple[tuple[float, int], ...]
    total: float


class FamilyReport(Struct, array_like=True):
    """A metric: its samples, or its histograms."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...] = ()
    histograms: tuple[HistogramReport, ...] = ()


class ListenerReport(Struct, array_like=True):
    """An open listener."""

    url: str
    accepting: bool
    connections: int


class BrokerReport(Struct):
    """A broker's figures, and what `/health` and `/status.json` say of it."""

    families: list[FamilyReport]
    health: Health
    listeners: dict[str, ListenerReport]
    status: dict[str, Any]


def report_of(broker: "BrokerView") -> BrokerReport:
    """The figures of a broker that runs."""
    return BrokerReport(
        [_family(each) for each in broker.metrics.families()],
        broker.condition(),
        reports_of(broker.listeners),
        status_of(broker),
    )


def reports_of(listeners: Mapping[str, AnyListener]) -> dict[str, ListenerReport]:
    """Open listeners by name."""
    return {
        name: ListenerReport(each.url, each.is_open, each.connections)
        for name, each in listeners.items()
    }


def _family(family: Family) -> FamilyReport:
    histograms = tuple(
        HistogramReport(labels, tuple(each.cumulative()), each.total)
        for labels, each in family.histograms
    )
    return FamilyReport(family.name, family.kind, family.help, family.samples, histograms)


async def show_report(request: web.Request) -> web.Response:
    """The report as msgpack, which knows infinity."""
    return web.Response(body=msgspec.msgpack.encode(report_of(request.app[BROKER])))


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [web.get(PATH, show_report)]
