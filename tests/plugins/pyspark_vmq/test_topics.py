"""The client's topic filters are the broker's."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark_vmq.topics import TopicFilter

from vmq.mqtt.topics import matches
from vmq.streams.log.conditions import TopicFilter as Brokers

LEVELS = st.sampled_from(["", "a", "b.", "$a", "\n", "é"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(LEVELS | st.just("+"), max_size=3))
    tail = draw(st.sampled_from([[], ["#"]])) or ([] if levels else ["a"])
    return "/".join([*levels, *tail]) or "+"


@given(text=filters(), topics=st.lists(TOPICS, min_size=1, max_size=8))
def test_a_filter_matches_what_the_broker_says(text: str, topics: list[str]) -> None:
    column = pa.array(topics)
    mask = TopicFilter(text).mask(column)
    found = [True] * len(topics) if mask is None else mask.to_pylist()
    assert found == [matches(text, topic) for topic in topics]
    theirs = Brokers(text).mask(column)
    assert (mask is None) == (theirs is None)
