"""The broker's figures: their names, meanings and sources."""

import random
import re
from collections.abc import Mapping

import plyvel
import pytest

from vmq.core.context import Core, CoreOptions, Counters
from vmq.core.registry import Registry
from vmq.runtime.histogram import Histogram
from vmq.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, Metrics
from vmq.store.store import Store

ALL = {**COUNTERS, **GAUGES, **HISTOGRAMS}


def make(store: Store | None = None, connections: Mapping[str, int] | None = None) -> Metrics:
    core = Core(CoreOptions(), store, lambda: 0.0, lambda: 0.0, random.Random(1).randrange)
    core.counters.queue_message_drop = 7
    registry = Registry(core, lambda _queue: None, lambda _session: None)
    lags = Histogram()
    lags.observe(0.002)
    open_now = dict(connections or {})
    return Metrics(
        core, lambda: [registry], Histogram(), lags, lambda: 0.5, lambda: 3.0, lambda: open_now
    )


def test_every_counter_of_the_core_is_shown() -> None:
    kept = {name for name in dir(Counters()) if not name.startswith("_")}
    assert kept == set(COUNTERS)


def test_a_metric_has_a_plain_name_and_a_meaning() -> None:
    for name, meaning in ALL.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert re.fullmatch(r"[A-Z0-9].*\.", meaning), name


def test_a_name_is_used_once() -> None:
    assert len(ALL) == len(COUNTERS) + len(GAUGES) + len(HISTOGRAMS)


def test_every_metric_is_given_with_its_values() -> None:
    families = {family.name: family for family in make().families()}
    assert set(families) == set(ALL)
    assert families["queue_message_drop"].samples[0].value == 7
    assert families["event_loop_lag_recent_seconds"].samples[0].value == 0.5
    ((_, lags),) = families["event_loop_lag_seconds"].histograms
    assert lags.count == 1
    for family in families.values():
        assert (family.kind == "histogram") == bool(family.histograms)
        assert bool(family.samples) != bool(family.histograms)


def test_connack_is_counted_by_return_code() -> None:
    (family,) = [each for each in make().families() if each.name == "mqtt_connack_sent"]
    codes = [dict(sample.labels)["return_code"] for sample in family.samples]
    assert (codes[0], codes[5], len(codes)) == ("success", "not_authorized", 6)


def test_the_process_is_seen() -> None:
    gauges = make().gauges()
    assert set(gauges) == set(GAUGES)
    assert gauges["process_cpu_seconds"] > 0
    assert gauges["process_resident_memory_bytes"] > 1_000_000
    assert gauges["uptime_seconds"] == 3


def test_connections_are_counted_by_kind_and_together() -> None:
    gauges = make(connections={"mqtt": 2, "mqttws": 3}).gauges()
    assert gauges["active_mqtt_connections"] == 2
    assert gauges["active_mqttws_connections"] == 3
    assert gauges["total_active_connections"] == 5


class ClosedDatabase:
    def approximate_size(self, _start: bytes, _stop: bytes) -> int:
        raise RuntimeError("Database is closed")


def test_a_closed_store_has_no_size_but_says_that_it_fails() -> None:
    store = Store(ClosedDatabase(), "os", lambda: None)
    store.failing = True
    gauges = make(store).gauges()
    assert (gauges["store_bytes"], gauges["store_failing"]) == (0, 1)


def test_the_store_is_measured(tmp_path_factory: pytest.TempPathFactory) -> None:
    database = plyvel.DB(str(tmp_path_factory.mktemp("store")), create_if_missing=True)
    try:
        store = Store(database, "os", lambda: None)
        store.put(b"key", b"value")
        gauges = make(store).gauges()
    finally:
        database.close()
    assert gauges["store_uncommitted_writes"] == 1
    assert gauges["store_memory_bytes"] > 0
    assert gauges["store_failing"] == 0
