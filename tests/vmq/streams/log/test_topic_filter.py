import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.mqtt.topics import matches
from vmq.streams.log import conditions
from vmq.streams.log.conditions import TopicFilter
from vmq.streams.log.errors import StreamError

TOPICS = st.lists(
    st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool),
    max_size=20,
)


@given(
    TOPICS,
    st.sampled_from(
        ["#", "+", "a", "a/#", "+/b", "+/+/a", "a/b", "a/b/#", "/#", "+/#", "$x/#", "/"]
    ),
)
def test_the_mask_says_what_each_row_says(topics: list[str], text: str) -> None:
    mask = TopicFilter(text).mask(pa.array(topics, pa.string()))
    wanted = [matches(text, topic) for topic in topics]
    assert (wanted == [True] * len(topics)) if mask is None else (mask.to_pylist() == wanted)


def test_each_topic_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(_: str, topic: str) -> bool:
        asked.append(topic)
        return True

    monkeypatch.setattr(conditions, "matches", ask)
    wanted = TopicFilter("+")
    for _ in range(3):
        wanted.mask(pa.array(["a", "b"] * 1000))
    assert sorted(asked) == ["a", "b"]
    monkeypatch.setattr(conditions, "_MOST", 3)
    wanted.mask(pa.array([str(number) for number in range(10)]))
    assert len(wanted.verdicts) <= 3


@pytest.mark.parametrize("text", ["", "a/#/b", "a+", "$share/g/a"])
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(StreamError, match="not a topic filter"):
        TopicFilter(text)
