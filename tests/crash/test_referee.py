"""The referee objects to what it is there to object to. (To nothing else: the runs.)"""

import pytest

from tests.crash.history import Delivery, History, Message, message_in
from tests.crash.referee import judge

TOPIC = "t"


def message(number: int, qos: int = 2) -> Message:
    return Message("p", TOPIC, qos, number)


def history_of(count: int, qos: int = 2, subscribed: int = 2) -> History:
    """A history with `count` acknowledged messages that nobody has got yet."""
    history = History()
    history.subscribe("s", lambda topic: topic == TOPIC, subscribed)
    for number in range(count):
        history.sent(message(number, qos))
        history.acknowledge(message(number, qos))
    return history


def deliver(
    history: History, *numbers: int, qos: int = 2, dup: bool = False, connection: int = 1
) -> None:
    """The subscriber gets messages of this QoS, at the lower of it and its subscription's."""
    effective = min(qos, history.subscriptions["s"].qos)
    for number in numbers:
        history.delivered("s", Delivery(message(number, qos), effective, dup, connection))


@pytest.mark.parametrize("qos", (1, 2))
def test_loss(qos: int) -> None:
    history = history_of(3, qos)
    deliver(history, 0, 2, qos=qos)
    assert judge(history) == [f"s: lost p:t:q{qos}:#1"]


@pytest.mark.parametrize("dup", (False, True))
@pytest.mark.parametrize("connection", (1, 2))
def test_twice_at_qos_2(dup: bool, connection: int) -> None:
    history = history_of(2)
    deliver(history, 0, 1)
    deliver(history, 1, dup=dup, connection=connection)
    assert "s: got p:t:q2:#1 2 times at QoS 2" in judge(history)


@pytest.mark.parametrize("published", (1, 2))
def test_twice_at_qos_1_without_dup(published: int) -> None:
    history = history_of(2, published, subscribed=1)
    deliver(history, 0, 1, qos=published)
    deliver(history, 1, qos=published, connection=2)
    name = message(1, published)
    assert judge(history) == [f"s: got {name} 2 times without DUP, transmitted 1 times"]


def test_publishers_repetition_at_qos_2_is_an_excuse_at_qos_1() -> None:
    """The broker was killed before it had noted that the first one came."""
    history = history_of(1, subscribed=1)
    deliver(history, 0)
    deliver(history, 0, connection=2)
    assert judge(history) == ["s: got p:t:q2:#0 2 times without DUP, transmitted 1 times"]
    history.sent(message(0))
    assert judge(history) == []


@pytest.mark.parametrize("qos", (1, 2))
def test_reordering(qos: int) -> None:
    history = history_of(4, qos)
    deliver(history, 0, 2, qos=qos)
    deliver(history, 1, 3, qos=qos, connection=2)
    name = message(1, qos)
    assert judge(history) == [f"s: got {name} for the first time after #2"]


def test_redelivery_out_of_order() -> None:
    history = history_of(3, qos=1)
    deliver(history, 0, 1, 2, qos=1)
    deliver(history, 2, 1, qos=1, dup=True, connection=2)
    assert judge(history) == ["s: got p:t:q1:#1 after #2 on connection 2"]


def test_strangers() -> None:
    history = history_of(1)
    deliver(history, 0, 1)
    history.delivered("s", Delivery(Message("p", "other", 2, 0), 2, False, 1))
    history.sent(message(2))
    history.delivered("s", Delivery(message(2), 1, False, 1))
    assert judge(history) == [
        "s: got p:t:q2:#1, which was not meant for it",
        "s: got p:other:q2:#0, which was not meant for it",
        "s: got p:t:q2:#2 at QoS 1, subscribed at 2",
    ]


def test_objections_of_clients_count() -> None:
    history = history_of(0)
    history.object("session lost")
    assert judge(history) == ["session lost"]


def test_payloads_show_damage() -> None:
    original = Message("pub", "a/b", 1, 7)
    payload = original.payload(b"with spaces and \x00")
    assert message_in(payload) == original
    assert message_in(original.payload()) == original
    for damaged in (payload[:-1], payload.replace(b"7", b"8", 1), b"", b"x"):
        with pytest.raises(ValueError, match="payload"):
            message_in(damaged)
