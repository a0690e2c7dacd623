"""What of a CONNECT becomes a will. When wills are published is in test_session."""

import pytest

from vmq.mqtt.packets import Connect
from vmq.will import will_of


def test_a_connect_without_a_will_leaves_none() -> None:
    assert will_of(Connect()) is None


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
def test_a_will_has_all_its_parts(qos: int, retain: bool) -> None:
    connect = Connect()
    connect.has_will = True
    connect.will_topic = "wills/ä".encode()
    connect.will_payload = b"\0gone"
    connect.will_qos = qos
    connect.will_retain = retain
    will = will_of(connect)
    assert will is not None
    assert (will.topic, will.payload) == ("wills/ä".encode(), b"\0gone")
    assert (will.qos, will.retain) == (qos, retain)


def test_an_empty_will_message_is_a_will() -> None:
    connect = Connect()
    connect.has_will = True
    connect.will_topic = b"w"
    will = will_of(connect)
    assert will is not None
    assert will.payload == b""
