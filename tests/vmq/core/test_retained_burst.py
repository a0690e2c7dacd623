"""Retained messages on their way to a new subscriber."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import PINGREQ_BYTES, PUBLISH, SUBACK, subscribe_packet
from tests.vmq.support import House, keep_retained, read_on, take_numbers
from vmq.core.retained_burst import Bursts, allowance_for
from vmq.mqtt.message import Message


def test_a_burst_is_sent_in_steps(house: House) -> None:
    keep_retained(house, 250)
    client = house.client("s")
    house.patient = True
    client.subscribe(("r/#", 0))
    steps = [len(client.take())]
    while house.woken:
        house.drain()
        steps.append(len(client.take()))
    assert steps == [100, 100, 50]


def test_a_burst_is_no_part_of_the_limits(house: House) -> None:
    house.options.max_online_messages = 2
    keep_retained(house, 50)
    client = house.client("s")
    client.block()
    client.subscribe(("r/#", 0))
    assert client.queue.waiting() == 0
    client.unblock()
    assert sorted(take_numbers(client)) == list(range(50))
    assert client.queue.dropped == 0


def test_what_is_published_between_two_steps_of_a_burst_comes_behind_it(house: House) -> None:
    house.options.max_inflight_messages = 0
    keep_retained(house, 250, qos=1)
    client = house.client("s")
    house.patient = True
    client.subscribe(("r/#", 1))
    house.publish("r/7", b"1000", 1)
    house.settle()
    sent = take_numbers(client)
    assert len(sent) == 251
    assert sent[-1] == 1000


def test_bursts_that_nobody_reads_are_bounded(house: House) -> None:
    keep_retained(house, 100)
    client = house.client("s")
    client.block()
    for _ in range(500):
        client.subscribe(("r/#", 0))
    assert client.queue.burst is not None
    assert client.queue.burst.unsent == 100
    client.unblock()
    assert sorted(take_numbers(client)) == list(range(100))


def test_the_bursts_of_a_durable_session_are_bounded(durable: House) -> None:
    durable.options.max_online_messages = durable.options.max_offline_messages = 1000
    keep_retained(durable, 100, qos=1)
    client = durable.client("s", clean=False)
    for _ in range(50):
        client.subscribe(("r/#", 1))
        client.take()
    assert client.queue.waiting() == allowance_for(100)
    assert client.queue.dropped == 50 * 100 - 20 - allowance_for(100)


def test_retained_messages_pass_the_limits_of_a_durable_queue(durable: House) -> None:
    durable.options.max_online_messages = 2
    keep_retained(durable, 100, qos=1)
    client = durable.client("s", clean=False)
    for number in range(100):
        client.send(subscribe_packet(1, (f"r/{number}", 1)))
    assert client.queue.dropped == 0
    sent = [packet for packet in client.take() if packet.type == PUBLISH]
    client.acknowledge(*sent)
    assert sorted([*(int(packet.payload) for packet in sent), *read_on(client)]) == list(range(100))


def test_a_burst_of_a_subscription_that_ends_goes_with_it(house: House) -> None:
    keep_retained(house, 5)
    client = house.client("s")
    client.block()
    client.subscribe(("r/#", 0), ("r/1", 0))
    left = []
    for topic_filter in ("r/#", "r/1"):
        client.unsubscribe(topic_filter)
        burst = client.queue.burst
        left.append(0 if burst is None else burst.unsent)
    assert left == [1, 0]
    client.unblock()
    client.ping()
    assert client.queue.fast


def test_many_filters_that_nobody_reads_end_the_connection(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        house.publish(f"a/b/c/{number}", b"x", 0, retain=True)
    words = product("a+", "b+", "c+", "+#")
    client, other = house.client("s"), house.client("other")
    client.block()
    with caplog.at_level("INFO", "vmq.session"):
        client.send(subscribe_packet(1, *(("/".join(each), 0) for each in words)), PINGREQ_BYTES)
    assert client.is_closed()
    assert [packet.type for packet in client.take()] == [SUBACK]
    assert house.core.counters.retain_bursts_refused == 1
    assert "too many retained messages wait unread" in caplog.text
    assert "s" not in house.registry.subscribers
    other.ping()


FILTERS = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(
        st.one_of(st.tuples(FILTERS, st.integers(0, 4), st.booleans()), st.sampled_from(["step"]))
    )
)
def test_bursts_against_a_plain_list(acts: list[tuple[str, int, bool] | str]) -> None:
    bursts = Bursts()
    expected: list[tuple[str, Message]] = []
    for act in acts:
        if isinstance(act, str):
            if expected:
                burst = bursts.first()
                topic_filter, message = expected.pop(0)
                assert burst.topic_filter == topic_filter
                assert burst.messages[burst.position] is message
                bursts.step(burst)
        else:
            topic_filter, count, more = act
            messages = [Message(b"t", b"%d" % number, 0, True) for number in range(count)]
            if not more:
                expected = [each for each in expected if each[0] != topic_filter]
                bursts.drop(topic_filter)
            places = [place for place, each in enumerate(expected) if each[0] == topic_filter]
            place = places[-1] + 1 if places else len(expected)
            expected[place:place] = [(topic_filter, message) for message in messages]
            if messages:
                bursts.add(topic_filter, messages, 1)
        assert bursts.unsent == len(expected)
        assert [message for message, _ in bursts.rest()] == [message for _, message in expected]
