"""The partitions of a stream wherever they are, while they go from one node to another."""

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.streams.support import Clock, options, put, read_all, row
from vmq.mqtt.topics import matches
from vmq.streams.extents import messages_in
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import AwayError, StreamError
from vmq.streams.log.message import TailQuery
from vmq.streams.log.partition import Partition
from vmq.streams.logs import COLUMNS, LogsAnywhere, OffsetSpan, page_of
from vmq.streams.places import Page, PageQuery, PartitionExtent
from vmq.streams.tail import Tail

BEGIN = 1_700_000_000_000_000
TOPICS = ("a", "a/b", "c")


class TwoNodes:
    """A stream of three partitions, each here or at b, as `Places` of the node here."""

    def replicates(self, _stream: str) -> bool:
        return False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = 0
        self.here = [self.fresh(number, 0) for number in range(3)]
        self.there: dict[int, Partition] = {}
        self.is_up = True
        self.time = BEGIN
        #: Partition, offset and topic in the order of time.
        self.all: list[tuple[int, int, str]] = []
        #: Called before each page of the other node.
        self.before_page: Callable[[], None] = lambda: None
        self.asked: list[tuple[int, PageQuery]] = []

    def check(self, stream: str, partition: int) -> None:
        raise NotImplementedError

    def fresh(self, number: int, base: int) -> Partition:
        self.made += 1
        made = options(partitions=3, segment_bytes=65_536)
        partition = Partition(self.folder / str(self.made), "s", number, made, Clock())
        partition.begin_at(base)
        return partition

    def put(self, number: int, topic: int) -> None:
        self.time += 1
        log = self.there.get(number, self.here[number])
        self.all.append((number, log.end, TOPICS[topic]))
        put(log, [row(len(self.all), TOPICS[topic], time=self.time)])

    def move(self, number: int) -> None:
        """Gives a partition to the other node, with its offsets, and deletes it where it was."""
        log, other = self.here[number], self.there.pop(number, None)
        if other is None:
            other = self.fresh(number, log.earliest)
            give(log, other)
            self.there[number] = other
            assert log.clear(log.end)
        else:
            log.begin_at(other.earliest, "there")
            give(other, log)
            log.accept_copy()
            other.close()

    def wanted(self, topic_filter: str | None) -> list[tuple[int, int, str]]:
        """All that a reader with this filter is to get."""
        return [each for each in self.all if topic_filter is None or matches(topic_filter, each[2])]

    def close(self) -> None:
        for each in (*self.here, *self.there.values()):
            each.close()

    # --- as `Places`

    def owner(self, _stream: str, partition: int) -> str | None:
        return "b" if partition in self.there else None

    def location(self, _node: str) -> str:
        return ""

    def extents(
        self, _stream: str, _patience: float, _wanted: Collection[int] | None = None
    ) -> dict[int, PartitionExtent]:
        if not self.is_up:
            return {}
        return {
            n: PartitionExtent(each.earliest, each.end, 0, messages_in(each))
            for n, each in self.there.items()
        }

    def at_time(
        self, _stream: str, time: int, _patience: float, _wanted: Collection[int] | None = None
    ) -> dict[int, int]:
        found = {}
        for number, each in self.there.items() if self.is_up else ():
            later = [at for at, r in enumerate(read_all(each)) if r["timestamp"] >= time]
            found[number] = each.earliest + later[0] if later else each.end
        return found

    def page(self, _stream: str, partition: int, wanted: PageQuery) -> Page | None:
        self.asked.append((partition, wanted))
        self.before_page()
        log = self.there.get(partition)
        if log is None or not self.is_up:
            return None
        return page_of(LogReader(log, COLUMNS, wanted.filter), wanted)

    def append(self, *_: Any) -> Future[bool]:
        raise AssertionError("nobody writes")


def give(source: Partition, target: Partition) -> None:
    if rows := read_all(source):
        put(target, rows)


def logs_of(nodes: TwoNodes) -> LogsAnywhere:
    stream = SimpleNamespace(name="s", partitions=nodes.here, wait=lambda _after, _seconds: False)
    return LogsAnywhere(cast(Any, stream), nodes)


@contextmanager
def two_nodes(
    before: Iterable[tuple[int, int]] = (), elsewhere: Iterable[int] = ()
) -> Iterator[TwoNodes]:
    """They have messages already, and these partitions have moved since."""
    with TemporaryDirectory() as folder:
        nodes = TwoNodes(Path(folder))
        for each in before:
            nodes.put(*each)
        for number in elsewhere:
            nodes.move(number)
        yield nodes
        nodes.close()


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    with two_nodes() as found:
        yield found


sent = st.tuples(st.integers(0, 2), st.integers(0, 2))
filters = st.sampled_from((None, "a/#", "c"))
#: What happens between two pages, or two rounds: a partition moves, a message comes, or nothing.
events = st.lists(st.one_of(st.integers(0, 2), sent, st.none()), max_size=12)


@settings(max_examples=25)
@given(st.lists(sent, max_size=12), st.sets(st.integers(0, 2)), events, filters)
def test_what_moves_meanwhile_is_told_once_and_in_order(
    before: list[tuple[int, int]],
    elsewhere: set[int],
    events: list[int | tuple[int, int] | None],
    topic_filter: str | None,
) -> None:
    with two_nodes(before, elsewhere) as nodes:
        tail = Tail(logs_of(nodes), TailQuery(stream="s", start="earliest", filter=topic_filter))
        tail.rows = 2
        rest = iter(events)

        def happen() -> None:
            event = next(rest, None)
            if isinstance(event, int):
                nodes.move(event)
            elif event is not None:
                nodes.put(*event)

        nodes.before_page = happen
        told = []
        for _ in range(len(events) + 2):
            for message in tail.messages():
                told.append((message.partition, message.offset, message.topic))
                happen()
            happen()
        told += [(each.partition, each.offset, each.topic) for each in tail.messages()]
        for number in range(3):
            mine = [each for each in told if each[0] == number]
            assert mine == [each for each in nodes.wanted(topic_filter) if each[0] == number]


