"""Each hook is called at the right moment, with the right arguments, and its answer is heeded."""

from collections.abc import Callable
from typing import Any

import pytest
from vmq_hooks import Refuse, Subscription

from tests.support import wire as mqtt
from tests.vmq.hook_sites import SITES, listen, refuse, unavailable
from tests.vmq.support import Client, House
from vmq.core.hook_sites import Pending
from vmq.mqtt.packets import LEVEL_3_1

# --- CONNECT


def test_auth_on_register_sees_who_connects(house: House) -> None:
    calls = listen(house, "auth_on_register", "on_register", "on_client_wakeup")
    client = Client(house, anonymous=False)
    client.send(mqtt.connect_packet("c", clean=False, username="u", password=b"\0p"))
    assert client.take_one(mqtt.CONNACK).return_code == 0
    assert calls == [
        ("auth_on_register", "192.0.2.1:4711", "c", "u", b"\0p", False),
        ("on_register", "192.0.2.1:4711", "c", "u"),
        ("on_client_wakeup", "c"),
    ]


def test_auth_on_register_sees_a_client_without_a_login(house: House) -> None:
    calls = listen(house, "auth_on_register")
    Client(house, anonymous=False, new_id="given").send(mqtt.connect_packet(""))
    assert calls == [("auth_on_register", "192.0.2.1:4711", "given", None, None, True)]


def test_on_register_comes_before_anything_is_sent_to_the_session(durable: House) -> None:
    durable.subscriber("c", ("t", 1), clean=False).lose()
    durable.publish("t", b"x", 1)
    calls = listen(durable, "on_register", "on_deliver", "on_client_wakeup")
    durable.client("c", clean=False)
    assert [call[0] for call in calls] == ["on_register", "on_client_wakeup", "on_deliver"]


@pytest.mark.parametrize(("bad_credentials", "code"), ((True, 4), (False, 5)))
def test_a_refusal_of_auth_on_register_is_answered_and_nothing_happens(
    bad_credentials: bool, code: int, house: House
) -> None:

    def no(*_arguments: object) -> Refuse:
        return Refuse("wrong password", bad_credentials=bad_credentials)

    calls = listen(
        house,
        "on_register",
        "on_client_wakeup",
        "on_client_gone",
        "on_publish",
        auth_on_register=no,
    )
    watcher = house.subscriber("w", ("#", 0))
    calls.clear()
    client = Client(house, anonymous=False)
    client.send(
        mqtt.connect_packet("c", will=mqtt.Will("will", b"x")), mqtt.publish_packet("t", b"x")
    )
    client.expect(bytes((0x20, 2, 0, code)))
    assert client.is_closed()
    client.lose()
    assert [call[0] for call in calls] == ["auth_on_register"]
    assert watcher.take() == []
    assert "c" not in house.registry.subscribers


def test_a_refused_client_id_takes_nobody_over(house: House) -> None:
    first = house.client("c")
    listen(house, auth_on_register=refuse)
    second = Client(house, anonymous=False)
    second.send(mqtt.connect_packet("c"))
    assert second.is_closed()
    first.ping()


def test_a_listener_for_anonymous_clients_does_not_ask(house: House) -> None:
    calls = listen(house, auth_on_register=refuse)
    house.client("c")
    assert calls == []


def test_without_a_hook_a_listener_that_is_not_for_anonymous_clients_lets_nobody_in() -> None:
    client = Client(House(), anonymous=False)
    client.ask(mqtt.connect_packet("c", username="u", password=b"p"), b"\x20\x02\x00\x05")
    assert client.is_closed()


def test_the_will_is_authorised_at_connect(house: House) -> None:
    calls = listen(house, "auth_on_publish")
    house.client("c", will=mqtt.Will("will", b"x", 1, True), username="u")
    assert calls == [("auth_on_publish", "u", "c", 1, "will", b"x", True)]


# --- PUBLISH


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
def test_auth_on_publish_comes_before_routing_and_on_publish_after(
    qos: int, retain: bool, house: House
) -> None:
    house.client("s").subscribe(("t", 2))
    publisher = house.client("p", username="u")
    calls = listen(house, "auth_on_publish", "on_deliver", "on_publish")
    publisher.publish("t", b"x", qos, retain=retain)
    assert calls == [
        ("auth_on_publish", "u", "p", qos, "t", b"x", retain),
        ("on_deliver", None, "s", qos, "t", b"x", False),
        ("on_publish", "u", "p", qos, "t", b"x", retain),
    ]


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_a_refused_publish_ends_a_3_1_1_connection_unanswered(qos: int) -> None:
    def all_but_the_will(_user: Any, _who: Any, message: Any) -> Any:
        return None if message.topic == "will" else Refuse("no")

    house = House()
    watcher = house.subscriber("w", ("#", 0))
    publisher = house.client("p", will=mqtt.Will("will", b"x"))
    calls = listen(house, "on_publish", auth_on_publish=all_but_the_will)
    pid = 1 if qos else None
    publisher.send(
        mqtt.publish_packet("t", b"x", qos=qos, packet_id=pid, retain=True),
        mqtt.publish_packet("t", b"y"),
    )
    publisher.expect_end()
    # What came behind it is not read, and the will is asked about when it is published.
    found = [(call[0], call[4]) for call in calls]
    assert found == [("auth_on_publish", "t"), ("auth_on_publish", "will")]
    assert watcher.take_published() == [("will", b"x")]
    assert house.retained() == {}


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_a_refused_publish_ends_a_3_1_connection_if_the_options_say_so(
    qos: int, house: House
) -> None:
    house.options.disconnect_on_unauthorized_publish_v3 = True
    publisher = house.client("p", level=LEVEL_3_1)
    listen(house, auth_on_publish=refuse)
    publisher.send(mqtt.publish_packet("t", b"x", qos=qos, packet_id=1 if qos else None))
    publisher.expect_end()


