"""Each hook's call site: that it is called at the right moment, with the right arguments, and that
without hooks nothing is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmq_hooks import DeliverModifiers, Message, Peer, Refuse, SubscriberId, Subscription

from tests.support.wire import (
    CONNACK,
    PUBLISH,
    Will,
    connect_packet,
    puback_packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)
from tests.vmq.support import Client, House, stored_house
from vmq.core import Options
from vmq.hooks import Hooks, Pending
from vmq.mqtt.packets import LEVEL_3_1

SITES = (
    *("auth_on_register", "on_register", "auth_on_publish", "on_publish", "auth_on_subscribe"),
    *("on_subscribe", "on_unsubscribe", "on_topic_unsubscribed", "on_deliver"),
    *("on_offline_message", "on_message_drop", "on_client_wakeup", "on_client_offline"),
    *("on_client_gone", "on_session_expired"),
)

Call = tuple[Any, ...]


def listen(
    house: House, *sites: str, answers: dict[str, Callable[..., Any]] | None = None
) -> list[Call]:
    """Sets these sites; returns the list that their calls go into, with the site's name in front."""
    calls: list[Call] = []

    def listener(site: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append((site, *flat(arguments)))
            answer = (answers or {}).get(site)
            return None if answer is None else answer(*arguments)

        return call

    for site in sites:
        setattr(house.core.hooks, site, listener(site))
    house.core.hooks.resolve()
    return calls


def flat(arguments: Call) -> list[Any]:
    """What a hook was told, as plain values."""
    found: list[Any] = []
    for each in arguments:
        if isinstance(each, SubscriberId | Peer):
            found.append(str(each))
        elif isinstance(each, Message):
            found.extend((each.qos, each.topic, each.payload, each.retain))
        elif isinstance(each, list):
            found.append(
                [(s.topic_filter, s.qos) if isinstance(s, Subscription) else s for s in each]
            )
        else:
            found.append(each)
    return found


def refuse(*_arguments: object) -> Refuse:
    return Refuse("not you")


def test_a_new_broker_has_no_hooks() -> None:
    hooks = House().core.hooks
    assert {site for site in SITES if getattr(hooks, site) is not None} == set()
    assert not hooks.in_publish_path
    assert set(SITES) == {name for name in dir(Hooks()) if name.startswith(("on_", "auth_"))}


@pytest.mark.parametrize("site", SITES)
def test_only_what_sees_each_message_closes_the_fast_path(site: str) -> None:
    house = House()
    listen(house, site)
    expected = site in ("auth_on_publish", "on_publish", "on_deliver")
    assert house.core.hooks.in_publish_path == expected
    setattr(house.core.hooks, site, None)
    house.core.hooks.resolve()
    assert not house.core.hooks.in_publish_path


def everything(house: House) -> list[bytes]:
    """A scene that passes every call site; what its two clients were sent."""
    house.options.max_offline_messages = 1
    subscriber = Client(house, anonymous=house.core.hooks.auth_on_register is None)
    subscriber.send(connect_packet("s", clean=False, username="u", password=b"p"))
    subscriber.send(subscribe_packet(1, ("t", 1), ("u", 0)))
    publisher = house.client("p")
    publisher.send(publish_packet("t", b"0"))
    publisher.send(publish_packet("t", b"1", qos=1, packet_id=1))
    subscriber.send(puback_packet(1))
    subscriber.send(unsubscribe_packet(2, "u"))
    sent = [subscriber.take_bytes()]
    subscriber.lose()
    for number in (2, 3):
        publisher.send(publish_packet("t", b"%d" % number, qos=1, packet_id=number))
    sent.append(publisher.take_bytes())
    publisher.disconnect()
    house.options.persistent_client_expiration = 60.0
    house.wall_clock.advance(61)
    house.registry.expire()
    return sent


def test_hooks_that_only_listen_change_nothing_and_those_that_are_not_set_are_not_called(
    tmp_path: Path,
) -> None:
    with stored_house(tmp_path / "without") as house:
        without = everything(house)
    with stored_house(tmp_path / "with") as house:
        calls = listen(house, *SITES)
        assert everything(house) == without
    assert {call[0] for call in calls} == set(SITES)


# --- CONNECT


def test_auth_on_register_sees_who_connects() -> None:
    house = House()
    calls = listen(house, "auth_on_register", "on_register", "on_client_wakeup")
    client = Client(house, anonymous=False)
    client.send(connect_packet("c", clean=False, username="u", password=b"\0p"))
    assert client.take_one(CONNACK).return_code == 0
    assert calls == [
        ("auth_on_register", "192.0.2.1:4711", "c", "u", b"\0p", False),
        ("on_register", "192.0.2.1:4711", "c", "u"),
        ("on_client_wakeup", "c"),
    ]


def test_auth_on_register_sees_a_client_without_a_login() -> None:
    house = House()
    calls = listen(house, "auth_on_register")
    Client(house, anonymous=False, new_id="given").send(connect_packet(""))
    assert calls == [("auth_on_register", "192.0.2.1:4711", "given", None, None, True)]


def test_on_register_comes_before_anything_is_sent_to_the_session(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        house.client("c", clean=False).subscribe(("t", 1))
        house.client("c", clean=False).lose()
        house.publish("t", b"x", 1)
        calls = listen(house, "on_register", "on_deliver", "on_client_wakeup")
        house.client("c", clean=False)
        assert [call[0] for call in calls] == ["on_register", "on_client_wakeup", "on_deliver"]


@pytest.mark.parametrize(("bad_credentials", "code"), ((True, 4), (False, 5)))
def test_a_refusal_of_auth_on_register_is_answered_and_nothing_happens(
    bad_credentials: bool, code: int
) -> None:
    house = House()

    def no(*_arguments: object) -> Refuse:
        return Refuse("wrong password", bad_credentials=bad_credentials)

    calls = listen(
        house,
        *("auth_on_register", "on_register", "on_client_wakeup", "on_client_gone", "on_publish"),
        answers={"auth_on_register": no},
    )
    watcher = house.client("w")
    watcher.subscribe(("#", 0))
    calls.clear()
    client = Client(house, anonymous=False)
    client.send(connect_packet("c", will=Will("will", b"x")), publish_packet("t", b"x"))
    client.expect(bytes((0x20, 2, 0, code)))
    assert client.is_closed()
    client.lose()
    assert [call[0] for call in calls] == ["auth_on_register"]
    assert watcher.take() == []
    assert "c" not in house.registry.subscribers


def test_a_refused_client_id_takes_nobody_over() -> None:
    house = House()
    first = house.client("c")
    listen(house, "auth_on_register", answers={"auth_on_register": refuse})
    second = Client(house, anonymous=False)
    second.send(connect_packet("c"))
    assert second.is_closed()
    first.ping()


def test_a_listener_for_anonymous_clients_does_not_ask() -> None:
    house = House()
    calls = listen(house, "auth_on_register", answers={"auth_on_register": refuse})
    house.client("c")
    assert calls == []


def test_without_a_hook_a_listener_that_is_not_for_anonymous_clients_lets_nobody_in() -> None:
    client = Client(House(), anonymous=False)
    client.send(connect_packet("c", username="u", password=b"p"))
    client.expect(b"\x20\x02\x00\x05")
    assert client.is_closed()


def test_the_will_is_authorised_at_connect() -> None:
    house = House()
    calls = listen(house, "auth_on_publish")
    house.client("c", will=Will("will", b"x", 1, True), username="u")
    assert calls == [("auth_on_publish", "u", "c", 1, "will", b"x", True)]


def test_a_forbidden_will_refuses_the_connect() -> None:
    house = House()
    listen(house, "auth_on_publish", answers={"auth_on_publish": refuse})
    client = Client(house)
    client.send(connect_packet("c", will=Will("will", b"x")))
    client.expect(b"\x20\x02\x00\x05")
    assert client.is_closed()


# --- PUBLISH


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
def test_auth_on_publish_comes_before_routing_and_on_publish_after(qos: int, retain: bool) -> None:
    house = House()
    house.client("s").subscribe(("t", 2))
    publisher = house.client("p", username="u")
    calls = listen(house, "auth_on_publish", "on_deliver", "on_publish")
    publisher.publish("t", b"x", qos, retain=retain)
    assert calls == [
        ("auth_on_publish", "u", "p", qos, "t", b"x", retain),
        ("on_deliver", None, "s", qos, "t", b"x", False),
        ("on_publish", "u", "p", qos, "t", b"x", retain),
    ]


def test_each_message_of_a_burst_is_seen() -> None:
    house = House()
    publisher = house.client("p")
    calls = listen(house, "on_publish")
    publisher.send(*(publish_packet("t", b"%d" % number) for number in range(5)))
    assert [call[5] for call in calls] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_a_refused_publish_ends_a_3_1_1_connection_unanswered(qos: int) -> None:
    house = House()
    watcher = house.client("w")
    watcher.subscribe(("#", 0))
    publisher = house.client("p", will=Will("will", b"x"))
    calls = listen(house, "auth_on_publish", "on_publish", answers={"auth_on_publish": refuse})
    pid = 1 if qos else None
    publisher.send(
        publish_packet("t", b"x", qos=qos, packet_id=pid, retain=True), publish_packet("t", b"y")
    )
    publisher.expect()
    assert publisher.is_closed()
    assert [call[0] for call in calls] == ["auth_on_publish"], "what came behind it is not read"
    assert watcher.take_published() == [("will", b"x")]
    assert house.retained() == {}


@pytest.mark.parametrize("qos", (0, 1, 2))
def test_a_refused_publish_ends_a_3_1_connection_if_the_options_say_so(qos: int) -> None:
    house = House()
    house.options.disconnect_on_unauthorized_publish_v3 = True
    publisher = house.client("p", level=LEVEL_3_1)
    listen(house, "auth_on_publish", answers={"auth_on_publish": refuse})
    publisher.send(publish_packet("t", b"x", qos=qos, packet_id=1 if qos else None))
    publisher.expect()
    assert publisher.is_closed()


@pytest.mark.parametrize(("qos", "answer"), ((0, b""), (1, b"\x40\x02\0\1"), (2, b"\x50\x02\0\1")))
def test_a_refused_publish_of_mqtt_3_1_is_acknowledged_and_dropped(qos: int, answer: bytes) -> None:
    house = House()
    watcher = house.client("w")
    watcher.subscribe(("#", 0))
    publisher = house.client("p", level=3)
    calls = listen(house, "auth_on_publish", "on_publish", answers={"auth_on_publish": refuse})
    pid = 1 if qos else None
    publisher.send(publish_packet("t", b"x", qos=qos, packet_id=pid, retain=True))
    assert publisher.take_bytes() == answer
    assert [call[0] for call in calls] == ["auth_on_publish"]
    assert watcher.take() == []
    assert house.retained() == {}
    publisher.ping()


def test_a_repeated_qos_2_publish_is_not_asked_about_again() -> None:
    house = House()
    publisher = house.client("p")
    calls = listen(house, "auth_on_publish")
    for dup in (False, True):
        publisher.send(publish_packet("t", b"x", qos=2, packet_id=1, dup=dup))
    assert len(calls) == 1


# --- SUBSCRIBE and UNSUBSCRIBE


def test_auth_on_subscribe_grants_lowers_and_refuses_filter_by_filter() -> None:
    house = House()
    house.publish("yes", b"1", retain=True)
    house.publish("no", b"2", retain=True)
    client = house.client("c", username="u")
    calls = listen(
        house,
        *("auth_on_subscribe", "on_subscribe"),
        answers={
            "auth_on_subscribe": lambda _user, _who, wanted: [
                Subscription(each.topic_filter, qos)
                for each, qos in zip(wanted, (2, 128, 0), strict=True)
            ]
        },
    )
    assert client.subscribe(("yes", 2), ("no", 1), ("lower", 1)) == [2, 128, 0]
    assert calls == [
        ("auth_on_subscribe", "u", "c", [("yes", 2), ("no", 1), ("lower", 1)]),
        ("on_subscribe", "u", "c", [("yes", 2), ("lower", 0)]),
    ]
    assert client.take_published() == [("yes", b"1")]
    assert set(house.registry.subscribers["c"].subscriptions) == {"yes", "lower"}


def test_a_refusal_of_auth_on_subscribe_refuses_every_filter() -> None:
    house = House()
    client = house.client("c")
    listen(house, "auth_on_subscribe", answers={"auth_on_subscribe": refuse})
    assert client.subscribe(("a", 1), ("b", 2)) == [128, 128]
    assert house.registry.subscribers["c"].subscriptions == {}


def test_an_mqtt_3_1_client_is_not_told_of_a_refused_subscription() -> None:
    house = House()
    client = house.client("c", level=3)
    listen(house, "auth_on_subscribe", answers={"auth_on_subscribe": refuse})
    assert client.subscribe(("a", 1)) == [1]
    house.publish("a", b"x", 1)
    assert client.take() == []


def test_on_subscribe_comes_before_the_retained_messages() -> None:
    house = House()
    house.publish("t", b"x", retain=True)
    client = house.client("c")
    calls = listen(house, "on_subscribe", "on_deliver")
    client.subscribe(("t", 0))
    assert calls == [
        ("on_subscribe", None, "c", [("t", 0)]),
        ("on_deliver", None, "c", 0, "t", b"x", True),
    ]


def test_unsubscribing_is_told_before_and_after() -> None:
    house = House()
    client = house.client("c", username="u")
    client.subscribe(("a", 0))
    there: list[bool] = []

    def look(*_arguments: object) -> None:
        there.append("a" in house.registry.subscribers["c"].subscriptions)

    calls = listen(
        house,
        *("on_unsubscribe", "on_topic_unsubscribed"),
        answers={"on_unsubscribe": look, "on_topic_unsubscribed": look},
    )
    client.unsubscribe("a", "b")
    assert calls == [
        ("on_unsubscribe", "u", "c", ["a", "b"]),
        ("on_topic_unsubscribed", "c", ["a", "b"]),
    ]
    assert there == [True, False]


# --- delivery


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
def test_on_deliver_rewrites_what_is_sent_and_nothing_else(qos: int, retain: bool) -> None:
    house = House()
    client, other = house.client("c"), house.client("other")
    other.subscribe(("t", 2))
    listen(
        house,
        "on_deliver",
        answers={
            "on_deliver": lambda _user, who, message: (
                DeliverModifiers(topic="tenant/" + message.topic, payload=message.payload * 2)
                if who.client_id == "c"
                else None
            )
        },
    )
    if retain:
        house.publish("t", b"x", qos, retain=True)
        other.take()
        client.subscribe(("t", 2))
    else:
        client.subscribe(("t", 2))
        house.publish("t", b"x", qos)
        assert other.take_published() == [("t", b"x")]
    packet = client.take_one(PUBLISH)
    assert (packet.topic, packet.payload) == ("tenant/t", b"xx")
    assert (packet.qos, packet.retain, packet.dup) == (qos, retain, False)
    if retain:
        assert house.retained() == {"t": b"x"}


def test_on_deliver_is_asked_again_for_a_repeat_and_gets_the_original(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        client = house.client("c", clean=False)
        client.subscribe(("t", 1))
        calls = listen(
            house,
            "on_deliver",
            answers={
                "on_deliver": lambda *_arguments: DeliverModifiers(topic="other", payload=b"y")
            },
        )
        house.publish("t", b"x", 1)
        client.lose()
        again = house.client("c", clean=False)
        packet = again.take_one(PUBLISH)
        assert (packet.topic, packet.payload, packet.dup) == ("other", b"y", True)
        assert calls == [("on_deliver", None, "c", 1, "t", b"x", False)] * 2


def test_on_deliver_sees_bursts_message_by_message() -> None:
    house = House()
    client = house.client("c")
    client.subscribe(("t", 0))
    calls = listen(
        house,
        "on_deliver",
        answers={
            "on_deliver": lambda _user, _who, message: DeliverModifiers(
                payload=message.payload + b"!"
            )
        },
    )
    house.client("p").send(*(publish_packet("t", b"%d" % number) for number in range(3)))
    assert client.payloads() == [b"0!", b"1!", b"2!"]
    assert len(calls) == 3


def test_on_offline_message_tells_what_is_kept_for_later(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        client = house.client("c", clean=False)
        client.subscribe(("t", 1))
        calls = listen(house, "on_offline_message")
        house.publish("t", b"online", 1)
        client.lose()
        house.publish("t", b"qos 0", 0)
        house.publish("t", b"x", 2)
        assert calls == [("on_offline_message", "c", 1, "t", b"x", False)]


def test_a_dropped_message_is_not_told_as_kept(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        house.options.max_offline_messages = 0
        client = house.client("c", clean=False)
        client.subscribe(("t", 1))
        client.lose()
        calls = listen(house, "on_offline_message", "on_message_drop")
        house.publish("t", b"x", 2)
        [(site, client_id, lazy, reason)] = calls
        assert (site, client_id, reason) == ("on_message_drop", "c", "queue_full")
        assert lazy() == Message("t", b"x", 1)


def test_on_message_drop_tells_which_message_went_when_the_oldest_goes() -> None:
    house = House()
    house.options.max_inflight_messages = 1
    house.options.max_online_messages = 1
    house.options.drop_oldest = True
    house.client("c").subscribe(("t", 2))
    calls = listen(house, "on_message_drop")
    for number in range(4):
        house.publish("t", b"%d" % number, 2)
    assert [call[2]() for call in calls] == [Message("t", b"1", 2), Message("t", b"2", 2)]


# --- the ends of sessions


@pytest.mark.parametrize("orderly", (True, False))
def test_a_clean_session_is_gone_with_its_connection(orderly: bool) -> None:
    house = House()
    client = house.client("c")
    client.subscribe(("a", 0), ("b", 1))
    calls = listen(house, "on_client_gone", "on_client_offline", "on_topic_unsubscribed")
    if orderly:
        client.disconnect()
    else:
        client.lose()
    assert calls == [("on_topic_unsubscribed", "c", ["a", "b"]), ("on_client_gone", "c")]


def test_a_durable_session_goes_offline(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        client = house.client("c", clean=False)
        client.subscribe(("a", 0))
        calls = listen(house, "on_client_gone", "on_client_offline", "on_topic_unsubscribed")
        client.disconnect()
        assert calls == [("on_client_offline", "c")]


def test_a_takeover_ends_one_session_and_begins_the_next() -> None:
    house = House()
    house.client("c")
    calls = listen(house, "on_client_gone", "on_register", "on_client_wakeup")
    house.client("c")
    assert [call[0] for call in calls] == ["on_client_gone", "on_register", "on_client_wakeup"]


def test_on_session_expired(tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        house.options.persistent_client_expiration = 10.0
        house.client("c", clean=False).subscribe(("a", 0))
        house.registry.subscribers["c"].output.close("bye")  # type: ignore[union-attr]
        house.settle()
        calls = listen(house, "on_session_expired", "on_topic_unsubscribed", "on_client_gone")
        house.wall_clock.advance(9.9)
        assert house.registry.expire() == 0
        house.wall_clock.advance(0.1)
        assert house.registry.expire() == 1
        assert calls == [("on_topic_unsubscribed", "c", ["a"]), ("on_session_expired", "c")]


def test_a_connection_that_never_was_accepted_calls_nothing() -> None:
    house = House()
    calls = listen(house, *SITES)
    client = Client(house)
    client.send(b"\x30\x00")
    client.lose()
    assert calls == []


# --- hooks that fail


def fail(*_arguments: object) -> None:
    raise ZeroDivisionError("a defect of a plugin")


@pytest.mark.parametrize("site", [each for each in SITES if not each.startswith("auth_")])
def test_a_hook_that_raises_is_contained_counted_and_named_in_the_log(
    site: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hooks for information change nothing when they fail."""
    with stored_house(tmp_path / "without") as house:
        without = everything(house)
    with stored_house(tmp_path / "with") as house:
        listen(house, site, answers={site: fail})
        assert everything(house) == without
        assert house.core.counters.hook_errors > 0
    assert f"hook {site} failed" in caplog.text
    assert "internal error" not in caplog.text


@pytest.mark.parametrize(
    ("site", "act", "answer"),
    (
        ("auth_on_register", connect_packet("c"), b"\x20\x02\x00\x05"),
        ("auth_on_publish", connect_packet("c", will=Will("w")), b"\x20\x02\x00\x05"),
        (
            "auth_on_subscribe",
            connect_packet("c") + subscribe_packet(1, ("a", 1)),
            b"\x20\x02\x00\x00\x90\x03\x00\x01\x80",
        ),
        (
            "auth_on_publish",
            connect_packet("c") + publish_packet("a", b"x", qos=1, packet_id=1),
            b"\x20\x02\x00\x00",
        ),
    ),
)
def test_an_auth_hook_that_raises_refuses(
    site: str, act: bytes, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    house = House()
    watcher = house.client("w")
    watcher.subscribe(("#", 0))
    listen(house, site, answers={site: fail})
    client = Client(house, anonymous=site != "auth_on_register")
    client.send(act)
    assert client.take_bytes() == answer
    watcher.expect()
    assert house.core.counters.hook_errors == 1
    assert f"hook {site} failed" in caplog.text
    assert client.is_closed() == (site != "auth_on_subscribe")


@pytest.mark.parametrize("site", ("on_client_gone", "on_topic_unsubscribed"))
def test_the_end_of_a_session_is_whole_though_a_hook_fails(site: str) -> None:
    house = House()
    watcher = house.client("w")
    watcher.subscribe(("will", 0), ("$share/g/s", 1))
    client = house.client("c", will=Will("will", b"x"))
    client.subscribe(("$share/g/s", 1))
    house.choice = 1
    house.publish("s", b"shared", 1)
    assert client.payloads() == [b"shared"]
    listen(house, site, answers={site: fail})
    client.lose()
    assert sorted(watcher.payloads()) == [b"shared", b"x"]
    assert "c" not in house.registry.subscribers
    assert house.core.counters.hook_errors == 1


# --- verdicts that come later


@given(st.lists(st.integers(1, 40), max_size=30), st.data())
def test_a_verdict_that_comes_later_changes_nothing_but_the_time(
    sizes: list[int], data: st.DataObject
) -> None:
    """Whatever the chunks, and whenever the verdicts come: everything is handled once, in order."""
    house = House()
    watcher = house.client("w")
    watcher.subscribe(("#", 0))
    pending: list[Pending] = []

    def later(*_arguments: object) -> Pending:
        pending.append(Pending(lambda: None))
        return pending[-1]

    for site in ("auth_on_register", "auth_on_publish", "auth_on_subscribe", "on_unsubscribe"):
        setattr(house.core.hooks, site, later)
    house.core.hooks.resolve()
    stream = connect_packet("c") + subscribe_packet(1, ("x", 0)) + unsubscribe_packet(2, "x")
    for number in range(9):
        qos = number % 3
        stream += publish_packet(
            "t", b"%d" % number, qos=qos, packet_id=number + 1 if qos else None
        )
    client = Client(house, anonymous=False)
    place = 0
    for size in [*sizes, len(stream)]:
        client.send(stream[place : place + size])
        place += size
        while pending and bool(data.draw(st.booleans())):
            assert len(pending) == 1, "one packet at a time"
            pending.pop().finish(None)
    while pending:
        assert not client.transport.reading
        pending.pop().finish(None)
    assert client.transport.reading
    answers = b"\x20\x02\0\0\x90\x03\0\1\0\xb0\x02\0\2"
    for number in range(9):
        if number % 3:
            answers += bytes((0x40 if number % 3 == 1 else 0x50, 2, 0, number + 1))
    assert client.take_bytes() == answers
    assert watcher.payloads() == [b"%d" % number for number in range(9)]


def test_a_connection_that_is_lost_calls_its_verdict_off() -> None:
    house = House()
    cancelled: list[bool] = []
    pending = Pending(lambda: cancelled.append(True))
    house.core.hooks.auth_on_publish = lambda *_arguments: pending
    house.core.hooks.resolve()
    client = house.client("c", will=None)
    client.send(publish_packet("t", b"x"))
    client.lose()
    assert cancelled == [True]
    pending.finish(None)
    assert house.core.counters.router_matches_local == 0


@pytest.mark.parametrize("durable", (False, True))
@pytest.mark.parametrize("retained", (False, True))
def test_a_message_too_large_for_its_new_qos_is_dropped(
    tmp_path: Path, durable: bool, retained: bool
) -> None:
    def change(options: Options) -> None:
        options.upgrade_outgoing_qos = True
        # For 268,435,455: "t" with its length, and a payload of 100.
        options.max_outgoing_length = 103

    with stored_house(tmp_path, change=change) as house:
        calls = listen(house, "on_message_drop")
        if not retained:
            house.client("s", clean=not durable).subscribe(("t", 1))
        publisher = house.client("p")
        for size in (98, 99, 100):
            publisher.publish("t", b"x" * size, retain=retained)
        if retained:
            house.client("s", clean=not durable).subscribe(("t", 1))
        dropped = [(call[0], call[1], len(call[2]().payload), call[3]) for call in calls]
        # Of the retained ones there is one: the last.
        sizes = [100] if retained else [99, 100]
        reason = "max_packet_size_exceeded"
        assert dropped == [("on_message_drop", "s", size, reason) for size in sizes]
        assert house.core.counters.queue_message_drop == len(sizes)