@settings(max_examples=25)
@given(st.lists(sent, max_size=12), st.sets(st.integers(0, 2)), st.integers(0, 12), filters)
def test_the_last_messages_and_those_from_a_time_on_of_all_nodes(
    before: list[tuple[int, int]], elsewhere: set[int], count: int, topic_filter: str | None
) -> None:
    with two_nodes(before, elsewhere) as nodes:
        logs = logs_of(nodes)
        wanted = nodes.wanted(topic_filter)

        def told(**where: Any) -> list[tuple[int, int, str]]:
            tail = Tail(logs, TailQuery(stream="s", filter=topic_filter, **where))
            return [(each.partition, each.offset, each.topic) for each in tail.messages()]

        assert told(last=count) == wanted[max(0, len(wanted) - count) :]
        half = BEGIN + 1 + len(nodes.all) // 2
        later = nodes.all[half - BEGIN - 1 :]
        assert told(time=half) == [each for each in wanted if each in later]


def test_who_does_not_answer_is_named_and_goes_on_where_it_was(nodes: TwoNodes) -> None:
    for number in (0, 1, 2, 1):
        nodes.put(number, 0)
    nodes.move(1)
    tail = Tail(logs_of(nodes), TailQuery(stream="s", start="earliest"))
    nodes.is_up = False
    assert [each.partition for each in tail.messages()] == [0, 2]
    assert tail.missing() == "partition 1 of stream 's' is on node 'b', which does not answer"
    assert tail.missing(60) == ""
    nodes.put(0, 0)
    assert [each.partition for each in tail.messages()] == [0]
    nodes.is_up = True
    assert tail.wait(0)
    assert [(each.partition, each.offset) for each in tail.messages()] == [(1, 0), (1, 1)]
    assert tail.missing() == ""
    assert not tail.wait(0)


def test_who_goes_down_in_the_middle_goes_on_there_later(nodes: TwoNodes) -> None:
    for _ in range(5):
        nodes.put(1, 0)
    nodes.move(1)
    tail = Tail(logs_of(nodes), TailQuery(stream="s", start="earliest"))
    tail.rows = 2

    def break_down() -> None:
        nodes.is_up = len(nodes.asked) < 2

    nodes.before_page = break_down
    assert [each.offset for each in tail.messages()] == [0, 1]
    assert "node 'b'" in tail.missing()
    nodes.before_page = lambda: None
    nodes.is_up = True
    assert [each.offset for each in tail.messages()] == [2, 3, 4]


@pytest.mark.parametrize("where", [{"last": 2}, {"start": "latest"}])
def test_who_answers_late_begins_with_what_came_since(
    nodes: TwoNodes, where: dict[str, Any]
) -> None:
    nodes.put(1, 0)
    nodes.move(1)
    nodes.is_up = False
    tail = Tail(logs_of(nodes), TailQuery(stream="s", **where))
    assert list(tail.messages()) == []
    nodes.time = tail.began
    nodes.put(1, 0)
    nodes.is_up = True
    assert [each.offset for each in tail.messages()] == [1]


def test_what_another_node_is_asked_for_is_bounded(nodes: TwoNodes) -> None:
    nodes.put(1, 0)
    nodes.move(1)
    logs_of(nodes).page(1, PageQuery(0, 1 << 40, 1 << 30, 1 << 30))
    [(_, wanted)] = nodes.asked
    assert (wanted.end, wanted.rows, wanted.size) == (65_536, 4096, 1 << 20)
    nodes.is_up = False
    with pytest.raises(AwayError, match="node 'b' does not answer, which has partition 1"):
        logs_of(nodes).page(1, PageQuery(0, 1, 1, 1))


def test_a_partition_of_this_node_that_cannot_be_read_says_so(nodes: TwoNodes) -> None:
    nodes.put(1, 0)
    with pytest.raises(StreamError, match="offset 7 of stream 's', partition 1, is out of range"):
        logs_of(nodes).page(1, PageQuery(7, 8, 1, 1))


def test_a_stream_that_grows_is_followed_whole(nodes: TwoNodes) -> None:
    nodes.put(0, 0)
    grown = nodes.here.pop()
    tail = Tail(logs_of(nodes), TailQuery(stream="s", start="latest"))
    assert list(tail.messages()) == []
    nodes.here.append(grown)
    nodes.put(2, 0)
    assert tail.wait(0)
    assert [each.partition for each in tail.messages()] == [2]


def test_what_goes_to_another_node_while_it_is_read_here_is_read_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here it is deleted then, which must not look like retention."""
    for method, ask, wanted in (
        ("page", lambda logs: len(logs.page(1, PageQuery(0, 1, 9, 9)).messages), 1),
        ("span", lambda logs: logs.spans([1], 1.0)[1].earliest, 0),
        ("time_of", lambda logs: logs.at_time([1], 1, 1.0)[1], 0),
        ("last", lambda logs: len(list(logs.last(1, OffsetSpan(0, 1), 1, None))), 1),
    ):
        with two_nodes([(1, 0)]) as nodes:
            logs = logs_of(nodes)
            read = getattr(logs._here, method)

            def moved(*given: Any, nodes: TwoNodes = nodes, read: Any = read) -> Any:
                nodes.move(1)
                return read(*given)

            monkeypatch.setattr(logs._here, method, moved)
            assert ask(logs) == wanted, method
