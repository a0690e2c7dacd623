"""The end of sessions with many subscriptions."""

from tests.support.wire import connect_packet, subscribe_packet
from tests.vmq.support import Client, House, watcher
from vmq.core.leaving import FILTERS_A_STEP

MANY = 3 * FILTERS_A_STEP + 7
FILTERS = [f"f/{number}" for number in range(MANY)]


def subscribed_to_all(house: House, name: str = "c", *, qos: int = 0, clean: bool = True) -> Client:
    client = house.client(name, clean=clean)
    client.send(subscribe_packet(1, *((each, qos) for each in FILTERS)))
    client.take()
    return client


def counts(house: House) -> list[int]:
    """Subscriptions that there are now and after each turn."""
    found = [house.registry.trie.count]
    while house.turn():
        found.append(house.registry.trie.count)
    return found


def test_the_subscriptions_of_a_client_that_ends_leave_in_steps(house: House) -> None:
    client = subscribed_to_all(house)
    house.patient = True
    client.lose()
    assert house.registry.subscribers == {}
    assert counts(house) == [MANY - FILTERS_A_STEP, MANY - 2 * FILTERS_A_STEP, 7, 0]
    assert house.registry.trie.root.is_empty()


def test_a_durable_session_that_is_thrown_away_leaves_in_steps(durable: House) -> None:
    subscribed_to_all(durable, qos=1, clean=False).disconnect()
    durable.patient = True
    durable.client().send(connect_packet("c"))
    assert counts(durable)[0] == MANY - FILTERS_A_STEP
    durable.settle()
    assert durable.registry.trie.count == 0


def test_few_leave_at_once(house: House, client: Client) -> None:
    client.subscribe(("a", 0), ("b", 0))
    house.patient = True
    client.lose()
    assert house.registry.trie.count == 0


def test_what_is_published_meanwhile_is_kept_by_nobody(house: House) -> None:
    client = subscribed_to_all(house, qos=1)
    queue = client.queue
    house.patient = True
    client.lose()
    house.publish(FILTERS[-1], b"x", 1)
    house.publish(FILTERS[-1], b"x", 0)
    assert queue.waiting() == 0
    assert queue.dropped == 0


def test_the_client_that_comes_back_meanwhile_keeps_its_new_subscriptions(house: House) -> None:
    client = subscribed_to_all(house, qos=1)
    house.patient = True
    client.lose()
    again = house.client("c")
    again.send(subscribe_packet(1, (FILTERS[-1], 1), (FILTERS[-2], 1)))
    again.take()
    house.settle()
    assert house.registry.trie.count == 2
    house.publish(FILTERS[-1], b"x", 1)
    house.settle()
    assert again.payloads() == [b"x"]


def test_two_at_one_filter_leave_the_third(house: House) -> None:
    one, two = subscribed_to_all(house, "one"), subscribed_to_all(house, "two")
    reader = watcher(house, "f/#")
    house.patient = True
    one.lose()
    two.lose()
    house.settle()
    assert house.registry.trie.count == 1
    house.publish(FILTERS[-1], b"x")
    house.settle()
    assert reader.payloads() == [b"x"]


def test_a_share_group_chooses_nobody_who_leaves(house: House) -> None:
    ending = house.client("a-ending")
    shared = [(f"$share/g/{each}", 1) for each in FILTERS]
    ending.send(subscribe_packet(1, *shared))
    other = house.subscriber("b-other", (f"$share/g/{FILTERS[-1]}", 1))
    house.patient = True
    ending.lose()
    house.publish(FILTERS[-1], b"x", 1)
    house.settle()
    assert other.payloads() == [b"x"]
    other.lose()
    house.publish(FILTERS[-1], b"y", 1)
    house.settle()
    assert house.registry.trie.count == 0


def test_plugins_are_told_of_all(house: House) -> None:
    client = subscribed_to_all(house)
    told: list[list[str]] = []
    house.core.hooks.on_topic_unsubscribed = lambda _who, filters: told.append(list(filters))
    client.lose()
    house.settle()
    assert [each for step in told for each in step] == FILTERS
    assert max(map(len, told)) == FILTERS_A_STEP


def test_what_leaves_does_not_stand_in_the_way_of_a_new_subscription(house: House) -> None:
    """The old one is at a higher QoS, and under another filter that matches, too [MQTT-3.3.5-1]."""
    client = subscribed_to_all(house, qos=2)
    house.patient = True
    client.lose()
    again = house.client("c")
    again.send(subscribe_packet(1, ("f/#", 1)))
    again.take()
    house.publish(FILTERS[-1], b"x", 2)
    house.settle()
    assert again.payloads() == [b"x"]
