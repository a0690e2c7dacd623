"""Topic names and filters: what is one, and what matches what."""

import re
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.vmq.mqtt.strategies import FILTERS, SHARED, TOPICS
from vmq.mqtt import topics
from vmq.mqtt.packets import ProtocolError


def check(filter_or_raw: str | bytes) -> None:
    if isinstance(filter_or_raw, str):
        topics.check_filter(filter_or_raw)
    else:
        topics.decode_topic_name(filter_or_raw)


@given(TOPICS)
@example("\ufeffa")
@example("\U0010ffff")
def test_a_topic_name_is_any_text_without_wildcards(topic: str) -> None:
    assert topics.decode_topic_name(topic.encode()) == topic


@given(st.one_of(FILTERS, SHARED))
def test_filters_and_shared_filters_are_accepted(topic_filter: str) -> None:
    assert topics.decode_filter(topic_filter.encode()) == topic_filter


#: Topic names (bytes) and filters (text), by the statement that each breaks.
BAD = (
    ("MQTT-3.3.2-2", (b"+", b"#", b"a/+/b", b"a#", b"a+b")),
    ("MQTT-4.7.3-1", (b"", "")),
    ("MQTT-4.7.1-2", ("a#", "#/a", "a/#/b", "##", "#+", "a/b#", "a/#b")),
    ("MQTT-4.7.1-3", ("a+", "+a", "a/+b", "++", "+b/#")),
    # An ill-formed share name, a shared subscription to nothing, and to what is no filter.
    ("MQTT-4.7.1-2", ("$share/", "$share//a", "$share/+/a", "$share/g#/a", "$share/g/a#")),
    ("MQTT-4.7.3-1", ("$share/g", "$share/g/")),
)


@pytest.mark.parametrize(("statement", "bad"), [(each, bad) for each, many in BAD for bad in many])
def test_what_is_no_topic_name_and_no_filter_is_refused(statement: str, bad: str | bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        check(bad)
    assert caught.value.statement == statement


@pytest.mark.parametrize("text", ("$share", "$shared/a", "$SHARE/g/a", "a/$share/g"))
def test_what_only_looks_like_a_shared_subscription_is_a_filter(text: str) -> None:
    topics.check_filter(text)
    assert topics.split_shared(text) == ("", text)


def test_a_shared_subscription_is_split_into_group_and_filter() -> None:
    assert topics.split_shared("$share/g/a/b/#") == ("g", "a/b/#")
    assert topics.split_shared("$share/g//") == ("g", "/")


@given(FILTERS)
def test_a_filter_without_wildcards_matches_itself_only(topic_filter: str) -> None:
    if not topics.has_wildcard(topic_filter):
        assert topics.matches(topic_filter, topic_filter)
        assert not topics.matches(topic_filter, topic_filter + "x")
        assert not topics.matches(topic_filter, topic_filter + "/")


def naive_matches(topic_filter: str, topic: str) -> bool:
    """The same verdict by way of a regular expression."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    pattern = ""
    for index, word in enumerate(topic_filter.split("/")):
        slash = "/" if index else ""
        if word == "#":
            pattern += "(/.*)?" if index else ".*"
        elif word == "+":
            pattern += slash + "[^/]*"
        else:
            pattern += slash + re.escape(word)
    return re.fullmatch(pattern, topic, re.DOTALL) is not None


@given(FILTERS, TOPICS)
def test_matching_agrees_with_its_naive_twin(topic_filter: str, topic: str) -> None:
    assert topics.matches(topic_filter, topic) == naive_matches(topic_filter, topic)


#: Four levels tell all filters of three apart, and "z" is the word that none of them has.
SOME_TOPICS = tuple(
    topic
    for levels in range(1, 5)
    for words in product(("a", "b", "z", "", "$x"), repeat=levels)
    if (topic := "/".join(words))
)
SMALL_FILTERS = st.builds(
    lambda words, rest: "/".join(words + rest),
    st.lists(st.sampled_from(("a", "b", "", "+", "$x")), max_size=3),
    st.sampled_from(([], ["#"])),
).filter(bool)


@given(SMALL_FILTERS, SMALL_FILTERS)
@example("+", "/#")
@example("+", "#")
@example("$x", "+")
@example("#", "$x/#")
@example("a/#", "a")
@example("a/+", "a/#")
def test_filters_overlap_where_a_topic_matches_both(one: str, other: str) -> None:
    both = any(naive_matches(one, topic) and naive_matches(other, topic) for topic in SOME_TOPICS)
    assert topics.overlaps(one, other) == topics.overlaps(other, one) == both


@given(FILTERS, FILTERS)
def test_a_filter_overlaps_itself_and_what_covers_it(one: str, other: str) -> None:
    assert topics.overlaps(one, one)
    if topics.covers(other, one):
        assert topics.overlaps(one, other)


def test_words_that_repeat_are_one_object_and_those_with_digits_are_not_interned() -> None:
    word, again = (b"temperature".decode() for _ in range(2))
    assert word is not again
    assert topics.interned(word) is topics.interned(again)
    number, other = (b"device17".decode() for _ in range(2))
    assert topics.interned(number) is number
    assert topics.interned(other) is other
    assert topics.joined(["a", word], 1) is topics.joined([again], 0)
