"""What of a CONNECT becomes a will, and when it is published."""

import pytest

from tests.support.wire import (
    PUBLISH,
    Will,
    connect_packet,
)
from tests.vmq.support import Client, House, watcher
from vmq.mqtt.packets import Connect
from vmq.protocol.will import will_of


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


# --- wills


def will_house() -> tuple[House, Client, Client]:
    """A watcher, and a client that has a will."""
    house = House()
    other = watcher(house)
    return house, other, house.client("c", will=Will("will", b"gone", 1, True))


def test_a_will_is_published_when_the_connection_is_lost() -> None:
    house, other, client = will_house()
    client.lose(ConnectionResetError("reset"))
    received = other.take_one(PUBLISH)
    assert (received.topic, received.payload) == ("will", b"gone")
    assert (received.qos, received.retain) == (1, False)
    assert house.retained() == {"will": b"gone"}


def test_a_will_is_published_after_a_protocol_error() -> None:
    _, other, client = will_house()
    client.send(b"\xff\x00")
    assert other.payloads() == [b"gone"]
    client.lose()
    other.expect()


def test_disconnect_forgets_the_will() -> None:
    house, other, client = will_house()
    client.disconnect()
    other.expect()
    assert house.retained() == {}


@pytest.mark.parametrize("suppress", (False, True))
def test_a_takeover_publishes_the_will_unless_told_not_to(suppress: bool) -> None:
    house, other, client = will_house()
    house.options.suppress_lwt_on_session_takeover = suppress
    house.client("c")
    client.lose()
    assert other.payloads() == ([] if suppress else [b"gone"])
    house.client("c", will=Will("will", b"other")).lose()
    assert other.payloads() == [b"other"], "only a takeover suppresses it"


def test_a_will_belongs_to_its_connection_not_to_the_session(durable: House) -> None:
    other = watcher(durable)
    client = durable.client("c", clean=False, will=Will("will", b"gone"))
    client.lose()
    assert other.payloads() == [b"gone"]
    durable.client("c", clean=False).lose()
    other.expect()


def test_a_will_without_retain_leaves_the_retained_message_alone(house: House) -> None:
    house.publish("will", b"kept", retain=True)
    house.client("c", will=Will("will", b"gone")).lose()
    assert house.retained() == {"will": b"kept"}


def test_an_empty_retained_will_erases(house: House) -> None:
    house.publish("will", b"kept", retain=True)
    house.client("c", will=Will("will", b"", 0, True)).lose()
    assert house.retained() == {}


def test_a_client_that_is_not_accepted_has_no_will(house: House) -> None:
    other = watcher(house)
    client = Client(house)
    client.send(connect_packet("", clean=False, will=Will("will", b"gone")))
    client.lose()
    other.expect()


def test_a_will_reaches_the_durable_session_that_left_it(durable: House) -> None:
    client = durable.client("c", clean=False, will=Will("will", b"gone", 1))
    client.subscribe(("will", 1))
    client.lose()
    assert durable.client("c", clean=False).payloads() == [b"gone"]
