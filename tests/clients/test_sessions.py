"""Durable sessions, taking them over, and wills, with every client."""

import pytest

from tests.clients.client import KINDS, Kind, Will
from tests.clients.factory import ClientFactory, new_client_id

PROGRAM_KINDS = [kind for kind in KINDS if kind.program != "mosquitto"]
MOSQUITTO_KINDS = [kind for kind in KINDS if kind.program == "mosquitto"]


def says_present(kind: Kind) -> bool:
    """Whether this client tells of the session-present flag, which MQTT 3.1 does not have."""
    return kind.program in ("paho", "mqttjs") and kind.version == 4


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_queued_messages_come_in_order(clients: ClientFactory, topic: str, kind: Kind) -> None:
    """What was published while a durable client was away is there when it comes back."""
    client_id = new_client_id(kind)
    # mosquitto_sub has to name its subscription again, the others must not need to.
    filters = ((topic, 2),)
    again = filters if kind.program == "mosquitto" else ()
    publisher = clients("paho")

    first = clients(kind, *filters, client_id=client_id, clean=False)
    if says_present(kind):
        assert first.session_present is False
    publisher.publish(topic, b"seen", qos=2)
    assert [message.payload for message in first.receive(1)] == [b"seen"]
    first.close()

    publisher.publish(topic, *(b"one-%03d" % n for n in range(100)), qos=1)
    publisher.publish(topic, *(b"two-%03d" % n for n in range(100)), qos=2)

    second = clients(kind, *again, client_id=client_id, clean=False)
    if says_present(kind):
        assert second.session_present is True
    publisher.publish(topic, b"end", qos=1)
    publisher.publish(topic, b"end", qos=2)
    messages = second.receive(202)
    for qos, name in ((1, b"one"), (2, b"two")):
        payloads = [message.payload for message in messages if message.qos == qos]
        assert payloads == [*(b"%s-%03d" % (name, n) for n in range(100)), b"end"]
    second.close()

    # A clean session under the same id ends the durable one.
    third = clients(kind, *again, client_id=client_id, clean=True)
    if says_present(kind):
        assert third.session_present is False
    third.close()
    publisher.publish(topic, b"for nobody", qos=1)
    fourth = clients(kind, *filters, client_id=client_id, clean=False)
    publisher.publish(topic, b"end", qos=1)
    assert fourth.receive_until(b"end") == []
    fourth.close()
    clients(kind, client_id=client_id, clean=True).close()


@pytest.mark.parametrize(
    ("kind", "retain"), [(kind, at % 2 == 0) for at, kind in enumerate(KINDS)], ids=str
)
def test_a_client_that_is_killed_leaves_its_will_and_resumes(
    clients: ClientFactory, topic: str, kind: Kind, retain: bool
) -> None:
    """A durable client whose process is killed misses nothing, and QoS 2 comes once. A clean end has no will."""
    client_id = new_client_id(kind)
    filters = ((topic, 2),)
    will = Will(f"{topic}/gone", "gone", 1 + retain, retain=retain)
    publisher = clients("paho", (f"{topic}/+", 2))
    clients(kind, (f"{topic}/in", 0), will=will).close()
    publisher.publish(f"{topic}/mark", b"mark", qos=1)
    assert publisher.receive_until(b"mark") == []

    first = clients(kind, *filters, client_id=client_id, clean=False, will=will, own_program=True)
    publisher.publish(topic, b"before", qos=2)
    assert [message.payload for message in first.receive(1)] == [b"before"]
    first.kill()
    [message] = publisher.receive(1)
    assert (message.topic, message.payload) == (will.topic, b"gone")
    assert (message.qos, message.retain) == (will.qos, False)
    late = clients("paho", (will.topic, 2))
    # At QoS 2, too: one at QoS 1 is handed over before what was sent earlier.
    late.publish(will.topic, b"mark", qos=2)
    kept = [(each.payload, each.qos, each.retain) for each in late.receive_until(b"mark")]
    assert kept == [(b"gone", will.qos, True)] * retain
    publisher.publish(will.topic, b"", retain=True)

    publisher.publish(topic, *(b"%d" % number for number in range(50)), qos=1)
    again = filters if kind.program == "mosquitto" else ()
    second = clients(kind, *again, client_id=client_id, clean=False)
    publisher.publish(topic, b"end", qos=1)
    payloads = [message.payload for message in second.receive_until(b"end") if message.qos == 1]
    assert payloads == [b"%d" % number for number in range(50)]
    second.close()


@pytest.mark.parametrize("kind", PROGRAM_KINDS, ids=str)
def test_takeover(clients: ClientFactory, topic: str, kind: Kind) -> None:
    """A second connection with the id of a first one ends it and goes on with its session."""
    client_id = new_client_id(kind)
    publisher = clients("paho")
    first = clients(kind, (topic, 1), client_id=client_id, clean=False)
    publisher.publish(topic, b"1", qos=1)
    assert [message.payload for message in first.receive(1)] == [b"1"]
    second = clients(kind, client_id=client_id, clean=False)
    if says_present(kind):
        assert second.session_present is True
    assert first.wait_closed() == []
    publisher.publish(topic, b"2", qos=1)
    publisher.publish(topic, b"3", qos=1)
    payloads = [message.payload for message in second.receive_until(b"3")]
    # The acknowledgement of the first message may have been under way at the takeover.
    assert payloads in ([b"2"], [b"1", b"2"])


@pytest.mark.parametrize("kind", MOSQUITTO_KINDS, ids=str)
def test_takeover_and_back(clients: ClientFactory, topic: str, kind: Kind) -> None:
    """mosquitto_sub, its session taken over, connects anew and takes it back."""
    client_id = new_client_id(kind)
    publisher = clients("paho")
    first = clients(kind, (topic, 1), client_id=client_id, clean=False)
    second = clients("paho", client_id=client_id, clean=False)
    assert second.session_present is True
    assert second.wait_closed() == []
    publisher.publish(topic, b"1", qos=1)
    assert [message.payload for message in first.receive(1)] == [b"1"]
