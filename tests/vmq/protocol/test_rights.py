"""What a new verdict makes of subscriptions that there are; in a running broker see plugins/test_reauthorize.py."""

import logging

import pytest
from vmq_hooks import REFUSED_QOS, Refuse, Subscription

from tests.vmq.support import House
from vmq.core.hook_sites import AcceptedUntil, Answer
from vmq.core.subscriber import Subscriber
from vmq.plugins.chains import Granted
from vmq.protocol.rights import lapse_of, take_back, tell_of_lost, wanted_of


def subscriber(house: House, *filters: str) -> Subscriber:
    client = house.subscriber("c", *[(each, 1) for each in filters])
    client.take()
    return house.registry.subscribers["c"]


def test_what_is_refused_or_replaced_ends_and_a_lower_qos_is_taken_over(house: House) -> None:
    found = subscriber(house, "a", "b", "c", "d")
    wanted = wanted_of(found)
    granted = [
        Subscription("a", 1),
        Subscription("b", REFUSED_QOS),
        Subscription("other", 1),
        Subscription("d", 0),
    ]
    assert take_back(house.registry, found, wanted, granted) == ["b", "c"]
    assert {each.topic_filter: each.qos for each in wanted_of(found)} == {"a": 1, "d": 0}
    assert house.registry.trie.count == 2


@pytest.mark.parametrize(("later", "left"), ((0, 0), (1, 1), (2, 1)))
def test_a_late_verdict_makes_no_later_subscription_higher(
    house: House, later: int, left: int
) -> None:
    client = house.subscriber("c", ("a", 2))
    found = house.registry.subscribers["c"]
    wanted = wanted_of(found)
    client.subscribe(("a", later))
    assert take_back(house.registry, found, wanted, [Subscription("a", 1)]) == []
    assert [each.qos for each in wanted_of(found)] == [left]


def test_a_refusal_ends_all_of_them_and_no_change_none(house: House) -> None:
    found = subscriber(house, "a", "b")
    for accepted in (None, AcceptedUntil(1.0)):
        assert take_back(house.registry, found, wanted_of(found), accepted) == []
    assert take_back(house.registry, found, wanted_of(found), Refuse("no")) == ["a", "b"]
    assert found.subscriptions == {}


def test_until_when_a_verdict_holds() -> None:
    granted = Granted([Subscription("a", 1)])
    answers: list[Answer] = [None, Refuse("no"), [], granted]
    assert [lapse_of(each) for each in answers] == [0.0] * 4
    granted.until = 5.0
    assert [lapse_of(each) for each in (AcceptedUntil(7.0), granted)] == [7.0, 5.0]


def test_what_ended_is_told(house: House, caplog: pytest.LogCaptureFixture) -> None:
    found = subscriber(house, "a")
    told: list[list[str]] = []
    house.core.hooks.on_topic_unsubscribed = lambda _who, filters: told.append(filters)
    with caplog.at_level(logging.INFO, "vmq.session"):
        tell_of_lost(house.registry, found, house.core.hooks, [], "acl")
        tell_of_lost(house.registry, found, house.core.hooks, ["a"], "acl")
    assert told == [["a"]]
    assert caplog.messages == ['subscriptions ended client=c user="" count=1 plugin=acl']
