import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_vmq.errors import OptionError, VmqError
from pyspark_vmq.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    from_checkpoint,
    from_option,
    ids_of,
    is_another,
    to_checkpoint,
)

POSITIONS = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**62), max_size=3),
    max_size=3,
)


@given(POSITIONS)
def test_positions_survive_a_checkpoint(offsets: Offsets) -> None:
    assert from_checkpoint(json.loads(json.dumps(to_checkpoint(offsets)))) == offsets


def test_ids_survive_a_checkpoint_and_may_be_missing() -> None:
    stored = json.loads(json.dumps(to_checkpoint({"b": {0: 1}, "a": {}}, {"b": "x", "c": "y"})))
    assert ids_of(stored) == {"b": "x"}
    assert from_checkpoint(stored) == {"b": {0: 1}, "a": {}}
    assert ids_of(to_checkpoint({"b": {0: 1}})) == {}


def test_a_stream_is_another_one_if_both_ids_are_known_and_differ() -> None:
    assert not is_another(None, "x")
    assert not is_another("x", "x")
    assert not is_another("x", "")
    assert not is_another("x", None)
    assert is_another("x", "y")
    assert is_another("", "y")


def test_equal_positions_are_written_alike() -> None:
    # Spark compares the text to see whether there is anything new.
    one = to_checkpoint({"b": {1: 2, 0: 1}, "a": {}})
    other = to_checkpoint({"a": {}, "b": {0: 1, 1: 2}})
    assert json.dumps(one) == json.dumps(other)


def test_a_checkpoint_of_another_version_is_refused() -> None:
    with pytest.raises(VmqError, match=r"version 2.*reads version 1"):
        from_checkpoint({"v": 2, "s": {}})


def test_offsets_of_an_option() -> None:
    text = '{"plant": {"0": 23, "1": -2, "2": -1}}'
    wanted = {"plant": {0: 23, 1: EARLIEST, 2: LATEST}}
    assert from_option("startingOffsets", text, ends=(EARLIEST, LATEST)) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected JSON like"),
        ("{", "expected JSON like"),
        ('{"plant": 3}', "expected JSON like"),
        ('{"plant": {"x": 3}}', "expected JSON like"),
        ('{"plant": {"0": null}}', "expected JSON like"),
        ('{"plant": {"0": 1.5}}', "expected JSON like"),
        ('{"plant": {"0": 1.0}}', "expected JSON like"),
        ('{"plant": {"0": 1e3}}', "expected JSON like"),
        ('{"plant": {"0": true}}', "expected JSON like"),
        ('{"plant": {"0": "7"}}', "expected JSON like"),
        ('{"plant": {" 0": 7}}', "expected JSON like"),
        ('{"plant": {"1_0": 7}}', "expected JSON like"),
        ('{"plant": {"": 7}}', "expected JSON like"),
        ('{"plant": {"0": Infinity}}', "expected JSON like"),
        ('{"plant": {"0": -1}}', "partition 0 of stream 'plant' has offset -1; accepted .* -2"),
        ('{"plant": {"-1": 1}}', "partition -1"),
    ],
)
def test_wrong_offsets_name_the_option_and_what_is_accepted(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        from_option("startingOffsets", text, ends=(EARLIEST,))
    assert "'startingOffsets'" in str(caught.value)
