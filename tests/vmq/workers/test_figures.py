import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from vmq.http.report import BrokerReport, FamilyReport, HistogramReport, ListenerReport
from vmq.runtime.health import Health
from vmq.runtime.metrics import Labels, Sample
from vmq.workers.figures import listeners_of, metrics_of, rows_of, status_of

INFINITY = float("inf")


def lag(labels: Labels, received: int) -> HistogramReport:
    return HistogramReport(labels, ((0.1, received), (INFINITY, received)), 0.5)


def families(received: int, retained: int) -> list[FamilyReport]:
    return [
        FamilyReport(
            "connack",
            "counter",
            "CONNACK packets.",
            (Sample((("code", "0"),), received), Sample((("code", "5"),), 1)),
        ),
        FamilyReport("retain_messages", "gauge", "Retained.", (Sample((), retained),)),
        FamilyReport("lag", "histogram", "Lag.", (), (lag((), received),)),
        FamilyReport("hook", "histogram", "Hooks.", (), (lag((("plugin", "p"),), received),)),
    ]


REPORTS = {"1": families(3, 7), "2": families(4, 6)}


class Collected(Collector):
    def collect(self) -> list[Metric]:
        return list(metrics_of(REPORTS))


def test_prometheus_reads_each_worker_under_its_label() -> None:
    text = generate_latest(Collected()).decode()
    read = {family.name: family for family in text_string_to_metric_families(text)}
    values = {
        (
            sample.name,
            sample.labels["worker"],
            sample.labels.get("code") or sample.labels.get("le"),
        ): (sample.value)
        for family in read.values()
        for sample in family.samples
    }
    assert read.keys() == {"connack", "retain_messages", "lag", "hook"}
    assert values["connack_total", "1", "0"] == 3
    assert values["connack_total", "2", "0"] == 4
    assert values["lag_bucket", "2", "+Inf"] == values["lag_count", "2", None] == 4
    assert values["lag_sum", "1", None] == 0.5
    assert text.count("# HELP connack_total") == 1
    assert 'hook_count{plugin="p",worker="2"} 4.0' in text


def test_people_see_sums_and_the_greatest_where_a_sum_means_nothing() -> None:
    found = {row.name: row.value for row in rows_of(REPORTS)}
    assert found == {"connack": 9, "retain_messages": 7}


@pytest.mark.parametrize(
    "name",
    ["cluster_node_up", "cluster_round_trip_seconds", "job_nodes", "job_queue_oldest_seconds"],
)
def test_neither_ages_nor_nodes_are_added_up(name: str) -> None:
    found = {
        worker: [FamilyReport(name, "gauge", "", (Sample((), value),))]
        for worker, value in (("1", 2.0), ("2", 3.0))
    }
    assert [row.value for row in rows_of(found)] == [3.0]


def test_the_status_of_all_has_the_form_of_one() -> None:
    one = {
        "version": "1",
        "compiled": True,
        "connections": {"total": 3},
        "retained": {"messages": 7},
        "store": {"bytes": 5, "failing": False},
        "event_loop": {"lag_p99_seconds": 0.1},
        "rates_per_second": {"received": 1.5},
    }
    other = {
        "version": "1",
        "compiled": True,
        "connections": {"total": 4},
        "retained": {"messages": 6},
        "store": {"bytes": 6, "failing": True},
        "event_loop": {"lag_p99_seconds": None},
        "rates_per_second": {},
    }
    assert status_of([one, other]) == {
        "version": "1",
        "compiled": True,
        "connections": {"total": 7},
        "retained": {"messages": 7},
        "store": {"bytes": 11, "failing": True},
        "event_loop": {"lag_p99_seconds": 0.1},
        "rates_per_second": {"received": 1.5},
    }


def test_a_listener_accepts_if_it_does_wherever_it_is() -> None:
    def report(**listeners: ListenerReport) -> BrokerReport:
        return BrokerReport([], Health([], []), listeners, {})

    merged = listeners_of(
        [
            report(
                tcp=ListenerReport("tcp://h:1", True, 2), unix=ListenerReport("unix:///s", True, 1)
            ),
            report(tcp=ListenerReport("tcp://h:1", False, 3)),
        ]
    )
    assert merged == {
        "tcp": ListenerReport("tcp://h:1", False, 5),
        "unix": ListenerReport("unix:///s", True, 1),
    }
