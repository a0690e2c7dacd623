"""The dashboard and the sample for Prometheus name what the broker really gives out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.vmq.runtime.test_metrics import make
from vmq.config.options import Config
from vmq.http.metrics import to_prometheus

CONFIG = Path(__file__).parents[2] / "config"
DASHBOARD: dict[str, Any] = json.loads((CONFIG / "grafana-dashboard.json").read_text("utf-8"))
PROMETHEUS = (CONFIG / "prometheus.yml").read_text("utf-8")
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], each["expr"]) for panel in PANELS for each in panel["targets"]]

# Words of PromQL, and labels, that are no names of metrics.
WORDS = {"sum", "rate", "min", "count", "by", "histogram_quantile", "label_values", "up", "and"}


def samples() -> dict[str, str]:
    """The name of each sample that /metrics has, and the type of its metric."""
    metrics = [to_prometheus(family) for family in make().families()]
    return {sample.name: metric.type for metric in metrics for sample in metric.samples}


def named(query: str) -> set[str]:
    """The metrics in an expression of PromQL."""
    bare = re.sub(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"|by \([^)]*\)', " ", query)
    return set(re.findall(r"\b[a-z_][a-z0-9_]*[a-z0-9]\b", bare)) - WORDS


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_panel_asks_for_metrics_that_exist(title: str, query: str) -> None:
    given = samples()
    found = named(query)
    assert found, f"{title} asks for nothing"
    assert found <= set(given)
    for name in found:
        # A rate of a gauge is nonsense, and a counter without a rate shows the age of the broker.
        assert (given[name] == "gauge") == ("rate(" not in query), title


def test_what_an_operator_looks_for_first_is_shown() -> None:
    shown = set().union(*(named(query) for _, query in QUERIES))
    assert shown >= {
        "event_loop_lag_seconds_bucket",
        "store_commit_seconds_bucket",
        "queue_message_drop_total",
        "total_active_connections",
        "publishers_paused_total",
        "rate_limited_total",
        "flapping_refused_total",
        "memory_refused_total",
        "subscriptions_refused_total",
        "retain_refused_total",
        "stalled_clients_total",
    }


def test_the_panels_do_not_lie_on_each_other() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, panel["title"]
                assert x < 24
                cells.add((x, y))
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_the_dashboard_lets_one_choose_the_broker() -> None:
    (_, instance) = DASHBOARD["templating"]["list"]
    assert named(instance["definition"]) - {"instance"} <= set(samples())
    assert all('instance=~"$instance"' in query for _, query in QUERIES)


def test_prometheus_is_sent_where_the_shipped_listener_is() -> None:
    endpoint = Config().listeners["http"].endpoint
    assert f'targets: ["{endpoint.host}:{endpoint.port}"]' in PROMETHEUS
    assert "metrics_path: /metrics\n" in PROMETHEUS


def test_the_alerts_that_it_names_have_their_metrics() -> None:
    rules = re.findall(r"^#   (\S.*?)  +\S", PROMETHEUS, re.MULTILINE)
    assert len(rules) == 5
    for rule in rules:
        assert named(rule) <= set(samples())
