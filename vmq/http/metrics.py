"""`/metrics`: the broker's figures as Prometheus reads them."""

from collections.abc import Iterable, Iterator

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from vmq.http.keys import BROKER
from vmq.runtime.metrics import Family, Metrics


class BrokerCollector(Collector):
    """Gives the figures of one broker to the Prometheus library."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Every metric with its values of now."""
        for family in self.metrics.families():
            yield to_prometheus(family)


def to_prometheus(family: Family) -> Metric:
    """A metric in the library's form."""
    if family.kind == "histogram":
        names = [name for name, _ in family.histograms[0][0]]
        found = HistogramMetricFamily(family.name, family.help, labels=names)
        for labels, histogram in family.histograms:
            values = [value for _, value in labels]
            found.add_metric(values, buckets_of(histogram.cumulative()), histogram.total)
        return found
    metric = Metric(family.name, family.help, family.kind)
    name = family.name + "_total" if family.kind == "counter" else family.name
    for sample in family.samples:
        metric.add_sample(name, dict(sample.labels), sample.value)
    return metric


def buckets_of(cumulative: Iterable[tuple[float, int]]) -> list[tuple[str, float]]:
    """Buckets of a histogram in the library's form."""
    return [
        ("+Inf" if bound == float("inf") else repr(bound), float(count))
        for bound, count in cumulative
    ]


async def show_metrics(request: web.Request) -> web.Response:
    """The Prometheus text."""
    text = generate_latest(BrokerCollector(request.app[BROKER].metrics))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [web.get("/metrics", show_metrics)]
