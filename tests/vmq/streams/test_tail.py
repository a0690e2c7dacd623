"""The last messages and those that follow, against lists of what was put in."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.streams.support import Clock, options, put, row
from vmq.config.streams import StreamOptions
from vmq.mqtt.topics import matches
from vmq.streams.log.cursor import PartitionLog
from vmq.streams.log.errors import OutOfRangeError, StreamError, UnknownPartitionError
from vmq.streams.log.message import StreamMessage, TailQuery
from vmq.streams.log.partition import Partition
from vmq.streams.logs import LogsHere
from vmq.streams.resting import RestingLog
from vmq.streams.stored import StoredPartition
from vmq.streams.tail import Tail

BEGIN = 1_700_000_000_000_000
TOPICS = ("a", "a/b", "c")

#: Which partition, which topic, and how much later than the one before (or earlier).
Sent = tuple[int, int, int]
sent = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))
sent_anyhow = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-3, 3))
filters = st.sampled_from((None, "a/#", "c", "nothing"))


class Logs:
    """Three partitions, and what is in them in the order in which it came."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.folder = folder
        self.options: StreamOptions = options(partitions=3, **changes)
        self.partitions = [
            Partition(folder / str(number), "s", number, self.options, Clock())
            for number in range(3)
        ]
        self.time = BEGIN
        #: (time, partition, offset, topic)
        self.all: list[tuple[int, int, int, str]] = []

    def put(self, sent: list[Sent]) -> None:
        for number, topic, later in sent:
            self.time += later
            log = self.partitions[number]
            self.all.append((self.time, number, log.end, TOPICS[topic]))
            put(log, [row(len(self.all), TOPICS[topic], time=self.time)])

    def wanted(self, topic_filter: str | None) -> list[tuple[int, int, int, str]]:
        """What matches, by time and then by partition."""
        return sorted(
            each for each in self.all if topic_filter is None or matches(topic_filter, each[3])
        )

    def resting(self) -> list[PartitionLog]:
        return [
            RestingLog(StoredPartition(self.folder / str(number), "s", number))
            for number in range(3)
        ]

    def close(self) -> None:
        for each in self.partitions:
            each.close()


def seen(messages: list[StreamMessage]) -> list[tuple[int, int, int, str]]:
    return [(each.timestamp, each.partition, each.offset, each.topic) for each in messages]


@given(st.lists(sent, max_size=20), st.lists(sent, max_size=5), st.integers(0, 12), filters)
def test_the_last_messages_and_then_what_follows(
    before: list[Sent], after: list[Sent], count: int, topic_filter: str | None
) -> None:
    with TemporaryDirectory() as folder:
        logs = Logs(Path(folder))
        logs.put(before)
        query = TailQuery(stream="s", last=count, filter=topic_filter)
        tail = Tail(LogsHere(logs.partitions), query)
        tail.rows = 2
        there = logs.wanted(topic_filter)
        # Of the messages of one moment any may be the first that is left out.
        last = seen(list(tail.messages()))
        assert last == sorted(last)
        assert [each[0] for each in last] == [
            each[0] for each in there[max(0, len(there) - count) :]
        ]
        assert seen(list(Tail(LogsHere(logs.resting()), query).messages())) == last
        assert list(tail.messages()) == []
        logs.time += 1
        logs.put(after)
        assert seen(list(tail.messages())) == logs.wanted(topic_filter)[len(there) :]
        logs.close()


@given(st.lists(sent_anyhow, max_size=20), st.integers(0, 12), filters)
def test_with_clocks_that_go_back_it_is_still_the_end_of_each_partition(
    before: list[Sent], count: int, topic_filter: str | None
) -> None:
    with TemporaryDirectory() as folder:
        logs = Logs(Path(folder))
        logs.put(before)
        tail = Tail(
            LogsHere(logs.partitions), TailQuery(stream="s", last=count, filter=topic_filter)
        )
        last = seen(list(tail.messages()))
        there = logs.wanted(topic_filter)
        assert len(last) == min(count, len(there))
        for number in range(3):
            mine = [each[2] for each in last if each[1] == number]
            offsets = sorted(each[2] for each in there if each[1] == number)
            assert mine == offsets[len(offsets) - len(mine) :]
        logs.close()


