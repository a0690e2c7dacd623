"""Metrics as rows."""

from tests.support.peer import Peer
from vmq.admin.listing import Selection
from vmq.admin.metrics import MetricRow, list_metrics
from vmq.broker import Broker
from vmq.runtime.metrics import Family, Sample


async def test_the_counters_are_shown(node: Broker) -> None:
    me = Peer(node.registry(), "me")
    me.publish("t")
    rows = {row.name: row.value for row in await list_metrics(node, Selection(limit=0)).rows()}
    assert rows["mqtt_connect_received"] == 1
    assert rows["mqtt_publish_received"] == 1
    assert rows["queue_message_drop"] == 0


async def test_gauges_are_shown_and_filtered(node: Broker) -> None:
    Peer(node.registry(), "me")
    chosen = Selection(where='name = "queue_processes"')
    assert await list_metrics(node, chosen).rows() == [MetricRow("queue_processes", 1)]


async def test_what_plugins_count_is_shown_with_its_labels_summed_up(node: Broker) -> None:
    samples = (Sample((("plugin", "a"),), 2), Sample((("plugin", "b"),), 3))
    node.metrics.others = lambda: [Family("vmq_plugin_refused", "counter", "Refused.", samples)]
    chosen = Selection(where='name ~ "plugin"')
    assert await list_metrics(node, chosen).rows() == [MetricRow("vmq_plugin_refused", 5)]
