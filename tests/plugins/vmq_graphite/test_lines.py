"""Figures as lines of Graphite's plaintext protocol."""

from vmq_graphite.lines import snapshot
from vmq_hooks.testing import Figure

FIGURES = [
    Figure("mqtt_connack_sent", 2, {"return_code": "success"}),
    Figure("mqtt_connack_sent", 3, {"return_code": "not authorized"}),
    Figure("uptime_seconds", 1.5),
]


def lines(prefix: str, node: str, *, labels: bool = False) -> list[str]:
    data = snapshot(prefix, node, FIGURES, 1_700_000_000, labels=labels)
    assert data.endswith(b"\n")
    return data.decode().splitlines()


def test_the_words_of_a_name_are_parts_of_a_path() -> None:
    assert lines("key.vmq", "vmq@host.example") == [
        "key.vmq.vmq_host_example.mqtt.connack.sent 5 1700000000",
        "key.vmq.vmq_host_example.uptime.seconds 1.5 1700000000",
    ]


def test_without_a_prefix_the_node_is_first() -> None:
    assert lines("", "n")[1] == "n.uptime.seconds 1.5 1700000000"


def test_labels_may_be_tags() -> None:
    assert lines("", "n", labels=True) == [
        "n.mqtt.connack.sent;return_code=success 2 1700000000",
        "n.mqtt.connack.sent;return_code=not_authorized 3 1700000000",
        "n.uptime.seconds 1.5 1700000000",
    ]
