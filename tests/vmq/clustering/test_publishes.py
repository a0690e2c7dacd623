"""Publishes between nodes: there and back, and only what a client could have made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.mqtt.strategies import TOPICS
from vmq.clustering.publishes import Publish, flags_of
from vmq.clustering.wire import WireError, decode, encode

PUBLISHES = st.builds(
    lambda topic, payload, qos, retain: Publish(
        topic.encode(), payload, flags_of(qos, retain), "m", "$share/g/#"
    ),
    TOPICS,
    st.binary(max_size=10),
    st.integers(0, 2),
    st.booleans(),
)


@given(PUBLISHES)
def test_a_publish_goes_there_and_back(publish: Publish) -> None:
    assert decode(encode(publish)) == publish


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [True, False])
def test_flags_say_qos_and_retain(qos: int, retain: bool) -> None:
    publish = Publish(b"t", b"", flags_of(qos, retain))
    assert (publish.qos, publish.retain) == (qos, retain)


@pytest.mark.parametrize(
    ("publish", "why"),
    [
        (Publish(b"", b"", 0), "length >= 1"),
        (Publish(b"a/#", b"", 0), "topic name"),
        (Publish(b"\xff", b"", 0), "topic name"),
        (Publish(b"t", b"", 3), "QoS 3"),
        (Publish(b"t", b"", 7), "<= 6"),
        (Publish(b"t", b"", 0, group="t"), "group"),
    ],
)
def test_what_no_client_could_have_published_is_refused(publish: Publish, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode(encode(publish))
