"""Runs of PUBLISH packets at QoS 0 on one topic."""

from tests.support.wire import publish_packet
from vmq.mqtt.runs import payloads_of, split_run


def test_a_run_is_split_into_its_messages() -> None:
    messages = split_run(publish_packet("a", b"1") + publish_packet("a", b""), b"a")
    found = [(each.topic, each.payload, each.qos) for each in messages]
    assert found == [(b"a", b"1", 0), (b"a", b"", 0)]


def test_packets_of_a_run_may_have_any_length() -> None:
    payloads = [b"", b"x" * 200, b"y" * 70_000, b"z"]
    assert (
        payloads_of(b"".join(publish_packet("a/b", each) for each in payloads), b"a/b") == payloads
    )
