"""SUBSCRIBE and UNSUBSCRIBE in steps: how much one pass does, what waits meanwhile, and what comes out in the end."""

import pytest
from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.verdicts import Refuse

from tests.support import wire as mqtt
from tests.support.present import present
from tests.vmq.hook_sites import later_verdicts
from tests.vmq.support import Client, House, work_of_turns
from vmq.core.hook_sites import Answer
from vmq.protocol.subscribe import FILTERS_A_STEP, NODES_A_STEP

MANY = 3 * FILTERS_A_STEP + 7
FILTERS = [f"f/{number}" for number in range(MANY)]


@pytest.fixture
def house() -> House:
    house = House()
    house.patient = True
    return house


def turns(house: House) -> int:
    """Takes turns until nothing is left; returns how many they were."""
    count = 0
    while house.turn():
        count += 1
    house.settle()
    return count


def connected(house: House, name: str = "c", *, clean: bool = True) -> Client:
    house.patient = False
    client = house.client(name, clean=clean)
    house.patient = True
    return client


def of_type(packets: list[mqtt.Packet], kind: int) -> list[mqtt.Packet]:
    return [each for each in packets if each.type == kind]


def test_a_long_subscribe_goes_in_steps_and_what_is_behind_waits(house: House) -> None:
    client = connected(house)
    pairs = [(each, index % 3) for index, each in enumerate(FILTERS)]
    client.send(mqtt.subscribe_packet(5, *pairs), mqtt.PINGREQ_BYTES)
    subscriber = present(client.connection.session.subscriber)
    counts = [len(subscriber.subscriptions)]
    while house.turn():
        counts.append(len(subscriber.subscriptions))
    steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert sum(steps) == MANY
    assert max(steps) == FILTERS_A_STEP
    assert [each.type for each in client.take()] == [mqtt.SUBACK, mqtt.PINGRESP]


def test_a_short_one_is_answered_at_once(house: House) -> None:
    client = connected(house)
    client.send(mqtt.subscribe_packet(5, *((each, 0) for each in FILTERS[:FILTERS_A_STEP])))
    assert len(of_type(client.take(), mqtt.SUBACK)) == 1


@pytest.mark.parametrize("clean", [False, True])
def test_one_that_is_malformed_at_its_end_has_no_effect(durable: House, clean: bool) -> None:
    client = connected(durable, clean=clean)
    subscriber = present(client.connection.session.subscriber)
    client.send(mqtt.subscribe_packet(5, *((each, 0) for each in FILTERS), ("a/#/b", 0)))
    durable.settle()
    assert client.is_closed()
    assert subscriber.subscriptions == {}


def test_a_long_unsubscribe_goes_in_steps(house: House) -> None:
    client = connected(house)
    client.send(mqtt.subscribe_packet(5, *((each, 0) for each in FILTERS)))
    turns(house)
    client.take()
    subscriber = present(client.connection.session.subscriber)
    client.send(mqtt.unsubscribe_packet(6, *FILTERS), mqtt.PINGREQ_BYTES)
    counts = [len(subscriber.subscriptions)]
    while house.turn():
        counts.append(len(subscriber.subscriptions))
    steps = [before - after for before, after in zip([MANY, *counts], counts, strict=False)]
    assert sum(steps) == MANY
    assert max(steps) == FILTERS_A_STEP
    assert [each.type for each in client.take()] == [mqtt.UNSUBACK, mqtt.PINGRESP]
    assert house.registry.trie.count == 0


def test_the_end_of_a_client_ends_its_request(house: House) -> None:
    client = connected(house)
    client.send(mqtt.subscribe_packet(5, *((each, 0) for each in FILTERS)))
    client.connection.close("enough")
    turns(house)
    assert house.registry.trie.count == 0
    assert of_type(client.take(), mqtt.SUBACK) == []


def refuse_even(_user: object, _who: object, wanted: list[Subscription]) -> Answer:
    even = [int(each.topic_filter[2:]) % 2 == 0 for each in wanted]
    return [
        Subscription(each.topic_filter, REFUSED_QOS) if refused else each
        for each, refused in zip(wanted, even, strict=True)
    ]


