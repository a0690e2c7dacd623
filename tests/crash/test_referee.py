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


@pytest.mark.parametrize(
    ("qos", "subscribed", "first", "then", "objection"),
    [
        (1, 2, (0, 2), (), "s: lost {}"),
        (2, 2, (0, 2), (), "s: lost {}"),
        (2, 2, (0, 1, 2), (1,), "s: got {} 2 times at QoS 2"),
        (1, 1, (0, 1, 2), (1,), "s: got {} 2 times without DUP, transmitted 1 times"),
        (2, 1, (0, 1, 2), (1,), "s: got {} 2 times without DUP, transmitted 1 times"),
        (1, 2, (0, 2), (1,), "s: got {} for the first time after #2"),
        (2, 2, (0, 2), (1,), "s: got {} for the first time after #2"),
    ],
)
def test_what_becomes_of_the_second_message(
    qos: int, subscribed: int, first: tuple[int, ...], then: tuple[int, ...], objection: str
) -> None:
    """Some come on a first connection, others on the next."""
    history = history_of(3, qos, subscribed)
    deliver(history, *first, qos=qos)
    deliver(history, *then, qos=qos, connection=2)
    assert objection.format(message(1, qos)) in judge(history)


def test_publishers_repetition_at_qos_2_is_an_excuse_at_qos_1() -> None:
    """The broker was killed before it had noted that the first one came."""
    history = history_of(1, subscribed=1)
    deliver(history, 0)
    deliver(history, 0, connection=2)
    assert judge(history) == ["s: got p:t:q2:#0 2 times without DUP, transmitted 1 times"]
    history.sent(message(0))
    assert judge(history) == []


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