@settings(max_examples=50)  # each is asked seven questions, of two readers
@given(st.lists(sent, min_size=1, max_size=20), st.integers(0, 60), st.integers(0, 9), filters)
def test_from_a_time_an_offset_or_an_end_on(
    before: list[Sent], later: int, limit: int, topic_filter: str | None
) -> None:
    with TemporaryDirectory() as folder:
        logs = Logs(Path(folder))
        logs.put(before)
        there = logs.wanted(topic_filter)

        def found(**where: object) -> list[tuple[int, int, int, str]]:
            query = TailQuery(stream="s", filter=topic_filter, **where)  # type: ignore[arg-type]
            tail = Tail(LogsHere(logs.partitions), query)
            tail.bytes = 1  # a page for each message
            result = seen(list(tail.messages()))
            assert seen(list(Tail(LogsHere(logs.resting()), query).messages())) == result
            return result

        assert found(start="earliest") == there
        assert found(start="latest") == []
        assert found(start="earliest", limit=limit) == there[:limit]
        time = BEGIN + later
        assert found(time=time) == [each for each in there if each[0] >= time]
        shortest = min(each.end for each in logs.partitions)
        assert found(offset=shortest) == [each for each in there if each[2] >= shortest]
        assert found(start="earliest", partition=1) == [each for each in there if each[1] == 1]
        logs.close()


def test_payloads_are_whole_unless_less_is_wanted(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    put(logs.partitions[0], [row(1, payload=b"12345")])
    for most, wanted in ((0, b"12345"), (2, b"12"), (9, b"12345")):
        query = TailQuery(stream="s", payload_bytes=most)
        (message,) = Tail(LogsHere(logs.partitions), query).messages()
        assert (message.payload, message.size) == (wanted, 5)
    assert message.client_id == "client-1"
    assert message.qos == 1
    logs.close()


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    for query, error, text in (
        (TailQuery(stream="s", partition=3), UnknownPartitionError, "accepted: 0 to 2"),
        (TailQuery(stream="s", offset=1), OutOfRangeError, "partition 0, is out of range"),
        (TailQuery(stream="s", filter="a/#/b"), StreamError, "not a topic filter"),
    ):
        with pytest.raises(error, match=text):
            Tail(LogsHere(logs.partitions), query)
    logs.close()


def test_topics_that_the_stream_cannot_have_are_refused(tmp_path: Path) -> None:
    logs = LogsHere((kept := Logs(tmp_path)).partitions)
    for topics in ("b/#", "a", "a/+/c"):
        query = TailQuery(stream="s", filter=topics)
        with pytest.raises(StreamError, match=r"'s' keeps no topic of .*; it keeps: a/b/d, c/#"):
            Tail(logs, query, ["a/b/d", "c/#"])
    for topics in ("#", "a/+/d", "c"):
        Tail(logs, TailQuery(stream="s", filter=topics), ["a/b/d", "c/#"])
    kept.close()


def test_what_the_retention_deletes_meanwhile_is_passed_over(tmp_path: Path) -> None:
    logs = Logs(tmp_path, segment_bytes=65_536, retention_bytes=200_000)
    log = logs.partitions[0]
    for number in range(4):
        put(log, [row(number, payload=b"x" * 60_000)])
    tail = Tail(LogsHere([log]), TailQuery(stream="s", start="earliest"))
    tail.rows = 1
    messages = tail.messages()
    assert next(messages).offset == 0
    assert log.retain()
    assert log.earliest > 1
    assert [each.offset for each in messages] == list(range(log.earliest, 4))
    logs.close()
