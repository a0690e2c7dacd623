from tests.vmq.support import House, publish_numbers, subscribed
from vmq.core.losses import MOST, Losses


def test_what_is_dropped_is_counted_by_client_and_reason(house: House) -> None:
    house.options.max_online_messages = 1
    client = subscribed(house)
    client.block()
    publish_numbers(house, 1, 23, 456, 7)
    (lost,) = house.core.losses.take()
    assert (lost.client_id, lost.reason, lost.messages, lost.bytes) == ("s", "queue_full", 3, 6)
    assert house.core.losses.take() == []


def test_who_lost_most_comes_first() -> None:
    losses = Losses()
    for client, count in (("few", 1), ("many", 3), ("some", 2)):
        for _ in range(count):
            losses.add("", client, "queue_full", 1)
    losses.add("other world", "many", "expired", 5)
    found = [(each.client_id, each.messages) for each in losses.take()]
    assert found == [("many", 3), ("some", 2), ("few", 1), ("many", 1)]


def test_a_bounded_number_of_clients_is_told_apart() -> None:
    losses = Losses()
    for number in range(MOST + 50):
        losses.add("", f"c{number}", "queue_full", 2)
    found = losses.take()
    assert len(found) == MOST + 1
    assert (found[0].client_id, found[0].messages, found[0].bytes) == ("", 50, 100)
