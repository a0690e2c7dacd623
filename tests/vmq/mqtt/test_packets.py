"""Packet types and the errors that a peer's bytes can cause."""

from vmq.mqtt import packets
from vmq.mqtt.packets import PACKET_NAMES, Connect, ConnectRefused, ProtocolError, SubscribeRequest


def test_every_packet_type_has_its_name() -> None:
    assert len(PACKET_NAMES) == 16
    for number, name in enumerate(PACKET_NAMES):
        assert name.startswith("reserved") or getattr(packets, name) == number


def test_a_protocol_error_names_the_statement() -> None:
    error = ProtocolError("QoS 3 in PUBLISH", "MQTT-3.3.1-4")
    assert str(error) == "QoS 3 in PUBLISH [MQTT-3.3.1-4]"
    assert (error.text, error.statement) == ("QoS 3 in PUBLISH", "MQTT-3.3.1-4")


def test_a_refusal_carries_its_return_code() -> None:
    refused = ConnectRefused("no such level", packets.REFUSED_PROTOCOL_LEVEL)
    assert (str(refused), refused.text, refused.code) == ("no such level", "no such level", 1)


def test_a_connect_begins_as_the_plainest_one() -> None:
    connect = Connect()
    assert (connect.level, connect.client_id, connect.clean_session) == (4, "", True)
    assert not connect.has_will
    assert connect.username is None
    assert connect.password is None


def test_a_subscribe_request_holds_filter_and_qos() -> None:
    request = SubscribeRequest("a/#", 2)
    assert (request.topic_filter, request.qos) == ("a/#", 2)
