"""Which rule decides, and which one is missing."""

from pathlib import Path

import pytest
from vmq_acl.acl import Acl, Verdict
from vmq_acl.explaining import explanation
from vmq_acl.names import Names
from vmq_acl.rules import Access, parse
from vmq_hooks import Message, Question, SubscriberId, Subscription

PATH = Path("config/acl")
RULES = """\
topic read public/#

user alice
topic news/#
topic deny news/secret
topic read a
topic read a/+/#
pattern write own/%c/#
pattern deny never/%u
"""
ACL = Acl(parse(RULES.encode(), PATH))


def publish(topic: str, user: str | None = "alice", client_id: str = "c") -> tuple[str, str]:
    who = SubscriberId(client_id)
    question = Question(
        hook="auth_on_publish", username=user, subscriber_id=who, message=Message(topic, b"")
    )
    found = explanation(ACL, PATH, question)
    return found.reason, found.remedy


def subscribe(topic_filter: str, user: str | None = "alice") -> tuple[str, str]:
    question = Question(
        hook="auth_on_subscribe",
        username=user,
        subscriber_id=SubscriberId("c"),
        subscription=Subscription(topic_filter),
    )
    found = explanation(ACL, PATH, question)
    return found.reason, found.remedy


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("news/x", "config/acl, line 4 grants it: topic readwrite news/#"),
        ("own/c/x", "config/acl, line 8 grants it: pattern write own/%c/#"),
        ("news/secret", "config/acl, line 5 denies it: topic deny news/secret"),
        ("never/alice", "config/acl, line 9 denies it: pattern deny never/%u"),
        ("other", "no rule of config/acl lets alice write other"),
    ],
)
def test_the_rule_is_named(topic: str, reason: str) -> None:
    assert publish(topic)[0] == reason


def test_what_would_grant_it_is_said() -> None:
    assert publish("other")[1] == "`topic write other` below `user alice` would grant it"
    assert publish("other", None) == (
        "no rule of config/acl lets a client without a user name write other",
        "`topic write other` before the first user would grant it",
    )
    assert "a denial wins over every grant (config/acl, line 5)" in publish("news/secret")[1]


def test_a_filter_needs_the_right_to_all_that_it_matches() -> None:
    assert subscribe("b/#") == (
        "no rule of config/acl lets alice read all that b/# matches",
        "`topic read b/#` below `user alice` would grant it",
    )
    assert subscribe("news/+")[0] == "config/acl, line 5 denies it: topic deny news/secret"
    assert subscribe("$share/g/b")[0] == "no rule of config/acl lets alice read b"
    assert subscribe("a/#")[0] == "rules of config/acl grant it together"


def test_names_that_patterns_do_not_take_are_told() -> None:
    assert "its names have + or #" in publish("own/x", client_id="+")[0]
    assert "a name of this client cannot be put into it" in publish("x", user="$a")[0]


def test_the_rule_alone_gives_the_verdict() -> None:
    names = Names("alice", "c")
    for verdict, topic in ((Verdict.GRANTED, "news/x"), (Verdict.DENIED, "news/secret")):
        rule = ACL.rule_for(verdict, Access.WRITE, topic, names)
        assert rule is not None
        assert Acl([rule]).check(Access.WRITE, topic, names) is verdict
    assert ACL.rule_for(Verdict.DENIED, Access.WRITE, "news/secret", Names("bob", "c")) is None
