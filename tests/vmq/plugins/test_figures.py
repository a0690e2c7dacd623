"""The figures of plugins as metrics: labels, and limits to their number."""

from collections.abc import Iterator, Mapping

import pytest
from vmq_hooks.labels import MAX_SAMPLES, OTHERS

from vmq.plugins.figures import families
from vmq.plugins.guard import PluginGuard
from vmq.plugins.handle import PluginCounters, PluginGauge
from vmq.runtime.metrics import Sample


def samples(counters: Mapping[str, PluginCounters], name: str) -> tuple[Sample, ...]:
    guards = {plugin: PluginGuard(plugin) for plugin in counters}
    return next(each.samples for each in families(guards, counters) if each.name == name)


def test_counters_of_one_name_are_told_apart_by_their_labels() -> None:
    one, two = PluginCounters(), PluginCounters()
    one.get("asked", "Asked.", {"b": "x", "a": "1"}).add(2)
    one.get("asked", "Asked.", {"a": "1", "b": "x"}).add()
    one.get("asked", "Asked.", {"a": "2", "b": "x"}).add()
    two.get("asked", "Asked.", None).add(5)
    assert samples({"one": one, "two": two}, "vmq_plugin_asked") == (
        Sample((("plugin", "one"), ("a", "1"), ("b", "x")), 3),
        Sample((("plugin", "one"), ("a", "2"), ("b", "x")), 1),
        Sample((("plugin", "two"),), 5),
    )


def test_labels_out_of_what_clients_send_fill_nothing() -> None:
    counters = PluginCounters()
    for number in range(3 * MAX_SAMPLES):
        counters.get("seen", "Seen.", {"client": f"c{number}"}).add()
    counters.get("seen", "Seen.", {"client": "c0"}).add()
    counters.get("plain", "No labels.", None).add()
    found = dict(samples({"p": counters}, "vmq_plugin_seen"))
    assert len(found) == MAX_SAMPLES + 1
    assert found[("plugin", "p"), ("client", OTHERS)] == 2 * MAX_SAMPLES
    assert found[("plugin", "p"), ("client", "c0")] == 2
    assert samples({"p": counters}, "vmq_plugin_plain")[0].value == 1


@pytest.mark.parametrize("labels", [{"a b": "1"}, {"plugin": "x"}, None, GeneratorExit()])
def test_a_gauge_that_fails_or_has_bad_labels_or_too_many_is_left_out_and_told(
    labels: dict[str, str] | BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> Iterator[tuple[Mapping[str, str], float]]:
        if isinstance(labels, BaseException):
            raise labels
        for number in range(MAX_SAMPLES + 1):
            yield labels if labels is not None else {"n": str(number)}, 1.0

    gauges = [("bad", PluginGauge("p", "Bad.", read)), ("good", PluginGauge("p", "", list))]
    names = [each.name for each in families({"p": PluginGuard("p")}, {}, gauges)]
    assert "vmq_plugin_bad" not in names
    assert "its gauge bad cannot be read" in caplog.text
