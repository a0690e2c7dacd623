"""The hooks on the way to a client: what it gets, has acknowledged, is kept for it, or dropped."""

from collections.abc import Callable
from pathlib import Path

import pytest
from vmq_hooks import DeliverModifiers, Message, Refuse

from tests.support import wire as mqtt
from tests.vmq.hook_sites import flat, listen
from tests.vmq.support import Client, House, stored_house


def test_on_acked_tells_when_a_client_has_a_message_and_once(house: House) -> None:
    client = house.subscriber("c", ("t", 2), username="u")
    calls = listen(house, "on_acked")
    house.publish("t", b"0", 0)
    house.publish("t", b"1", 1)
    house.publish("t", b"2", 2)
    received = client.take()
    assert calls == []
    one, two = (each.packet_id for each in received[1:])
    client.send(mqtt.puback_packet(one))
    assert calls == [("on_acked", "u", "c", 1, "t", b"1", False)]
    client.send(mqtt.pubrec_packet(two))
    client.send(mqtt.pubcomp_packet(two))
    assert calls[1:] == [("on_acked", "u", "c", 2, "t", b"2", False)]
    client.send(mqtt.puback_packet(one))
    assert len(calls) == 2, "of an unknown packet id nothing is known"


def test_on_acked_tells_of_the_message_as_it_was_queued(durable: House) -> None:
    durable.subscriber("c", ("t", 1), clean=False).lose()
    durable.publish("t", b"x", 1)
    calls = listen(
        durable, "on_acked", on_deliver=lambda *_arguments: DeliverModifiers(payload=b"y")
    )
    client = durable.client("c", clean=False)
    (received,) = client.take()
    assert received.payload == b"y"
    client.send(mqtt.puback_packet(received.packet_id))
    assert calls[-1] == ("on_acked", None, "c", 1, "t", b"x", False)


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
def test_on_deliver_rewrites_what_is_sent_and_nothing_else(
    qos: int, retain: bool, house: House
) -> None:
    client, other = house.client("c"), house.client("other")
    other.subscribe(("t", 2))
    listen(
        house,
        on_deliver=lambda _user, who, message: (
            DeliverModifiers(topic="tenant/" + message.topic, payload=message.payload * 2)
            if who.client_id == "c"
            else None
        ),
    )
    if retain:
        house.publish("t", b"x", qos, retain=True)
        other.take()
        client.subscribe(("t", 2))
    else:
        client.subscribe(("t", 2))
        house.publish("t", b"x", qos)
        assert other.take_published() == [("t", b"x")]
    packet = client.take_one(mqtt.PUBLISH)
    assert (packet.topic, packet.payload) == ("tenant/t", b"xx")
    assert (packet.qos, packet.retain, packet.dup) == (qos, retain, False)
    if retain:
        assert house.retained() == {"t": b"x"}


def test_on_deliver_is_asked_again_for_a_repeat_and_gets_the_original(durable: House) -> None:
    client = durable.subscriber("c", ("t", 1), clean=False)
    calls = listen(
        durable, on_deliver=lambda *_arguments: DeliverModifiers(topic="other", payload=b"y")
    )
    durable.publish("t", b"x", 1)
    client.lose()
    again = durable.client("c", clean=False)
    packet = again.take_one(mqtt.PUBLISH)
    assert (packet.topic, packet.payload, packet.dup) == ("other", b"y", True)
    assert calls == [("on_deliver", None, "c", 1, "t", b"x", False)] * 2


def withhold(*topics: str) -> Callable[..., Refuse | None]:
    """What keeps messages of some topics back."""
    return lambda _user, _who, message: Refuse("not for you") if message.topic in topics else None


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
def test_what_on_deliver_keeps_back_is_dropped_and_the_rest_goes_on(
    qos: int, retain: bool, house: House, client: Client
) -> None:
    calls = listen(house, "on_message_drop", on_deliver=withhold("t/secret"))
    if not retain:
        client.subscribe(("t/+", qos))
    for topic in ("t/secret", "t/open"):
        house.publish(topic, b"x", qos, retain=retain)
    if retain:
        client.subscribe(("t/+", qos))
    assert client.take_one(mqtt.PUBLISH).topic == "t/open"
    dropped = [
        (*flat((load(),)), reason)
        for _, _, load, reason in (call for call in calls if call[0] == "on_message_drop")
    ]
    assert dropped == [(qos, "t/secret", b"x", retain, "withheld")]


def test_what_is_kept_back_leaves_the_window_and_the_store(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        house.options.max_inflight_messages = 1
        house.subscriber("c", ("t/+", 1), clean=False).lose()
        for number in range(5):
            house.publish(f"t/{number}", b"x", 1)
        listen(house, on_deliver=withhold("t/0", "t/2", "t/3"))
        client = house.client("c", clean=False)
        for topic in ("t/1", "t/4"):
            packet = client.take_one(mqtt.PUBLISH)
            assert packet.topic == topic
            client.send(mqtt.puback_packet(packet.packet_id))
        assert client.take() == []
        client.lose()
    with stored_house(tmp_path) as house:
        assert house.client("c", clean=False).take() == []


def test_what_is_kept_back_when_it_is_repeated_is_in_flight_no_more(durable: House) -> None:
    durable.options.max_inflight_messages = 2
    client = durable.subscriber("c", ("t/+", 1), clean=False)
    for number in range(3):
        durable.publish(f"t/{number}", b"x", 1)
    client.lose()
    listen(durable, on_deliver=withhold("t/0"))
    again = durable.client("c", clean=False)
    first, second = again.take()
    found = [(each.topic, each.dup) for each in (first, second)]
    assert found == [("t/1", True), ("t/2", False)]


def test_on_deliver_sees_bursts_message_by_message(house: House, client: Client) -> None:
    client.subscribe(("t", 0))
    calls = listen(
        house,
        on_deliver=lambda _user, _who, message: DeliverModifiers(payload=message.payload + b"!"),
    )
    house.client("p").send(*(mqtt.publish_packet("t", b"%d" % number) for number in range(3)))
    assert client.payloads() == [b"0!", b"1!", b"2!"]
    assert len(calls) == 3


def test_on_offline_message_tells_what_is_kept_for_later(durable: House) -> None:
    client = durable.subscriber("c", ("t", 1), clean=False)
    calls = listen(durable, "on_offline_message")
    durable.publish("t", b"online", 1)
    client.lose()
    durable.publish("t", b"qos 0", 0)
    durable.publish("t", b"x", 2)
    assert calls == [("on_offline_message", "c", 1, "t", b"x", False)]


def test_a_dropped_message_is_not_told_as_kept(durable: House) -> None:
    durable.options.max_offline_messages = 0
    client = durable.subscriber("c", ("t", 1), clean=False)
    client.lose()
    calls = listen(durable, "on_offline_message", "on_message_drop")
    durable.publish("t", b"x", 2)
    [(site, client_id, lazy, reason)] = calls
    assert (site, client_id, reason) == ("on_message_drop", "c", "queue_full")
    assert lazy() == Message("t", b"x", 1)


def test_on_message_drop_tells_which_message_went_when_the_oldest_goes(house: House) -> None:
    house.options.max_inflight_messages = 1
    house.options.max_online_messages = 1
    house.options.drop_oldest = True
    house.client("c").subscribe(("t", 2))
    calls = listen(house, "on_message_drop")
    for number in range(4):
        house.publish("t", b"%d" % number, 2)
    assert [call[2]() for call in calls] == [Message("t", b"1", 2), Message("t", b"2", 2)]