@pytest.mark.parametrize(("qos", "answer"), ((0, b""), (1, b"\x40\x02\0\1"), (2, b"\x50\x02\0\1")))
def test_a_refused_publish_of_mqtt_3_1_is_acknowledged_and_dropped(
    qos: int, answer: bytes, house: House
) -> None:
    watcher = house.subscriber("w", ("#", 0))
    publisher = house.client("p", level=3)
    calls = listen(house, "on_publish", auth_on_publish=refuse)
    pid = 1 if qos else None
    publisher.send(mqtt.publish_packet("t", b"x", qos=qos, packet_id=pid, retain=True))
    assert publisher.take_bytes() == answer
    assert [call[0] for call in calls] == ["auth_on_publish"]
    assert watcher.take() == []
    assert house.retained() == {}
    publisher.ping()


@pytest.mark.parametrize("level", (3, 4))
@pytest.mark.parametrize("qos", (1, 2))
def test_a_publish_that_nobody_could_judge_is_not_acknowledged_and_comes_again(
    qos: int, level: int, house: House
) -> None:
    publisher = house.client("p", level=level)
    listen(house, auth_on_publish=unavailable)
    publisher.send(mqtt.publish_packet("t", b"x", qos=qos, packet_id=1))
    publisher.expect_end()


@pytest.mark.parametrize("level", (3, 4))
def test_a_qos_0_publish_that_nobody_could_judge_is_dropped_and_the_connection_stays(
    level: int, house: House
) -> None:
    watcher = house.subscriber("w", ("#", 0))
    publisher = house.client("p", level=level)
    listen(house, auth_on_publish=unavailable)
    publisher.send(mqtt.publish_packet("t", b"x"))
    publisher.ping()
    assert watcher.take() == []
    assert house.core.counters.mqtt_publish_auth_error == 1


def test_a_repeated_qos_2_publish_is_not_asked_about_again(house: House) -> None:
    publisher = house.client("p")
    calls = listen(house, "auth_on_publish")
    for dup in (False, True):
        publisher.send(mqtt.publish_packet("t", b"x", qos=2, packet_id=1, dup=dup))
    assert len(calls) == 1


# --- SUBSCRIBE and UNSUBSCRIBE


def test_auth_on_subscribe_grants_lowers_and_refuses_filter_by_filter(house: House) -> None:
    house.publish("yes", b"1", retain=True)
    house.publish("no", b"2", retain=True)
    client = house.client("c", username="u")
    calls = listen(
        house,
        "on_subscribe",
        auth_on_subscribe=lambda _user, _who, wanted: [
            Subscription(each.topic_filter, qos)
            for each, qos in zip(wanted, (2, 128, 0), strict=True)
        ],
    )
    assert client.subscribe(("yes", 2), ("no", 1), ("lower", 1)) == [2, 128, 0]
    assert calls == [
        ("auth_on_subscribe", "u", "c", [("yes", 2), ("no", 1), ("lower", 1)]),
        ("on_subscribe", "u", "c", [("yes", 2), ("lower", 0)]),
    ]
    assert client.take_published() == [("yes", b"1")]
    assert set(house.registry.subscribers["c"].subscriptions) == {"yes", "lower"}


def test_a_refusal_of_auth_on_subscribe_refuses_every_filter(house: House, client: Client) -> None:
    calls = listen(house, "on_subscribe", auth_on_subscribe=refuse)
    assert client.subscribe(("a", 1), ("b", 2)) == [128, 128]
    assert [call[0] for call in calls] == ["auth_on_subscribe"]
    assert house.registry.subscribers["c"].subscriptions == {}


@pytest.mark.parametrize("level", (3, 4))
def test_a_subscribe_that_nobody_could_judge_is_not_answered_and_comes_again(
    level: int, house: House
) -> None:
    client = house.client("c", level=level)
    listen(house, auth_on_subscribe=unavailable)
    client.send(mqtt.subscribe_packet(1, ("a", 1)))
    client.expect_end()


