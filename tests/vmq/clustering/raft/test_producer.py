"""A producer beside a log that loses answers, changes its leader and forgets: every message is there once, in order."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from unittest.mock import Mock, call, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.seeds import over_seeds, seeds
from vmq.clustering.delivery.backlog import Backlog
from vmq.clustering.messages.raft import MAX_ROWS
from vmq.clustering.raft.dotted import DottedProducer, DottedRow
from vmq.clustering.raft.produce import DONE, ELSEWHERE, MISSING, REFUSED, Sent
from vmq.clustering.raft.producer import BATCH_BYTES, LIMIT, PAUSE, Producer
from vmq.core.output import Output
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.dots import marks_of
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.state import GAP, Producers


class Road:
    """Members of a group, and a clock that the test moves."""

    store = "node"

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.time = 0.0
        self.calls: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.leader = "a"
        self.known = Producers()
        self.rows: list[bytes] = []
        self.loss = 0.0
        #: Told by a copy of the log what of its rows is committed.
        self.told: Producer | None = None
        self.asked = 0
        #: Seconds that a message takes, at least and at most.
        self.delay = (0.001, 0.02)

    def now(self) -> float:
        return self.time

    def boot(self) -> str:
        self.count += 1
        return f"{self.count:04}"

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.count += 1
        self.calls.append((self.time + seconds, self.count, what))

    def soon(self, what: Callable[[], None], is_alone: bool) -> None:
        self.later(0.0 if is_alone else 0.003, what)

    def candidates(self, _group: str) -> list[str]:
        return ["a", "b", "c"]

    def hand_in(
        self, _group: str, to: str, sent: Sent, _early: bool, answer: Callable[[int], None]
    ) -> bool:
        if self.random.random() < self.loss:
            return self.random.random() < 0.5
        self.asked += 1
        mark, rows = sent.mark, list(sent.rows.payloads)
        self.later(self.random.uniform(*self.delay), lambda: self._arrive(to, mark, rows, answer))
        return True

    def _arrive(
        self, to: str, mark: Mark, rows: list[bytes], answer: Callable[[int], None]
    ) -> None:
        status = ELSEWHERE
        if to == self.leader:
            there = self.known.place(mark)
            status = MISSING if there == GAP else DONE
            if there not in (GAP, mark.count):
                self.known.add(mark)
                self.rows += rows[there:]
                self.later(self.random.uniform(*self.delay), lambda: self._tell(mark))
        if self.random.random() >= self.loss:
            self.later(self.random.uniform(*self.delay), lambda: answer(status))

    def _tell(self, mark: Mark) -> None:
        if self.told is not None:
            self.told.confirm([mark])

    def run(self, until: float) -> None:
        while self.calls and min(self.calls)[0] <= until:
            each = min(self.calls, key=lambda each: each[:2])
            self.calls.remove(each)
            self.time = max(self.time, each[0])
            each[2]()
        self.time = until


def put(producer: Producer, payload: bytes, publisher: Output | None = None) -> int:
    rows = producer.gather()
    rows.add_run(b"t", [payload], 1, "c", 0)
    return producer.added(len(payload), publisher)


def put_some(producer: Producer, road: Road, count: int, pause: float) -> None:
    for number in range(count):
        put(producer, b"%d" % number)
        road.run(road.time + pause)


@pytest.fixture
def road() -> Road:
    return Road()


@pytest.fixture
def producer(road: Road) -> Producer:
    return Producer("g", "quorum", road, lambda _count: None)


@over_seeds(20)
def test_every_message_is_there_once_in_order(seed: int) -> None:
    road = Road(seed)
    road.loss = (0.0, 0.1, 0.4)[seed % 3]
    producer = Producer("g", "quorum", road, lambda _count: None)
    road.told = producer if seed % 2 else None
    for number in range(200):
        put(producer, b"%d" % number)
        if road.random.random() < 0.05:
            road.leader = road.random.choice("abc")
            producer.led()
        road.run(road.time + road.random.choice((0.0, 0.001, 0.05)))
    road.run(road.time + 300)
    assert producer.safe.reached == producer.taken == 200
    assert road.rows == [b"%d" % number for number in range(200)]
    assert producer.size == 0


def test_one_timer_sees_to_all_batches(road: Road, producer: Producer) -> None:
    put_some(producer, road, 50, 0.1)
    assert (producer.safe.reached, len(road.calls)) == (50, 1)


def test_what_the_log_has_committed_needs_no_answer(road: Road, producer: Producer) -> None:
    with patch.object(road, "_arrive", lambda *_: None):
        put_some(producer, road, 3, 0.1)
    for other in (Mark("node", "an earlier life", 0, 3), Mark("node", "0001", 3, 1)):
        assert not producer.confirm([other])
    for rows, batches in ((Mark("node", "0001", 0, 1), 1), (Mark("node", "0001", 0, 3), 2)):
        assert len(producer.confirm([rows])) == batches
        assert producer.safe.reached == rows.end


def test_rows_with_dots_need_no_answer_once_the_log_has_all_of_them_committed(road: Road) -> None:
    producer = DottedProducer("g", "quorum", road, lambda _count: None)
    with patch.object(road, "_arrive", lambda *_: None):
        for dot in (("node", "0001", 1), ("other", "0001", 7)):
            producer.add_row(dot, DottedRow(b"t", b"x", 2, False, "c", 0), None)
        road.run(road.time + 0.1)
    own, others = marks_of([("node", "0001", 1), ("other", "0001", 7)])
    for some in ([own], [others], [Mark("node", "0001", 0, 2)]):
        assert not producer.confirm(some)
    assert len(producer.confirm([own, others])) == 1
    assert producer.safe.reached == 2


@pytest.mark.parametrize(("left_out", "lost"), [(0, 3), (1, 1)])
def test_what_a_leader_leaves_out_is_counted(road: Road, left_out: int, lost: int) -> None:
    told: list[int] = []
    producer = Producer("g", "quorum", road, told.append)
    for number in range(3):
        put(producer, b"%d" % number)
    with patch.object(road, "_arrive", lambda *asked: asked[3](REFUSED + left_out)):
        road.run(road.time + 1)
    assert told == [lost]
    assert producer.safe.reached == 3


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
@pytest.mark.parametrize("leader", ["a", "b", "c"])
def test_who_leads_is_found_however_many_batches_are_under_way(
    batches: int, leader: str, road: Road, producer: Producer
) -> None:
    """Each of them is answered by who does not lead, all at once; one answer is enough to ask the next."""
    road.delay = (0.01, 0.01)
    road.leader = "nobody"
    put_some(producer, road, batches, 0.003)
    road.run(road.time + 0.5)
    road.leader = leader
    road.run(road.time + 5)
    assert producer.safe.reached == batches
    assert road.asked < 100, "nobody is asked again and again"


def test_what_waits_goes_to_the_group_that_a_partition_has_now(
    road: Road, producer: Producer
) -> None:
    road.leader = "nobody"
    put_some(producer, road, 3, 0.01)
    road.leader = "a"
    road.known = Producers()
    producer.move_to("another")
    put(producer, b"3")
    road.run(10)
    assert producer.group == "another"
    assert road.rows == [b"0", b"1", b"2", b"3"]
    assert producer.safe.reached == 4


def test_nobody_waits_for_a_partition_that_is_no_more(road: Road, producer: Producer) -> None:
    road.leader = "nobody"
    put_some(producer, road, 3, 0)
    road.run(1)
    producer.give_up()
    assert (producer.safe.reached, producer.size, producer.waiting) == (3, 0, 0)
    road.leader = "a"
    road.run(10)
    assert not road.rows


def test_a_publisher_is_read_no_more_while_too_much_waits(road: Road, producer: Producer) -> None:
    road.leader = "nobody"
    publisher = Mock()
    put(producer, b"x" * (PAUSE + 1), publisher)
    assert publisher.method_calls == [call.pause()]
    assert producer.has_room(LIMIT // 2)
    assert not producer.has_room(LIMIT)
    road.run(5)
    assert publisher.method_calls == [call.pause()]
    road.leader = "b"
    road.run(20)
    assert producer.safe.reached == 1
    assert publisher.method_calls == [call.pause(), call.resume()]


def test_what_has_no_place_waits_for_it(road: Road) -> None:
    producer = Producer("", "quorum", road, lambda _count: None)
    put(producer, b"0")
    road.run(10)
    assert (road.asked, producer.safe.reached) == (0, 0)
    producer.move_to("g")
    put(producer, b"1")
    road.run(20)
    assert road.rows == [b"0", b"1"]
    assert producer.safe.reached == 2


class Disk:
    """What is kept of a partition, as `PartitionKeeper` keeps it; who is killed may have written what is under way."""

    def __init__(self, road: Road) -> None:
        self.road = road
        self.kept: list[tuple[Mark, list[bytes]]] = []
        self.life = 0

    def add(self, _group: str, sent: Sequence[Sent], done: Callable[[bool], None]) -> None:
        found = copied(sent)
        self._write(lambda: self.kept.extend(found), done)

    def replace(self, _group: str, sent: Sequence[Sent], done: Callable[[bool], None]) -> None:
        found = copied(sent)
        self._write(lambda: self.kept.__setitem__(slice(None), found), done)

    def drop(self) -> None:
        self._write(self.kept.clear, lambda _done: None, often=0.0)

    def _write(
        self, what: Callable[[], Any], done: Callable[[bool], None], often: float = 0.1
    ) -> None:
        life = self.life
        fails = self.road.random.random() < often

        def write() -> None:
            if life == self.life:
                if not fails:
                    what()
                self.road.later(0.001, lambda: done(not fails) if life == self.life else None)

        # One after the other, as one thread does it.
        self.road.later(0.005, write)

    def sent(self) -> list[Sent]:
        found = []
        for mark, payloads in self.kept:
            rows = Gathering()
            rows.add_run(b"t", list(payloads), 1, "c", 0)
            found.append(Sent(mark, rows, 10, is_kept=True))
        return found


def copied(sent: Sequence[Sent]) -> list[tuple[Mark, list[bytes]]]:
    return [(each.mark, list(each.rows.payloads)) for each in sent]


def test_what_is_kept_is_acknowledged_and_in_the_log_once_whoever_dies(
    subtests: pytest.Subtests,
) -> None:
    """Leaders come, go and forget; the node is killed, and nobody publishes again."""
    kept = 0
    for seed in seeds(20):
        with subtests.test(seed=seed):
            road = Road(seed)
            road.loss = (0.0, 0.1, 0.3)[seed % 3]
            disk = Disk(road)
            told: set[bytes] = set()
            lost: set[bytes] = set()
            number = 0
            for _life in range(4):
                before = [payload for _, payloads in disk.kept for payload in payloads]
                producer = Producer("g", "quorum", road, lambda _count: None, keeper=disk)
                producer.restore("g", disk.sent())
                given = list(before)
                for _ in range(road.random.randint(1, 30)):
                    given.append(b"%d" % number)
                    put(producer, given[-1])
                    number += 1
                    if road.random.random() < 0.2:
                        road.leader = road.random.choice(("a", "b", "nobody", "nobody"))
                        producer.led()
                    if seed % 4 == 0 and road.random.random() < 0.05:
                        lost.update(road.rows)  # with a majority: the leader knows nobody
                        road.known, road.rows = Producers(), []
                    road.run(road.time + road.random.choice((0.0, 0.01, 0.3, 2.0)))
                    told.update(given[: producer.safe.reached])
                kept += producer.kept
                producer.close()
                disk.life += 1
                road.calls.clear()  # what is under way is lost, and what the disk has stays
            road.leader = "a"
            last = Producer("g", "quorum", road, lambda _count: None, keeper=disk)
            last.restore("g", disk.sent())
            road.run(road.time + 400)
            assert (last.waiting, last.size) == (0, 0)
            assert not disk.kept
            assert told - lost <= set(road.rows)
            numbers = [int(each) for each in road.rows]
            assert numbers == sorted(set(numbers)), "each once, in order"
    assert kept, "something was acknowledged that no leader had"


def test_what_an_earlier_life_kept_goes_on_where_nothing_is_kept_any_more(road: Road) -> None:
    road.leader = "nobody"
    disk = Disk(road)
    disk.kept = [(Mark("node", "0000", 3, 2), [b"0", b"1"])]
    road.known.add(Mark("node", "0000", 0, 3))
    producer = Producer("", "quorum", road, lambda _count: None, keeper=disk)
    producer.keeps = False
    producer.restore("g", disk.sent())
    put(producer, b"2")
    road.run(10)
    assert (producer.safe.reached, producer.kept) == (2, 2), "nobody is told of the third"
    road.leader = "b"
    road.run(20)
    assert (road.rows, disk.kept, producer.waiting) == ([b"0", b"1", b"2"], [], 0)
    assert producer.safe.reached == 3


def test_rows_that_come_whole_are_cut_into_batches_that_travel(
    road: Road, producer: Producer
) -> None:
    rows = Gathering()
    rows.add_run(b"t", [b"%d" % number for number in range(3 * MAX_ROWS)], 1, "c", 0)
    rows.add_run(b"t", [b"x" * BATCH_BYTES, b"y" * 10], 1, "c", 0)
    assert producer.add(rows, 100) == 3 * MAX_ROWS + 2
    with patch.object(road, "hand_in", wraps=road.hand_in) as handed:
        road.run(20)
    batches = [each.args[2].rows.payloads for each in handed.call_args_list]
    assert road.rows == rows.payloads
    assert producer.safe.reached == len(rows.payloads)
    assert max(map(len, batches)) <= MAX_ROWS
    assert max(sum(map(len, each)) for each in batches) <= 2 * BATCH_BYTES


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 100), st.booleans()), min_size=1, max_size=60
    )
)
@settings(max_examples=50, deadline=None)
def test_the_bytes_that_wait_on_a_node_are_bounded_and_one_that_is_led_has_room(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Partitions 0 to 2 have no leader; 3 has one. What the naive sum says is what the node counts."""
    road, lost = Road(), Road()
    lost.leader = "nobody"
    backlog = Backlog(1000)
    producers = [
        Producer("g", "quorum", road if each == 3 else lost, lambda _count: None, backlog)
        for each in range(4)
    ]
    for number, size, is_pause in steps:
        producer = producers[number]
        if producer.has_room(size):
            put(producer, b"x" * size)
        assert backlog.size == sum(each.size for each in producers) <= 1000
        assert producers[3].size or producers[3].has_room(100)
        if is_pause:
            road.run(road.time + 5)
            assert not producers[3].size
    for each in producers:
        each.give_up()
    assert backlog.size == 0


@pytest.mark.parametrize(("acks", "alone"), [("quorum", 1), ("leader", 1), ("none", 0)])
def test_what_comes_alone_leaves_at_once_if_somebody_waits_for_it(
    acks: str, alone: int, road: Road
) -> None:
    road.delay = (0.01, 0.01)  # none overtakes another
    producer = Producer("g", acks, road, lambda _count: None)
    put(producer, b"first")
    road.run(0.0)
    assert road.asked == alone
    put(producer, b"second")
    road.run(0.0029)
    assert road.asked == alone, "what is under way has others gather"
    road.run(0.5)
    assert road.asked == alone + 1
    assert road.rows == [b"first", b"second"]
