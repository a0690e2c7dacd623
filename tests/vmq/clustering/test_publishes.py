"""Publishes between nodes: there and back, and none twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.mqtt.strategies import TOPICS
from vmq.clustering.publishes import Publish, PublishError, Taken, decode, encode, flags_of

NUMBERED = st.builds(
    lambda topic, payload, qos, retain, number: Publish(
        topic.encode(), payload, flags_of(qos, retain), "m", "$share/g/#", 1, number
    ),
    TOPICS,
    st.binary(max_size=10),
    st.integers(1, 2),
    st.booleans(),
    st.integers(1, 1 << 40),
)


@given(NUMBERED)
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
        (Publish(b"t", b"", 0, number=1, life=1), "numbers belong"),
        (Publish(b"t", b"", 1), "numbers belong"),
        (Publish(b"t", b"", 2, number=1), "numbers belong"),
    ],
)
def test_what_no_client_could_have_published_is_refused(publish: Publish, why: str) -> None:
    with pytest.raises(PublishError, match=why):
        decode(msgspec.msgpack.encode(publish))


@given(st.binary(max_size=30))
def test_other_bytes_are_refused_and_nothing_else_happens(raw: bytes) -> None:
    try:
        decode(raw)
    except PublishError as error:
        assert str(error).startswith("no publish: ")


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8), st.booleans()), max_size=20))
def test_each_number_is_taken_once_whatever_is_repeated(
    steps: list[tuple[int, int, bool]],
) -> None:
    """A channel hands on numbers in order; after a restart of either end it begins anew somewhere before."""
    taken = Taken()
    got: list[tuple[int, int]] = []
    life, last = 1, 0
    for count, back, is_new_life in steps:
        if is_new_life:
            life, last = life + 1, 0
        else:
            taken = Taken(taken.known)  # the receiver starts again, with what it has stored
            last = max(last - back, 0)
        for number in range(last + 1, last + count + 1):
            publish = Publish(b"t", b"", 1, life=life, number=number)
            if taken.is_new("a", publish):
                got.append((life, number))
        last += count
    assert got == sorted(set(got))
    assert taken.known.get("a", (0, 0)) == max(got, default=(0, 0))


def test_origins_do_not_mix_and_are_forgotten() -> None:
    taken = Taken({"a": (1, 5)})
    publish = Publish(b"t", b"", 1, life=1, number=5)
    assert not taken.is_new("a", publish)
    assert taken.is_new("b", publish)
    taken.forget("a")
    assert taken.is_new("a", publish)
