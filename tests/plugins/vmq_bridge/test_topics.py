"""Names on both sides of a bridge."""

import pytest
from vmq_bridge import TopicConfig
from vmq_bridge.topics import Topics
from vmq_hooks import Subscription

TOPICS = Topics(
    [
        TopicConfig(pattern="a/#", qos=1, local_prefix="l/", remote_prefix="r/"),
        TopicConfig(pattern="l/a/b", qos=2),
        TopicConfig(pattern="+/set", direction="in", qos=2, remote_prefix="site/"),
        TopicConfig(pattern="#", direction="both", local_prefix="both/"),
        TopicConfig(pattern="#", direction="both", qos=1, local_prefix="both/"),
    ]
)


def test_subscriptions_are_made_once_with_the_highest_qos() -> None:
    assert TOPICS.local_subscriptions() == [
        Subscription("l/a/#", 1),
        Subscription("l/a/b", 2),
        Subscription("both/#", 1),
    ]
    assert TOPICS.remote_subscriptions() == [Subscription("site/+/set", 2), Subscription("#", 1)]


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        ("l/a/b", ("r/a/b", 1)),  # the first rule counts
        ("l/a", ("r/a", 1)),
        ("l/b", None),
        ("both/x/y", ("x/y", 0)),
        ("lamp/set", None),
    ],
)
def test_outgoing(topic: str, wanted: tuple[str, int] | None) -> None:
    assert TOPICS.outgoing(topic) == wanted


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [("site/lamp/set", ("lamp/set", 2)), ("site/lamp", ("both/site/lamp", 0)), ("$SYS/x", None)],
)
def test_incoming(topic: str, wanted: tuple[str, int] | None) -> None:
    assert TOPICS.incoming(topic) == wanted
