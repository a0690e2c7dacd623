"""What is sent to one subscriber: packet ids, the inflight window, acknowledgements, repeats."""

import logging
from collections.abc import Callable

import pytest

from tests.support import wire as mqtt
from tests.vmq.support import Client, House, publish_numbers, subscribed, take_numbers


@pytest.fixture
def client(house: House) -> Client:
    return subscribed(house)


def test_a_window_of_0_is_no_limit_but_that_of_packet_ids(house: House, client: Client) -> None:
    house.options.max_inflight_messages = 0
    publish_numbers(house, *range(200))
    assert take_numbers(client) == list(range(200))


def test_all_packet_ids_in_use_is_a_closed_window(house: House, client: Client) -> None:
    house.options.max_inflight_messages = 0
    house.options.max_online_messages = 1
    house.patient = True
    for _ in range(65_537):
        house.publish("t", b"", 1)
    house.settle()
    packets = client.take()
    assert len({packet.packet_id for packet in packets}) == len(packets) == 65_535
    assert client.queue.dropped == 1
    client.send(mqtt.puback_packet(777))
    assert client.take_one(mqtt.PUBLISH).packet_id == 777


def test_an_unknown_puback_or_pubcomp_is_ignored_counted_and_told_at_debug(
    house: House, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "vmq.session"):
        client.send(mqtt.puback_packet(9), mqtt.pubcomp_packet(8))
    client.expect()
    client.ping()
    counters = house.core.counters
    assert counters.mqtt_puback_invalid_error == counters.mqtt_pubcomp_invalid_error == 1
    assert [record.getMessage() for record in caplog.records] == [
        "PUBACK of an unknown packet id client=s packet_id=9",
        "PUBCOMP of an unknown packet id client=s packet_id=8",
    ]


def test_an_unknown_pubrec_or_pubrel_is_answered_and_counted(house: House, client: Client) -> None:
    client.send(mqtt.pubrec_packet(9))
    assert client.take_one(mqtt.PUBREL).packet_id == 9
    client.send(mqtt.pubrel_packet(9))
    assert client.take_one(mqtt.PUBCOMP).packet_id == 9
    counters = house.core.counters
    assert counters.mqtt_pubrec_invalid_error == counters.mqtt_pubrel_invalid_error == 1


@pytest.mark.parametrize(
    ("qos", "wrong", "due"),
    [
        (2, mqtt.puback_packet, "PUBREC"),
        (2, mqtt.pubcomp_packet, "PUBREC"),
        (1, mqtt.pubrec_packet, "PUBACK"),
        (1, mqtt.pubcomp_packet, "PUBACK"),
    ],
)
def test_an_acknowledgement_of_the_wrong_kind_ends_the_connection(
    house: House,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    qos: int,
    wrong: Callable[[int], bytes],
    due: str,
) -> None:
    publish_numbers(house, 0, qos=qos)
    pid = client.take_one(mqtt.PUBLISH).packet_id
    client.send(wrong(pid))
    client.expect_end()
    [line] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert f"for packet id {pid} of QoS {qos}, of which {due} is due [MQTT-4.8.0-1]" in line


def repeated(packets: list[mqtt.Packet]) -> list[tuple[int, bool]]:
    return [(packet.packet_id, packet.dup) for packet in packets]


def test_a_retry_repeats_what_is_old_enough(house: House, client: Client) -> None:
    house.options.retry_interval = 10.0
    publish_numbers(house, 0, qos=1)
    publish_numbers(house, 1, qos=2)
    house.clock.advance(6)
    publish_numbers(house, 2, qos=2)
    first, second, third = (packet.packet_id for packet in client.take())
    client.send(mqtt.pubrec_packet(second))
    assert client.take_one(mqtt.PUBREL).packet_id == second
    house.clock.advance(4)
    retry(house, client)
    found = [(p.type, p.packet_id, p.dup) for p in client.take()]
    assert found == [(mqtt.PUBLISH, first, True), (mqtt.PUBREL, second, False)]
    house.clock.advance(6)
    retry(house, client)
    assert repeated(client.take()) == [(third, True)]
    house.clock.advance(4)
    retry(house, client)
    assert [packet.packet_id for packet in client.take()] == [first, second]


def test_a_retry_leaves_a_full_socket_alone(house: House, client: Client) -> None:
    house.options.retry_interval = 1.0
    publish_numbers(house, 0)
    client.take()
    client.block()
    for _ in range(5):
        house.clock.advance(2)
        retry(house, client)
    assert client.take_bytes() == b""


def retry(house: House, client: Client) -> None:
    client.queue.retry(house.clock())
    house.settle()
