"""The grammar of topics that are a service's: levels, options, percent-encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.mqtt.special import (
    SpecialTopicError,
    canonical,
    decode_level,
    encode_level,
    is_served,
    queue_of,
    read_job_topic,
)


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
    found = read_job_topic(topic)
    assert (found.queue, found.options, found.verb) == (queue, options, verb)
    assert is_served(topic)


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
    assert is_served(topic)
    with pytest.raises(SpecialTopicError, match=reason.replace("+", r"\+")):
        read_job_topic(topic)
    if topic.startswith("$jobs/"):
        assert queue_of(topic) == queue


@pytest.mark.parametrize(
    "topic", ["$jobs", "jobs/mail", "$SYS/x", "$share/g/x", "$jobs/mail/error/c", "#", "+/mail"]
)
def test_what_is_an_ordinary_topic(topic: str) -> None:
    assert not is_served(topic)


def test_plugins_see_neither_options_nor_ids() -> None:
    assert canonical("$jobs/a%2fb;ttl=3/manual/+") == "$jobs/a%2Fb"
    assert canonical("$jobs/mail/ack") == "$jobs/mail"
    assert canonical("$jobs/#") == "$jobs/#"
    assert canonical("$jobs/mail/error/c") == "$jobs/mail/error/c"
    assert canonical("a/b") == "a/b"


@given(st.text())
def test_any_name_is_one_level_and_comes_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    level = encode_level(name)
    assert not set(level) & set("+#/;=")
    assert decode_level(level) == name
