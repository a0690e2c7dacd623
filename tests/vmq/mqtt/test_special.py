"""The grammar of topics that are a service's: levels, options, percent-encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.mqtt import special


@pytest.mark.parametrize(
    ("topic", "queue", "options", "verb"),
    [
        ("$jobs/mail", "mail", {}, ""),
        ("$jobs/mail;delay=60;key=a%3Bb", "mail", {"delay": "60", "key": "a;b"}, ""),
        ("$jobs/a%2Fb%25", "a/b%", {}, ""),
        ("$jobs/mail;prefetch=5/manual/+", "mail", {"prefetch": "5"}, "manual"),
        ("$jobs/mail!dead/ack", "mail!dead", {}, "ack"),
        ("$jobs/ma%C5%BElin/working", "mažlin", {}, "working"),
        ("$jobs/error/nack", "error", {}, "nack"),
    ],
)
def test_what_a_topic_says(topic: str, queue: str, options: dict[str, str], verb: str) -> None:
    found = special.read_job_topic(topic)
    assert (found.queue, found.options, found.verb) == (queue, options, verb)
    assert special.is_served(topic)


@pytest.mark.parametrize(
    ("topic", "reason", "queue"),
    [
        ("$jobs/", "missing", ""),
        ("$jobs/;ttl=3", "missing", ""),
        ("$jobs/+", "wildcard", ""),
        ("$jobs/#", "wildcard", ""),
        ("$jobs/mail;ttl=+", "wildcard", "mail"),
        ("$jobs/mail;ttl", "NAME=VALUE", "mail"),
        ("$jobs/mail;ttl=1;ttl=2", "once", "mail"),
        ("$jobs/mail/done", "not known: done", "mail"),
        ("$jobs/mail/ack/x", "not known: ack/x", "mail"),
        ("$jobs/mail;ttl=3/ack", "not known: ack", "mail"),
        ("$jobs/mail/manual", "not known: manual", "mail"),
        ("$jobs/mail/manual/x", "not known: manual/x", "mail"),
        ("$jobs/mail/+", "not known: +", "mail"),
        ("$jobs/a%2", "two hexadecimal digits", ""),
        ("$jobs/a%xx", "two hexadecimal digits", ""),
        ("$jobs/a%ff", "UTF-8", ""),
        ("$share/g/$jobs/mail", "shared by its workers anyway", ""),
    ],
)
def test_what_is_none_and_why(topic: str, reason: str, queue: str) -> None:
    assert special.is_served(topic)
    with pytest.raises(special.SpecialTopicError, match=reason.replace("+", r"\+")):
        special.read_job_topic(topic)
    if topic.startswith("$jobs/"):
        assert special.queue_of(topic) == queue


@pytest.mark.parametrize(
    "topic", ["$jobs", "jobs/mail", "$SYS/x", "$share/g/x", "$jobs/mail/error/c", "#", "+/mail"]
)
def test_what_is_an_ordinary_topic(topic: str) -> None:
    assert not special.is_served(topic)


def test_plugins_see_neither_options_nor_ids() -> None:
    assert special.canonical("$jobs/a%2fb;ttl=3/manual/+") == "$jobs/a%2Fb"
    assert special.canonical("$jobs/mail/ack") == "$jobs/mail"
    assert special.canonical("$jobs/#") == "$jobs/#"
    assert special.canonical("$jobs/mail/error/c") == "$jobs/mail/error/c"
    assert special.canonical("a/b") == "a/b"


@given(st.text())
def test_any_name_is_one_level_and_comes_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    level = special.encode_level(name)
    assert not set(level) & set("+#/;=")
    assert special.decode_level(level) == name


NOW = 1_700_000_000.5


@pytest.mark.parametrize(
    ("topic", "due", "target"),
    [
        ("$delayed/60/a/b", NOW + 60, "a/b"),
        ("$delayed/0/a", NOW, "a"),
        ("$delayed/42949669/a", NOW + 42_949_669, "a"),
        ("$delayed/42949670/a", 42_949_670.0, "a"),
        ("$delayed/1800000000/$jobs/mail;ttl=3", 1_800_000_000.0, "$jobs/mail;ttl=3"),
        ("$delayed/-15m/a", NOW - 900, "a"),
        ("$delayed/2h//", NOW + 7200, "/"),
        ("$delayed/15min/a", NOW + 900, "a"),
        ("$delayed/2030-01-31T06:00:00Z/a", 1_896_069_600.0, "a"),
        ("$delayed/2030-01-31T06:00:00.25Z/a", 1_896_069_600.25, "a"),
        ("$delayed/2030-01-31T06%3A00Z/a", 1_896_069_600.0, "a"),
    ],
)
def test_when_and_where_a_delayed_message_goes(topic: str, due: float, target: str) -> None:
    assert special.is_served(topic)
    assert special.read_delayed(topic, NOW) == (due, target)
    assert special.canonical(topic) == special.canonical(target)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("$delayed/60", "accepted: "),
        ("$delayed/60/", "accepted: "),
        ("$delayed//a", "WHEN is"),
        ("$delayed/soon/a", "WHEN is"),
        ("$delayed/1.5/a", "WHEN is"),
        ("$delayed/123456789012/a", "WHEN is"),
        ("$delayed/2030-01-31T06:00:00-01:00/a", "ends in Z"),
        ("$delayed/2030-01-31T06:00:00%2B01:00/a", "ends in Z"),
        ("$delayed/2030-02-31T06:00:00Z/a", "no such time"),
        ("$delayed/5/$delayed/5/a", "not delayed again"),
    ],
)
def test_what_is_no_delayed_message(topic: str, reason: str) -> None:
    assert special.is_served(topic)
    with pytest.raises(special.SpecialTopicError, match=reason):
        special.read_delayed(topic, NOW)