def test_an_mqtt_3_1_client_is_not_told_of_a_refused_subscription(house: House) -> None:
    client = house.client("c", level=3)
    listen(house, auth_on_subscribe=refuse)
    assert client.subscribe(("a", 1)) == [1]
    house.publish("a", b"x", 1)
    assert client.take() == []


def test_on_subscribe_comes_before_the_retained_messages(house: House) -> None:
    house.publish("t", b"x", retain=True)
    client = house.client("c")
    calls = listen(house, "on_subscribe", "on_deliver")
    client.subscribe(("t", 0))
    assert calls == [
        ("on_subscribe", None, "c", [("t", 0)]),
        ("on_deliver", None, "c", 0, "t", b"x", True),
    ]


def test_unsubscribing_is_asked_about_first_and_told_before_and_after(house: House) -> None:
    client = house.subscriber("c", ("a", 1), ("b", 0), username="u")
    there: list[bool] = []

    def look(*_arguments: object) -> None:
        there.append("a" in house.registry.subscribers["c"].subscriptions)

    calls = listen(house, "auth_on_unsubscribe", on_unsubscribe=look, on_topic_unsubscribed=look)
    client.unsubscribe("a", "b", "c")
    assert calls == [
        ("auth_on_unsubscribe", "u", "c", ["a", "b", "c"]),
        ("on_unsubscribe", "u", "c", ["a", "b", "c"]),
        ("on_topic_unsubscribed", "c", ["a", "b", "c"]),
    ]
    assert there == [True, False]
    assert house.registry.subscribers["c"].subscriptions == {}


@pytest.mark.parametrize("answer", (refuse, unavailable))
def test_a_refused_unsubscribe_ends_the_connection_and_no_subscription(
    durable: House, answer: Callable[..., Refuse]
) -> None:
    client = durable.subscriber("c", ("a", 1), clean=False)
    calls = listen(durable, "on_unsubscribe", auth_on_unsubscribe=answer)
    client.send(mqtt.unsubscribe_packet(7, "a"))
    client.expect_end()
    assert [call[0] for call in calls] == ["auth_on_unsubscribe"]
    assert set(durable.registry.subscribers["c"].subscriptions) == {"a"}
    assert durable.core.counters.mqtt_unsubscribe_error == 1


def test_an_unsubscribe_waits_for_a_verdict_that_is_still_to_come(
    house: House, client: Client
) -> None:
    client.subscribe(("a", 0))
    pending = Pending(lambda: None)
    listen(house, auth_on_unsubscribe=lambda *_: pending)
    client.send(mqtt.unsubscribe_packet(7, "a"))
    client.expect()
    assert set(house.registry.subscribers["c"].subscriptions) == {"a"}
    pending.finish(None)
    client.expect(b"\xb0\x02\x00\x07")
    assert house.registry.subscribers["c"].subscriptions == {}


# --- the ends of sessions


@pytest.mark.parametrize("orderly", (True, False))
def test_a_clean_session_is_gone_with_its_connection(
    orderly: bool, house: House, client: Client
) -> None:
    client.subscribe(("a", 0), ("b", 1))
    calls = listen(house, "on_client_gone", "on_client_offline", "on_topic_unsubscribed")
    if orderly:
        client.disconnect()
    else:
        client.lose()
    assert calls == [("on_topic_unsubscribed", "c", ["a", "b"]), ("on_client_gone", "c")]


def test_a_durable_session_goes_offline(durable: House) -> None:
    client = durable.subscriber("c", ("a", 0), clean=False)
    calls = listen(durable, "on_client_gone", "on_client_offline", "on_topic_unsubscribed")
    client.disconnect()
    assert calls == [("on_client_offline", "c")]


def test_a_takeover_ends_one_session_and_begins_the_next(house: House) -> None:
    house.client("c")
    calls = listen(house, "on_client_gone", "on_register", "on_client_wakeup")
    house.client("c")
    assert [call[0] for call in calls] == ["on_client_gone", "on_register", "on_client_wakeup"]


def test_on_session_expired(durable: House) -> None:
    durable.options.persistent_client_expiration = 10.0
    durable.client("c", clean=False).subscribe(("a", 0))
    output = durable.registry.subscribers["c"].output
    assert output is not None
    output.close("bye")
    durable.settle()
    calls = listen(durable, "on_session_expired", "on_topic_unsubscribed", "on_client_gone")
    assert durable.expired_after(9.9) == 0
    assert durable.expired_after(0.1) == 1
    assert calls == [("on_topic_unsubscribed", "c", ["a"]), ("on_session_expired", "c")]


def test_a_connection_that_never_was_accepted_calls_nothing(house: House) -> None:
    calls = listen(house, *SITES)
    client = Client(house)
    client.send(b"\x30\x00")
    client.lose()
    assert calls == []
