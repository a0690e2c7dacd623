"""Publishes between nodes: there and back, and only what a client could have made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import publish_packet
from tests.vmq.mqtt.strategies import TOPICS
from vmq.clustering.messages.codec import WireError, decode, encode
from vmq.clustering.messages.publishes import RemotePublish, RemotePublishRun, flags_of

PUBLISHES = st.builds(
    lambda topic, payload, qos, retain: RemotePublish(
        topic.encode(), payload, flags_of(qos, retain), "m", "$share/g/#"
    ),
    TOPICS,
    st.binary(max_size=10),
    st.integers(0, 2),
    st.booleans(),
)


@given(PUBLISHES)
def test_a_publish_goes_there_and_back(publish: RemotePublish) -> None:
    assert decode(encode(publish)) == publish


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [True, False])
def test_flags_say_qos_and_retain(qos: int, retain: bool) -> None:
    publish = RemotePublish(b"t", b"", flags_of(qos, retain))
    assert (publish.qos, publish.retain) == (qos, retain)


@pytest.mark.parametrize(
    ("publish", "why"),
    [
        (RemotePublish(b"", b"", 0), "length >= 1"),
        (RemotePublish(b"a/#", b"", 0), "topic name"),
        (RemotePublish(b"\xff", b"", 0), "topic name"),
        (RemotePublish(b"t", b"", 3), "QoS 3"),
        (RemotePublish(b"t", b"", 7), "<= 6"),
        (RemotePublish(b"t", b"", 0, group="t"), "group"),
    ],
)
def test_what_no_client_could_have_published_is_refused(publish: RemotePublish, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode(encode(publish))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), TOPICS)
def test_a_run_goes_there_and_back(payloads: list[bytes], topic: str) -> None:
    frames = b"".join(publish_packet(topic, each) for each in payloads)
    run = RemotePublishRun(topic.encode(), frames, len(payloads), "m")
    assert decode(encode(run)) == run


@pytest.mark.parametrize("payload", [b"", b"x" * 60, b"x" * 300])
def test_a_long_run_of_packets_of_one_length_is_looked_at_whole(payload: bytes) -> None:
    one = publish_packet("t", payload)
    frames = bytearray(one * 200)
    assert decode(encode(run := RemotePublishRun(b"t", bytes(frames), 200))) == run
    head = len(one) - len(payload)
    for at in range(head):
        for packet in (0, 1, 100, 199):
            broken = bytearray(frames)
            broken[packet * len(one) + at] ^= 1
            with pytest.raises(WireError, match="no run of so many"):
                decode(encode(RemotePublishRun(b"t", bytes(broken), 200)))
    for count in (199, 201, 400):
        with pytest.raises(WireError, match="no run of so many"):
            decode(encode(RemotePublishRun(b"t", bytes(frames), count)))
    if payload:  # which may be anything
        frames[len(one) * 100 + head] ^= 1
        assert decode(encode(run := RemotePublishRun(b"t", bytes(frames), 200))) == run


def test_a_run_may_begin_with_a_long_packet() -> None:
    frames = publish_packet("t", b"x" * 20_000) + publish_packet("t", b"y")
    run = RemotePublishRun(b"t", frames, 2)
    assert decode(encode(run)) == run


BAD_RUNS = (
    b"\x30\x03\x00\x01t" + b"\x30\x03\x00\x01u",  # two topics
    b"\x32\x05\x00\x01t\x00\x01",  # QoS 1
    b"\x31\x03\x00\x01t",  # RETAIN
    b"\x30\x03\x00\x01u",  # another topic
    b"\x30\x02\x00\x01t",  # a topic that ends behind its packet
    b"\x30\x83\x00\x00\x01t",  # a length spelled the long way
    b"\x30\x04\x00\x01t",  # cut
    b"\x30\xff\xff\xff\xff\x01",  # no length
    b"\x30\x03\x00\x01t\xc0\x00",  # something behind it
    b"\x30\x03\x00\x01t" + b"\x30\x03\x00\x01t",  # two, not one
    b"",
)


@pytest.mark.parametrize("frames", BAD_RUNS)
def test_a_run_that_is_none_is_refused(frames: bytes) -> None:
    with pytest.raises(WireError, match="its packets are no run of so many"):
        decode(encode(RemotePublishRun(b"t", frames, 1)))


def test_a_run_on_a_topic_that_is_none_is_refused() -> None:
    with pytest.raises(WireError, match="its topic is none"):
        decode(encode(RemotePublishRun(b"#", publish_packet("#", b""), 1)))