def test_a_plugin_judges_step_by_step(house: House) -> None:
    asked: list[int] = []

    def judge(user: object, who: object, wanted: list[Subscription]) -> Answer:
        asked.append(len(wanted))
        return refuse_even(user, who, wanted)

    client = connected(house)
    house.core.hooks.auth_on_subscribe = judge
    client.send(mqtt.subscribe_packet(5, *((each, 1) for each in FILTERS)))
    turns(house)
    assert asked == [FILTERS_A_STEP] * 3 + [7]
    [answer] = client.take()
    assert answer.codes == [0x80, 1] * (MANY // 2) + [0x80] * (MANY % 2)


def test_verdicts_that_come_later_keep_the_order(house: House) -> None:
    asked, later = later_verdicts()
    client = connected(house)
    house.core.hooks.auth_on_subscribe = later
    client.send(mqtt.subscribe_packet(5, *((each, 1) for each in FILTERS)), mqtt.PINGREQ_BYTES)
    turns(house)
    for step in range(4):
        assert len(asked) == step + 1
        asked[step].finish(Refuse("no") if step == 1 else None)
        turns(house)
    answer, pong = client.take()
    assert pong.type == mqtt.PINGRESP
    assert answer.codes == [1] * FILTERS_A_STEP + [0x80] * FILTERS_A_STEP + [1] * (
        MANY - 2 * FILTERS_A_STEP
    )


def retain(house: House, count: int, prefix: str = "r") -> None:
    for number in range(count):
        house.publish(f"{prefix}/{number}", b"%d" % number, 0, retain=True)


def test_retained_messages_are_looked_for_in_steps(house: House) -> None:
    retain(house, 3 * NODES_A_STEP)
    client = connected(house)
    before = house.core.work
    client.send(mqtt.subscribe_packet(5, ("#", 0)), mqtt.PINGREQ_BYTES)
    taken = client.take()
    assert taken[0].type == mqtt.SUBACK
    assert of_type(taken, mqtt.PINGRESP) == []
    steps = work_of_turns(house, before)
    house.settle()
    taken += client.take()
    assert len(of_type(taken, mqtt.PINGRESP)) == 1
    payloads = [each.payload for each in of_type(taken, mqtt.PUBLISH)]
    assert sorted(payloads, key=int) == [b"%d" % number for number in range(3 * NODES_A_STEP)]
    assert max(steps) <= 2 * NODES_A_STEP + 8
    assert len(steps) >= 3


def test_a_filter_that_is_repeated_counts_once_and_has_each_of_its_codes(house: House) -> None:
    retain(house, 50)
    client = connected(house)
    before = house.core.work
    client.send(
        mqtt.subscribe_packet(5, *(("#", number % 2) for number in range(2 * FILTERS_A_STEP)))
    )
    turns(house)
    taken = client.take()
    assert taken[0].codes == [0, 1] * FILTERS_A_STEP
    assert len(of_type(taken, mqtt.PUBLISH)) == 50
    assert house.core.work - before < 40 * FILTERS_A_STEP


def test_many_filters_over_many_retained_messages_are_bounded_each_turn(house: House) -> None:
    retain(house, 500)
    client = connected(house)
    before = house.core.work
    client.send(mqtt.subscribe_packet(5, *((f"{'+/' * depth}#", 0) for depth in range(40))))
    steps = work_of_turns(house, before)
    assert max(steps) <= 2 * NODES_A_STEP + 8 * 40
    assert len(steps) > 10


def test_a_subscription_that_ends_meanwhile_brings_no_more(house: House) -> None:
    retain(house, 3 * NODES_A_STEP)
    client = connected(house)
    client.send(mqtt.subscribe_packet(5, ("r/+", 0)))
    subscriber = present(client.connection.session.subscriber)
    house.registry.unsubscribe(subscriber, "r/+")
    turns(house)
    assert len(of_type(client.take(), mqtt.PUBLISH)) < NODES_A_STEP


def test_a_durable_session_gets_them_all_in_order_of_its_filters(durable: House) -> None:
    durable.options.max_inflight_messages = 0
    durable.options.max_online_messages = durable.options.max_offline_messages = -1
    for prefix in ("a", "b"):
        for number in range(NODES_A_STEP):
            durable.publish(f"{prefix}/{number}", prefix.encode(), 1, retain=True)
    client = connected(durable, clean=False)
    client.send(mqtt.subscribe_packet(5, ("a/+", 1), ("b/+", 1)))
    durable.settle()
    taken = [each.payload for each in of_type(client.take(), mqtt.PUBLISH)]
    assert taken == [b"a"] * NODES_A_STEP + [b"b"] * NODES_A_STEP
