"""Expressions by members of the payload say what they say otherwise."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.present import present
from vmq.config.expressions import all_by_member, by_member
from vmq.streams.log.columns import as_stream
from vmq.streams.replay import evaluator as module
from vmq.streams.replay.evaluator import Evaluator, Question, Verdict

EXPRESSIONS = [
    "payload.a > 1",
    "payload.a == payload.b",
    "payload.a.b == 1 && payload.a.c != 2",
    "payload . a in [1, 2, 'x']",
    "payload.a > 1 || payload.b > 1",
    "payload.a > 1 && payload.b > 1",
    "payload.a ? payload.b : payload.c",
    "payload.a == 'payload.b' && topic == 'x/y'",
    "payload.a == null",
    "!payload.c",
    "size(payload.a) > 1",
    "payload.a.startsWith('x')",
    "string(payload.a) == '1'",
    "payload.a[0] == 1",
    "has(payload.a)",
    "payload['a'] == 1",
    "payload == 'text'",
    "size(payload) > 1",
    "true",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, 2.0, "x", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


def verdict(expression: str, payload: bytes, *, whole: bool) -> Verdict:
    """What is said of a row; `whole`: with the payload as a whole."""
    from cel import compile as compile_text  # slow

    rows = pa.record_batch({"topic": ["x/y"], "payload": pa.array([payload], pa.binary())})
    question = Question(expression, 0, as_stream(rows).to_pybytes())
    with pytest.MonkeyPatch.context() as patch:
        if whole:
            patch.setattr(module, "all_by_member", lambda _texts, _root: None)
        return Evaluator(compile_text).answer(question)


@settings(max_examples=150)
@given(
    st.sampled_from(EXPRESSIONS),
    st.dictionaries(st.sampled_from("abc"), VALUES).map(msgspec.json.encode)
    | VALUES.map(msgspec.json.encode)
    | st.sampled_from([b"text", b"\xff", b"{", b""]),
)
@example("payload.a > 1 || payload.b > 1", b'{"b": 2}')
@example("payload.a == null", b'{"a": null}')
@example("payload.a == null", b"{}")
def test_they_say_the_same(expression: str, payload: bytes) -> None:
    expected = verdict(expression, payload, whole=True)
    assert verdict(expression, payload, whole=False) == expected


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("payload.a > 1 && payload.b.c == 'payload.x'", {"a", "b"}),
        ("payload.temp > 20.0", {"temp"}),
    ],
)
def test_members_are_found(text: str, members: set[str]) -> None:
    found = present(by_member(text, "payload"))
    assert set(found.members.values()) == members
    assert "'payload.x'" in found.text or "x" not in text


@pytest.mark.parametrize(
    "text",
    [
        "has(payload.a)",
        "payload",
        "payload['a'] > payload.a",
        "payload.size() > 1",
        "payload.a > 1 // payload.b",
        "levels . payload.a == 1",
        "payload__a > payload.a",
    ],
)
def test_what_looks_otherwise_stays(text: str) -> None:
    assert by_member(text, "payload") is None
    assert all_by_member(["payload.a > 1", text], "payload") is None


def test_what_does_not_look_at_it_needs_nothing() -> None:
    assert all_by_member(["topic == 'payload.a'", "has(levels)"], "payload") is None
    found = present(all_by_member(["topic == 'x'", "payload.a > 1"], "payload"))
    assert [each.text for each in found] == ["topic == 'x'", "payload__a > 1"]
