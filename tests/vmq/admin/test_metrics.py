"""Metrics as rows."""

from vmq.admin.listing import Selection
from vmq.admin.metrics import MetricRow, list_metrics
from vmq.broker import Broker
from vmq.runtime.metrics import Family, Sample


async def test_what_plugins_count_is_shown_with_its_labels_summed_up(node: Broker) -> None:
    samples = (Sample((("plugin", "a"),), 2), Sample((("plugin", "b"),), 3))
    node.metrics.others = lambda: [Family("vmq_plugin_refused", "counter", "Refused.", samples)]
    chosen = Selection(where='name ~ "plugin"')
    assert await list_metrics(node, chosen).rows() == [MetricRow("vmq_plugin_refused", 5)]
