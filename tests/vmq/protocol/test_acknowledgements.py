"""Runs of acknowledgements in one chunk, against the same packets one by one; and ill-formed ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.support import Client, House
from vmq.protocol.acknowledgements import LONGEST_RUN
from vmq.protocol.session import WORK_A_PASS

PACKETS = {
    "puback": mqtt.puback_packet,
    "pubrec": mqtt.pubrec_packet,
    "pubcomp": mqtt.pubcomp_packet,
    "pubrel": mqtt.pubrel_packet,
}


def scene(qos: int, count: int, window: int) -> tuple[House, Client]:
    """A client that was sent so many messages, as far as its window goes, and has as many ids open itself."""
    house = House()
    house.options.max_inflight_messages = window
    client = house.subscriber("s", ("t", qos))
    for number in range(count):
        house.publish("t", b"%d" % number, qos)
    client.send(
        *(mqtt.publish_packet("u", b"", qos=2, packet_id=1 + each) for each in range(count))
    )
    client.take_bytes()
    return house, client


def state(house: House, client: Client) -> tuple[object, ...]:
    queue = client.queue
    inflight = [(each.packet_id, each.released) for each in queue.inflight.values()]
    counters = vars_of(house)
    received = list(client.house.registry.subscribers["s"].received_ids(house.core))
    return inflight, queue.inflight_bytes, queue.waiting(), received, counters, client.is_closed()


def vars_of(house: House) -> dict[str, object]:
    counters = house.core.counters
    names = [name for name in dir(counters) if name.startswith("mqtt_pub")]
    return {name: getattr(counters, name) for name in names}


@given(
    st.sampled_from([1, 2]),
    st.integers(0, 12),
    st.integers(1, 12),
    st.lists(
        st.tuples(st.sampled_from(sorted(PACKETS)), st.lists(st.integers(1, 14), max_size=8)),
        max_size=5,
    ),
)
@settings(max_examples=200)
def test_a_run_is_its_packets_one_by_one(
    qos: int, count: int, window: int, runs: list[tuple[str, list[int]]]
) -> None:
    """Out of order, repeated, unknown. One of the wrong kind ends both connections."""
    together, one_by_one = scene(qos, count, window), scene(qos, count, window)
    for kind, numbers in runs:
        # Nobody can acknowledge what it is sent no earlier than when the run was handled.
        sent = [each.packet_id for each in together[1].queue.inflight.values()]
        ids = [sent[each - 1] if each <= len(sent) else 1000 + each for each in numbers]
        packets = [PACKETS[kind](each) for each in (numbers if kind == "pubrel" else ids)]
        together[1].send(*packets)
        for packet in packets:
            one_by_one[1].send(packet)
        if together[1].is_closed():
            assert one_by_one[1].is_closed()
            return
        # What the window lets in goes behind the answers to a run, of which each may bring one.
        written = [sorted(each.raw for each in scene[1].take()) for scene in (together, one_by_one)]
        assert written[0] == written[1]
        assert state(*together) == state(*one_by_one)


def test_the_answers_to_a_run_are_in_its_order() -> None:
    """[MQTT-4.6.0-3] [MQTT-4.6.0-4]"""
    _, client = scene(2, 4, 20)
    client.send(
        *(mqtt.pubrec_packet(each) for each in (2, 4, 1)),
        *(mqtt.pubrel_packet(each) for each in (3, 1)),
    )
    answers = [(each.type, each.packet_id) for each in client.take()]
    assert answers == [
        (mqtt.PUBREL, 2),
        (mqtt.PUBREL, 4),
        (mqtt.PUBREL, 1),
        (mqtt.PUBCOMP, 3),
        (mqtt.PUBCOMP, 1),
    ]
    assert [each.packet_id for each in client.queue.inflight.values()] == [3, 2, 4, 1]


@pytest.mark.parametrize("first", (0x40, 0x50, 0x62, 0x70))
@pytest.mark.parametrize("body", (b"", b"\1", b"\0\1\0", b"\0\0"))
@pytest.mark.parametrize("before", (0, 1, 3))
def test_an_ill_formed_one_ends_the_connection(first: int, body: bytes, before: int) -> None:
    _, client = scene(1, 0, 20)
    good = bytes((first, 2, 0, 9))
    client.send(good * before, bytes((first, len(body))) + body)
    assert client.is_closed()


@pytest.mark.parametrize("first", (0x40, 0x50, 0x62, 0x70))
def test_a_length_in_more_bytes_than_it_needs_is_tolerated(first: int) -> None:
    _, client = scene(2, 3, 20)
    client.send(bytes((first, 0x82, 0, 0, 9)), bytes((first, 2, 0, 9)))
    assert not client.is_closed()
    answers = {0x50: b"\x62\2\0\x09", 0x62: b"\x70\2\0\x09"}
    assert client.take_bytes() == 2 * answers.get(first, b"")


def test_a_long_run_leaves_others_their_turn() -> None:
    """A pass is bounded by its packets, whatever they are."""
    house, client = scene(1, 0, 20)
    client.connection.data_received(mqtt.puback_packet(9) * 20_000)
    assert house.core.counters.mqtt_puback_received <= WORK_A_PASS + LONGEST_RUN
    house.settle()
    assert house.core.counters.mqtt_puback_received == 20_000
