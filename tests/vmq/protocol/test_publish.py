"""What a client's PUBLISH and PUBREL do, packet by packet and in bursts."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.mqtt.strategies import cut
from tests.vmq.support import Client, House, watcher

BAD_PUBLISHES = (
    ("3602", "MQTT-3.3.1-4"),
    ("380400016178", "MQTT-3.3.1-2"),
    ("3000", "MQTT-3.3.2-1"),
    ("300100", "MQTT-3.3.2-1"),
    ("30020000", "MQTT-4.7.3-1"),
    ("3003000261", "MQTT-3.3.2-1"),
    ("300300012b", "MQTT-3.3.2-2"),
    ("30030001ff", "MQTT-1.5.3-1"),
    ("3003000100", "MQTT-1.5.3-2"),
    ("3203000161", "MQTT-2.3.1-1"),
    ("320400016100", "MQTT-2.3.1-1"),
    ("32050001610000", "MQTT-2.3.1-1"),
    ("34050001610000", "MQTT-2.3.1-1"),
)


@pytest.mark.parametrize(("raw", "statement"), BAD_PUBLISHES)
def test_a_bad_publish_closes_the_connection_with_its_statement_in_the_log(
    house: House, raw: str, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = watcher(house)
    client = house.client("c")
    with caplog.at_level(logging.INFO, "vmq.session"):
        client.send(bytes.fromhex(raw) + b"\0" * (raw == "3602") * 2)
    assert client.is_closed()
    client.expect()
    other.expect()
    [record] = caplog.records
    assert record.levelname == "WARNING"
    line = record.getMessage()
    assert 'closed client=c peer=192.0.2.1:4711 reason="protocol error: ' in line
    assert line.endswith(f'[{statement}]"')


def test_a_clean_session_forgets_its_qos_2_ids(house: House) -> None:
    other = watcher(house)
    for _ in range(2):
        house.client("c").send(mqtt.publish_packet("a", b"x", qos=2, packet_id=7))
    assert other.payloads() == [b"x", b"x"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=3)), max_size=12), st.data())
def test_bursts_reach_fast_and_slow_subscribers_alike(
    messages: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    house = House()
    fast, slow, other = house.client("fast"), house.client("slow"), house.client("other")
    for client in (fast, slow, other):
        client.subscribe(("+", 0))
    slow.block()
    other.subscribe(("$share/g/b", 0))
    stream = b"".join(mqtt.publish_packet(topic, payload) for topic, payload in messages)
    places = data.draw(st.lists(st.integers(0, 100), max_size=4))
    publisher = house.client("p")
    for chunk in cut(stream, places):
        publisher.send(chunk)
    slow.unblock()
    assert fast.take_published() == slow.take_published() == messages
    twice = [each for each in messages if each[0] == "b"]
    assert len(other.take()) == len(messages) + len(twice)


LONG_SPELLINGS = (b"\x86\x00", b"\x86\x80\x00", b"\x86\x80\x80\x00")


@pytest.mark.parametrize("spelling", LONG_SPELLINGS)
def test_a_longer_spelling_of_a_length_is_not_passed_on(
    house: House, spelling: bytes, client: Client
) -> None:
    """Not every client can read what this one writes (section 2.2.3)."""
    client.subscribe(("a", 2))
    short = mqtt.publish_packet("a", b"xyz")
    assert short[1] == 6
    house.client("p").send(short, short[:1] + spelling + short[2:], short, short)
    assert client.take_bytes() == short * 4


@pytest.mark.parametrize("qos", (1, 2))
@pytest.mark.parametrize("spelling", LONG_SPELLINGS)
def test_nor_is_it_at_qos_1_and_2(house: House, qos: int, spelling: bytes, client: Client) -> None:
    client.subscribe(("a", 2))
    short = mqtt.publish_packet("a", b"x", qos=qos, packet_id=1)
    assert short[1] == 6
    house.client("p").send(short[:1] + spelling + short[2:])
    assert client.take_bytes() == short


def test_a_burst_without_subscribers_is_counted(house: House, client: Client) -> None:
    client.send(mqtt.publish_packet("a", b"x") * 10)
    assert house.core.counters.mqtt_publish_received == 10
    assert house.core.counters.mqtt_publish_sent == 0
