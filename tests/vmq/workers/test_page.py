"""What the page of several workers asks of all of them, as one broker's."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.http.dashboard.test_topics import LEVELS, route
from vmq.http.dashboard.source import HookRow, SampleRow
from vmq.http.dashboard.topics import TOP, Branch, RouteSums, Sums, TopicRow, _add_up
from vmq.workers import page
from vmq.workers.page import Shared, branch_of, hooks_of, samples_of


def branch(topics: dict[str, int], path: str) -> Branch:
    """A branch as one process has it that counted these messages."""
    sums: Sums = {TOP: {}, path: {}}
    _add_up(sums, [route(topic, count) for topic, count in topics.items()])
    reader = RouteSums(None)  # type: ignore[arg-type]  # nothing is read
    reader._sums = sums
    return reader.branch(path, 1000)


@given(
    st.dictionaries(LEVELS.map("/".join).filter(bool), st.tuples(st.integers(1, 5), st.booleans()))
)
def test_what_two_workers_count_is_what_one_would(known: dict[str, tuple[int, bool]]) -> None:
    """Each topic is published through one of them."""
    parts = [
        {topic: count for topic, (count, is_first) in known.items() if is_first is first}
        for first in (True, False)
    ]
    whole = {topic: count for topic, (count, _) in known.items()}
    for path in (TOP, "a"):
        found = branch_of([branch(part, path) for part in parts])
        assert sorted(found.rows, key=str) == sorted(branch(whole, path).rows, key=str)
        assert found.hidden == 0


def test_a_topic_that_is_published_through_both_is_one() -> None:
    one = Branch("a", [TopicRow("x", 1, 3, 1.5, True, False)], 2)
    other = Branch("a", [TopicRow("x", 1, 4, 0.25, True, False)], 3)
    assert branch_of([one, other]) == Branch("a", [TopicRow("x", 1, 7, 1.75, True, False)], 5)


def test_calls_of_hooks_are_added_up_and_times_are_the_slowest() -> None:
    one = HookRow("p", "h", 10, 6, 4, 1.0, 1.0, 9.0, 1, 2, 3)
    other = HookRow("p", "h", 5, 1, 3, 0.5, 2.0, 4.0, 1, 1, 1)
    assert hooks_of([[one], [other]]) == [HookRow("p", "h", 15, 7, 7, 1.5, 2.0, 9.0, 2, 3, 4)]


def test_samples_are_added_up_by_their_labels() -> None:
    names = [("cluster_nodes", 2.0), ("cluster_bytes", 2.0), ("cluster_bytes", 3.0)]
    labels = [{}, {"peer": "a"}, {"peer": "b"}]
    rows = [
        SampleRow(name, label, value) for (name, value), label in zip(names, labels, strict=True)
    ]
    assert [row.value for row in samples_of([rows, rows])] == [2.0, 4.0, 6.0]


async def test_pages_together_ask_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def ask(what: str) -> str:
        asked.append(what)
        await asyncio.sleep(0)
        return what * 2

    shared = Shared(ask)
    assert await asyncio.gather(*(shared.get("a") for _ in range(50))) == ["aa"] * 50
    assert asked == ["a"]
    assert await shared.get("b") == "bb"
    monkeypatch.setattr(page, "_PAUSE", 0.0)
    await shared.get("a")
    assert asked == ["a", "b", "a"]
    for number in range(100):
        await shared.get(str(number))
    assert len(shared._found) <= page._MOST_KEPT
