"""What is counted of plugins, as metrics."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from vmq_hooks.breaker import State
from vmq_hooks.labels import MAX_SAMPLES, check_labels

from vmq.plugins.guard import PluginGuard
from vmq.plugins.handle import PluginCounters, PluginGauge
from vmq.runtime.metrics import Family, Sample

log = logging.getLogger("vmq.plugins")

#: Counted by plugin and hook.
BY_HOOK: Final[Mapping[str, tuple[str, str]]] = {
    "plugin_hook_accepted": ("accepted", "Verdicts of a hook that accept."),
    "plugin_hook_refused": ("refused", "Verdicts of a hook that refuse."),
    "plugin_hook_errors": ("errors", "Calls of a hook that raised or answered what is no answer."),
    "plugin_hook_timeouts": ("timeouts", "Verdicts that did not come within the deadline."),
    "plugin_hook_skipped": ("skipped", "Calls not made because the plugin's breaker was open."),
    "plugin_hook_dropped": ("dropped", "Notices left out because too many waited for the plugin."),
}


def families(
    guards: Mapping[str, PluginGuard],
    counters: Mapping[str, PluginCounters],
    gauges: Iterable[tuple[str, PluginGauge]] = (),
) -> Iterator[Family]:
    """The metrics of plugins; those of which there is nothing to tell are left out."""
    for name, (attribute, text) in BY_HOOK.items():
        samples = tuple(
            Sample((("plugin", plugin), ("hook", hook)), number)
            for plugin, guard in guards.items()
            for hook, number in getattr(guard, attribute).items()
        )
        if samples:
            yield Family(name, "counter", text, samples)
    if not guards:
        return
    opened = _each(guards, lambda guard: guard.opened)
    yield Family("plugin_breaker_opened", "counter", "Times that a breaker opened.", opened)
    is_open = _each(guards, lambda guard: int(guard.state is not State.CLOSED))
    yield Family("plugin_breaker_open", "gauge", "1 while a plugin's breaker is open.", is_open)
    blocked = _each(guards, lambda guard: guard.blocked)
    text = "Times that a plugin held the event loop up for 0.4 s or longer."
    yield Family("plugin_event_loop_blocked", "counter", text, blocked)
    times = tuple(
        ((("plugin", plugin), ("hook", hook)), histogram)
        for plugin, guard in guards.items()
        for hook, histogram in guard.times.items()
    )
    if times:
        text = "What calls of a hook took; of an async one until it answered."
        yield Family("plugin_hook_seconds", "histogram", text, histograms=times)
    yield from _own(counters)
    yield from _gauges(gauges)


def _each(
    guards: Mapping[str, PluginGuard], value: Callable[[PluginGuard], int]
) -> tuple[Sample, ...]:
    return tuple(Sample((("plugin", name),), value(guard)) for name, guard in guards.items())


def _own(counters: Mapping[str, PluginCounters]) -> Iterator[Family]:
    """The counters that plugins made; one family for those of several plugins with one name."""
    samples: dict[str, list[Sample]] = {}
    texts: dict[str, str] = {}
    for plugin, own in counters.items():
        for each in own:
            texts.setdefault(each.name, each.help)
            labels = (("plugin", plugin), *each.labels)
            samples.setdefault(each.name, []).append(Sample(labels, each.value))
    for name, found in samples.items():
        yield Family(f"vmq_plugin_{name}", "counter", texts[name], tuple(found))


def _gauges(gauges: Iterable[tuple[str, PluginGauge]]) -> Iterator[Family]:
    """The gauges that plugins made, likewise."""
    samples: dict[str, list[Sample]] = {}
    texts: dict[str, str] = {}
    for name, gauge in gauges:
        try:
            read = _read(gauge)
        except BaseException:
            # A plugin's fault; the other figures are still asked for.
            log.exception("plugin %s: its gauge %s cannot be read", gauge.plugin, name)
            continue
        texts.setdefault(name, gauge.help)
        samples.setdefault(name, []).extend(read)
    for name, found in samples.items():
        if found:
            yield Family(f"vmq_plugin_{name}", "gauge", texts[name], tuple(found))


def _read(gauge: PluginGauge) -> list[Sample]:
    """A gauge's samples of now; raises what is wrong with them."""
    found: list[Sample] = []
    for labels, value in gauge.read():
        if len(found) >= MAX_SAMPLES:
            raise ValueError(f"more than {MAX_SAMPLES} samples")
        found.append(Sample((("plugin", gauge.plugin), *check_labels(labels)), float(value)))
    return found
