"""`/metrics`, read as Prometheus reads it."""

import re

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from tests.support.wire import Wire
from tests.vmq.http.conftest import get
from vmq.core.retained import MESSAGE_SIZE
from vmq.http.metrics import to_prometheus
from vmq.runtime.histogram import Histogram
from vmq.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, Family, Sample
from vmq.testing.process import BrokerProcess


def scrape(broker: BrokerProcess) -> str:
    answer = get(broker.http, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return answer.body.decode()


def values(text: str) -> dict[str, float]:
    """Every sample without labels by name."""
    families = text_string_to_metric_families(text)
    return {
        each.name: each.value for family in families for each in family.samples if not each.labels
    }


def test_every_metric_is_there_with_help_and_type(web_broker: BrokerProcess) -> None:
    text = scrape(web_broker)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == set(COUNTERS) | set(GAUGES) | set(HISTOGRAMS)
    for name, family in families.items():
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}
        assert family.samples, name
    explained = set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    typed = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    sampled = {re.split(r"[ {]", line)[0] for line in text.splitlines() if line[0] != "#"}
    assert explained == typed
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in sampled} == typed


def test_figures_move_with_what_happens(web_broker: BrokerProcess) -> None:
    before = values(scrape(web_broker))
    wire = Wire.connected(web_broker.tcp, "metrics-1", clean=False)
    wire.subscribe(("metrics/#", 1))
    wire.publish("metrics/a", b"kept", qos=1, retain=True)
    wire.acknowledge(wire.expect_publish("metrics/a", b"kept", qos=1))
    after = values(scrape(web_broker))
    moved = {name: after[name] - before[name] for name in after}
    once = (
        *("mqtt_connect_received_total", "mqtt_publish_received_total", "mqtt_publish_sent_total"),
        *("active_mqtt_connections", "total_active_connections", "queue_processes"),
        *("router_subscriptions", "retain_messages"),
    )
    assert {name: moved[name] for name in once} == dict.fromkeys(once, 1)
    assert moved["retain_memory"] == len("metrics/a") + len("kept") + MESSAGE_SIZE
    assert moved["store_commit_seconds_count"] > 0
    assert moved["process_cpu_seconds_total"] >= 0
    wire.close()


def test_a_connection_that_ended_is_not_active_any_more(web_broker: BrokerProcess) -> None:
    before = values(scrape(web_broker))["active_mqtt_connections"]
    wire = Wire.connected(web_broker.tcp, "metrics-2")
    wire.send(b"\x00\x00")  # breaks the protocol
    wire.expect_closed()
    wire.close()
    assert values(scrape(web_broker))["active_mqtt_connections"] <= before


def test_labels_and_histograms_reach_the_library() -> None:
    labelled = Family("a", "counter", "Help.", (Sample((("kind", "x"),), 3.0),))
    (sample,) = to_prometheus(labelled).samples
    assert (sample.name, sample.labels, sample.value) == ("a_total", {"kind": "x"}, 3.0)
    histogram = Histogram()
    histogram.observe(2.0)
    metric = to_prometheus(
        Family("b", "histogram", "Help.", histograms=(((("c", "d"),), histogram),))
    )
    assert isinstance(metric, HistogramMetricFamily)
    by_name = {(each.name, each.labels.get("le")): each.value for each in metric.samples}
    assert by_name["b_bucket", "1.0"] == 0
    assert by_name["b_bucket", "+Inf"] == by_name["b_count", None] == 1
    assert by_name["b_sum", None] == 2.0
