"""The subscriptions of one client against a plain dict."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.core.test_trie import make_queue
from tests.vmq.support import House
from vmq.core.subscription_set import Subscription, SubscriptionSet, cost_of

FILTERS = st.sampled_from(["a", "a/#", "+/b", "$share/g/a"])


@given(st.lists(st.tuples(st.sampled_from(["put", "put", "take", "take all"]), FILTERS)))
def test_it_is_a_dict(changes: list[tuple[str, str]]) -> None:
    found = SubscriptionSet()
    plain: dict[str, Subscription] = {}
    queue = make_queue("c", House().core)
    for change, topic_filter in changes:
        if change == "take all":
            found.take_all()
            plain.clear()
        elif change == "take":
            assert found.take(topic_filter) == (plain.pop(topic_filter, None) is not None)
        elif topic_filter not in plain:
            group = topic_filter if topic_filter.startswith("$share/") else ""
            plain[topic_filter] = subscription = Subscription(queue, 1, group)
            found.put(topic_filter, subscription)
        assert found.subscriptions == plain
        assert list(found.subscriptions) == list(plain)
        assert found.find(topic_filter) is plain.get(topic_filter)
        assert found.find("") is None
        assert found.cost == sum(cost_of(each, plain[each].group) for each in plain)


def test_one_subscription_makes_no_dict() -> None:
    found = SubscriptionSet()
    queue = make_queue("c", House().core)
    found.put("a", Subscription(queue, 1, ""))
    assert found.many is None
    found.put("b", Subscription(queue, 1, ""))
    assert sys.getsizeof(found.many) > 150
    assert found.take("a")
    assert found.take("b")
    assert found.many is None
