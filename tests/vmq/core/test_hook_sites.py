"""Hooks as such: without them nothing is called, and neither their failures nor their delays harm."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.hook_sites import SITES, everything, listen
from tests.vmq.support import Client, House, stored_house
from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Hooks, Pending


def test_a_new_broker_has_no_hooks() -> None:
    hooks = House().core.hooks
    assert {site for site in SITES if getattr(hooks, site) is not None} == set()
    assert not hooks.in_publish_path
    assert set(SITES) == {name for name in dir(Hooks()) if name.startswith(("on_", "auth_"))}


@pytest.mark.parametrize("site", SITES)
def test_only_what_sees_each_message_closes_the_fast_path(site: str, house: House) -> None:
    listen(house, site)
    expected = site in ("auth_on_publish", "on_publish", "on_deliver")
    assert house.core.hooks.in_publish_path == expected
    setattr(house.core.hooks, site, None)
    house.core.hooks.resolve()
    assert not house.core.hooks.in_publish_path


def test_hooks_that_only_listen_change_nothing_and_those_that_are_not_set_are_not_called(
    tmp_path: Path,
) -> None:
    with stored_house(tmp_path / "without") as house:
        without = everything(house)
    with stored_house(tmp_path / "with") as house:
        calls = listen(house, *SITES)
        assert everything(house) == without
    assert {call[0] for call in calls} == set(SITES)


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
        listen(house, **{site: fail})
        assert everything(house) == without
        assert house.core.counters.hook_errors > 0
    assert f"hook {site} failed" in caplog.text
    assert "internal error" not in caplog.text


@pytest.mark.parametrize(
    ("site", "act", "answer"),
    (
        ("auth_on_register", mqtt.connect_packet("c"), b"\x20\x02\x00\x03"),
        ("auth_on_publish", mqtt.connect_packet("c", will=mqtt.Will("w")), b"\x20\x02\x00\x03"),
        (
            "auth_on_subscribe",
            mqtt.connect_packet("c") + mqtt.subscribe_packet(1, ("a", 1)),
            b"\x20\x02\x00\x00",
        ),
        (
            "auth_on_publish",
            mqtt.connect_packet("c") + mqtt.publish_packet("a", b"x", qos=1, packet_id=1),
            b"\x20\x02\x00\x00",
        ),
    ),
)
def test_an_auth_hook_that_raises_has_the_client_come_again(
    site: str, act: bytes, answer: bytes, caplog: pytest.LogCaptureFixture, house: House
) -> None:
    watcher = house.subscriber("w", ("#", 0))
    listen(house, **{site: fail})
    client = Client(house, anonymous=site != "auth_on_register")
    client.send(act)
    assert client.take_bytes() == answer
    watcher.expect()
    assert house.core.counters.hook_errors == 1
    assert f"hook {site} failed" in caplog.text
    assert client.is_closed()


@pytest.mark.parametrize("site", ("on_client_gone", "on_topic_unsubscribed"))
def test_the_end_of_a_session_is_whole_though_a_hook_fails(site: str, house: House) -> None:
    watcher = house.subscriber("w", ("will", 0), ("$share/g/s", 1))
    client = house.subscriber("c", ("$share/g/s", 1), will=mqtt.Will("will", b"x"))
    house.choice = 1
    house.publish("s", b"shared", 1)
    assert client.payloads() == [b"shared"]
    listen(house, **{site: fail})
    client.lose()
    assert sorted(watcher.payloads()) == [b"shared", b"x"]
    assert "c" not in house.registry.subscribers
    assert house.core.counters.hook_errors == 1


@given(st.lists(st.integers(1, 40), max_size=30), st.data())
def test_a_verdict_that_comes_later_changes_nothing_but_the_time(
    sizes: list[int], data: st.DataObject
) -> None:
    """Whatever the chunks, and whenever the verdicts come: everything is handled once, in order."""
    house = House()
    watcher = house.subscriber("w", ("#", 0))
    pending: list[Pending] = []
    asked = 0

    def later(*_arguments: object) -> Pending:
        nonlocal asked
        asked += 1
        pending.append(Pending(lambda: None))
        return pending[-1]

    for site in ("auth_on_register", "auth_on_publish", "auth_on_subscribe", "on_unsubscribe"):
        setattr(house.core.hooks, site, later)
    house.core.hooks.resolve()
    stream = (
        mqtt.connect_packet("c")
        + mqtt.subscribe_packet(1, ("x", 0))
        + mqtt.unsubscribe_packet(2, "x")
    )
    for number in range(9):
        qos = number % 3
        stream += mqtt.publish_packet(
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
    while pending or house.turn():
        if pending:
            # Who waits for its login is read until more comes: so it is seen when it goes away.
            assert asked == 1 or not client.transport.reading
            pending.pop().finish(None)
    assert client.transport.reading
    answers = b"\x20\x02\0\0\x90\x03\0\1\0\xb0\x02\0\2"
    for number in range(9):
        if number % 3:
            answers += bytes((0x40 if number % 3 == 1 else 0x50, 2, 0, number + 1))
    assert client.take_bytes() == answers
    assert watcher.payloads() == [b"%d" % number for number in range(9)]


def test_a_connection_that_is_lost_calls_its_verdict_off(house: House) -> None:
    cancelled: list[bool] = []
    pending = Pending(lambda: cancelled.append(True))
    house.core.hooks.auth_on_publish = lambda *_arguments: pending
    house.core.hooks.resolve()
    client = house.client("c", will=None)
    client.send(mqtt.publish_packet("t", b"x"))
    client.lose()
    assert cancelled == [True]
    pending.finish(None)
    assert house.core.counters.router_matches_local == 0


@pytest.mark.parametrize("durable", (False, True))
@pytest.mark.parametrize("retained", (False, True))
def test_a_message_too_large_for_its_new_qos_is_dropped(
    tmp_path: Path, durable: bool, retained: bool
) -> None:
    def change(options: CoreOptions) -> None:
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
