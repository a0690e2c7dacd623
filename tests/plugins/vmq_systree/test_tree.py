"""Figures as topics and payloads."""

from vmq_hooks.testing import Figure
from vmq_systree.tree import messages, number


def test_the_words_of_a_name_are_levels() -> None:
    figures = [Figure("mqtt_publish_received", 7), Figure("uptime_seconds", 1.5)]
    assert list(messages("$SYS", "vmq@host", figures)) == [
        ("$SYS/vmq@host/mqtt/publish/received", b"7"),
        ("$SYS/vmq@host/uptime/seconds", b"1.5"),
    ]


def test_labels_are_added_up() -> None:
    figures = [
        Figure("mqtt_connack_sent", 2, {"return_code": "success"}),
        Figure("mqtt_connack_sent", 3, {"return_code": "not_authorized"}),
    ]
    assert list(messages("$SYS", "n", figures)) == [("$SYS/n/mqtt/connack/sent", b"5")]


def test_a_nodes_name_is_one_level() -> None:
    [(topic, _)] = messages("a/b", "x/y+#", [Figure("z", 0)])
    assert topic == "a/b/x_y__/z"


def test_numbers() -> None:
    found = [number(value) for value in (0, -3, 2.0, 1e15, 0.25, 1e-9)]
    assert found == ["0", "-3", "2", "1000000000000000", "0.25", "1e-09"]
