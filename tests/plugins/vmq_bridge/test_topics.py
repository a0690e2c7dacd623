"""Names on both sides of a bridge."""

import pytest
from vmq_bridge import TopicConfig
from vmq_bridge.topics import NotCarriedError, Topics
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
        ("both/x/y", ("x/y", 0)),
    ],
)
def test_outgoing(topic: str, wanted: tuple[str, int]) -> None:
    assert TOPICS.outgoing(topic) == wanted


@pytest.mark.parametrize(
    ("topic", "wanted"), [("site/lamp/set", ("lamp/set", 2)), ("site/lamp", ("both/site/lamp", 0))]
)
def test_incoming(topic: str, wanted: tuple[str, int]) -> None:
    assert TOPICS.incoming(topic) == wanted


def test_what_no_rule_has_is_not_carried() -> None:
    for topic in ("l/b", "lamp/set"):
        with pytest.raises(NotCarriedError, match="no rule has this topic"):
            TOPICS.outgoing(topic)
    with pytest.raises(NotCarriedError, match="no rule has this topic"):
        TOPICS.incoming("$SYS/x")


def in_both_directions(local_prefix: str, remote_prefix: str, pattern: str = "#") -> Topics:
    return Topics(
        [
            TopicConfig(
                pattern=pattern,
                direction="both",
                qos=1,
                local_prefix=local_prefix,
                remote_prefix=remote_prefix,
            )
        ]
    )


def test_the_parent_of_a_prefix_is_renamed_to_the_parent_of_the_other() -> None:
    topics = in_both_directions("sensors/", "site1/sensors/")
    for here, there in (
        ("sensors", "site1/sensors"),
        ("sensors/", "site1/sensors/"),
        ("sensors/1", "site1/sensors/1"),
    ):
        assert topics.outgoing(here) == (there, 1)
        assert topics.incoming(there) == (here, 1)


@pytest.mark.parametrize("topic", ["sensors", "sensors/"])
def test_what_would_be_the_empty_topic_is_not_carried(topic: str) -> None:
    with pytest.raises(NotCarriedError, match=r"would be empty \[MQTT-4\.7\.3-1\]"):
        in_both_directions("sensors/", "").outgoing(topic)
    with pytest.raises(NotCarriedError, match="would be empty"):
        in_both_directions("", "sensors/").incoming(topic)


def test_the_parent_of_a_level_that_the_pattern_begins_with() -> None:
    topics = in_both_directions("here", "", "/#")
    assert topics.outgoing("here/a") == ("/a", 1)
    with pytest.raises(NotCarriedError, match="would be empty"):
        topics.outgoing("here")
    with pytest.raises(NotCarriedError, match="would be empty"):
        in_both_directions("here/", "/").outgoing("here")


@pytest.mark.parametrize("character", ["\x01", "\t", "\x7f", "\x9f", "\ufdd0", "\U0010ffff"])
def test_what_a_broker_may_close_the_connection_for_does_not_go_there(character: str) -> None:
    topics = in_both_directions("", "")
    with pytest.raises(NotCarriedError, match="control character"):
        topics.outgoing(f"a{character}b")
    assert topics.incoming(f"a{character}b") == (f"a{character}b", 1)
    assert topics.outgoing("a b/\xa0\ufeffé\U0001f600") == ("a b/\xa0\ufeffé\U0001f600", 1)


def test_the_longest_topic() -> None:
    topics = in_both_directions("", "é/")
    assert topics.outgoing("t" * 65_532) == ("é/" + "t" * 65_532, 1)
    with pytest.raises(NotCarriedError, match=r"more than 65535 bytes \[MQTT-4\.7\.3-3\]"):
        topics.outgoing("t" * 65_533)
    back = in_both_directions("é/", "")
    with pytest.raises(NotCarriedError, match="more than 65535 bytes"):
        back.incoming("t" * 65_533)
