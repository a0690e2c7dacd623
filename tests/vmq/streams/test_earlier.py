"""What streams have of a batch: found by walking along both, whatever lies between."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.streams.support import make, put, row
from vmq.streams.earlier import Earlier, rows_behind
from vmq.streams.log.partition import Partition

Messages = list[tuple[bytes, bytes]]

#: Few different ones: a message that looks like another must not be taken for it.
MESSAGES = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from([b"x", b"y"])))


def filled(folder: Path, before: int, messages: Messages, strangers: list[int]) -> Partition:
    """A partition with some rows, and then a client's messages, others' among them."""
    partition = make(folder)
    mine = [
        {**row(number, topic.decode(), payload), "client_id": "me"}
        for number, (topic, payload) in enumerate(messages)
    ]
    for place in strangers:
        mine.insert(min(place, len(mine)), row(place, "a", b"x"))
    rows = [{**row(0, "a", b"x"), "client_id": "me"}] * before + mine
    for start in range(0, len(rows), 3):
        put(partition, rows[start : start + 3])
    return partition


@given(
    before=st.integers(0, 4),
    batch=MESSAGES,
    there=st.integers(0, 8),
    strangers=st.lists(st.integers(0, 8), max_size=5),
)
def test_what_is_there_is_met_and_the_rest_is_not(
    tmp_path_factory: pytest.TempPathFactory,
    before: int,
    batch: Messages,
    there: int,
    strangers: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("p")
    with closing(filled(folder, before, batch[:there], strangers)) as partition:
        earlier = Earlier({"s": {0: before}}, "me")
        met = [earlier.meet(partition, *message) for message in batch]
        assert met == [True] * min(there, len(batch)) + [False] * max(0, len(batch) - there)


@given(batch=MESSAGES, lost=st.sets(st.integers(0, 8)))
def test_every_message_has_a_row_of_its_own_whatever_is_missing(
    tmp_path_factory: pytest.TempPathFactory, batch: Messages, lost: set[int]
) -> None:
    """Rows that were refused, or are deleted: a message may come twice then, and none is left out."""
    kept = [message for number, message in enumerate(batch) if number not in lost]
    with closing(filled(tmp_path_factory.mktemp("p"), 0, kept, [])) as partition:
        earlier = Earlier({"s": {0: 0}}, "me")
        appended = [each for each in batch if not earlier.meet(partition, *each)]
        assert len(kept) + len(appended) >= len(batch)
        for message in batch:
            assert (kept + appended).count(message) >= batch.count(message)


def test_streams_without_a_mark_and_those_made_anew_have_nothing(tmp_path: Path) -> None:
    partition = filled(tmp_path, 0, [(b"a", b"1")], [])
    assert not Earlier({}, "me").meet(partition, b"a", b"1")
    assert list(rows_behind(partition, 7, "me")) == []
    assert list(rows_behind(partition, 0, "me")) == [(b"a", b"1")]
