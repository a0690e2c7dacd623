"""The inflight window against a plain dict, whose order is that of sending."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.core.window import FEWEST_SLOTS, KEPT_SLOTS, LAST_ID, NO_SLOTS, InflightWindow, PacketRun
from vmq.mqtt.message import Delivery, Message

MESSAGE = Message(b"t", b"", 1, False)

#: Ids that meet in a slot of small rings, and those at the ends.
IDS = st.one_of(
    st.integers(1, LAST_ID), st.sampled_from([1, 2, 9, 17, 65, 129, 32_769, 65_534, LAST_ID])
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 40)),
        st.tuples(st.sampled_from(["put", "last"]), IDS),
        st.tuples(st.sampled_from(["remove", "to_end"]), st.integers(0, 10_000)),
        st.tuples(st.just("remove first"), st.integers(1, 60)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=60,
)


def sent(packet_id: int = 0) -> Delivery:
    delivery = Delivery(MESSAGE, 1, False, "")
    delivery.packet_id = packet_id
    return delivery


class Oracle:
    """A window, and a dict in which everything is done once more."""

    def __init__(self) -> None:
        self.window = InflightWindow()
        self.plain: dict[int, Delivery] = {}

    def do(self, change: str, number: int) -> None:
        window, plain = self.window, self.plain
        if change == "send":
            for _ in range(number):
                self.send()
        elif change == "put":
            delivery = sent(number)
            window.put(delivery)
            plain.pop(number, None)
            plain[number] = delivery
        elif change == "last":
            window.last_packet_id = number
        elif change == "remove first":
            for delivery in list(plain.values())[:number]:
                window.remove(delivery)
                del plain[delivery.packet_id]
        elif change == "clear":
            window.clear()
            plain.clear()
        elif plain:
            delivery = list(plain.values())[number % len(plain)]
            del plain[delivery.packet_id]
            if change == "remove":
                window.remove(delivery)
            else:
                window.to_end(delivery)
                plain[delivery.packet_id] = delivery

    def send(self) -> None:
        """Gives one an id, which is free and, among those whose slots are, the next."""
        before = self.window.last_packet_id
        delivery = sent()
        self.window.send(delivery)
        packet_id = delivery.packet_id
        assert 1 <= packet_id <= LAST_ID
        assert packet_id not in self.plain
        size = len(self.window.slots)
        taken = {each % size for each in self.plain}
        passed = before % LAST_ID + 1
        while passed != packet_id:
            assert passed % size in taken
            passed = passed % LAST_ID + 1
        self.plain[packet_id] = delivery

    def check(self, packet_id: int) -> None:
        window, plain = self.window, self.plain
        assert window.values() == list(plain.values())
        assert len(window) == window.count == len(plain)
        assert bool(window) == bool(plain)
        assert window.get(packet_id) is plain.get(packet_id)
        assert (packet_id in window) == (packet_id in plain)
        for each, delivery in plain.items():
            assert window.get(each) is delivery
        assert NO_SLOTS == [None]


@given(CHANGES, IDS)
@settings(max_examples=120)
def test_it_is_a_dict_in_order_of_sending(changes: list[tuple[str, int]], looked_for: int) -> None:
    oracle = Oracle()
    for change, number in changes:
        oracle.do(change, number)
        oracle.check(looked_for)


#: Where a run begins, and how long it is, or what is acknowledged.
WITH_RUNS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 20), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 60), st.integers(1, 20)),
        st.tuples(st.just("put"), st.integers(1, 60), st.just(0)),
        st.tuples(st.just("one"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("in order"), st.integers(1, 30), st.integers(0, 3)),
        st.tuples(st.just("take run"), st.integers(0, 5), st.just(0)),
    ),
    max_size=40,
)


class RunOracle:
    """A window with runs, and the packet ids that are in flight, in the order of sending."""

    def __init__(self) -> None:
        self.window = InflightWindow()
        self.ids: list[int] = []

    def do(self, change: str, number: int, more: int) -> None:
        window, ids = self.window, self.ids
        runs = window.all_runs()
        if change == "send":
            for _ in range(number):
                delivery = sent()
                window.send(delivery)
                assert delivery.packet_id not in ids
                ids.append(delivery.packet_id)
        elif change == "run":
            wanted = range(number, number + more)
            is_free = window.is_free(number, more)
            assert is_free == (not set(wanted) & set(ids))
            if is_free:
                window.send_run(PacketRun(number, more))
                ids += wanted
        elif change == "put":
            window.put(sent(number))
            self.ids = [each for each in ids if each != number] + [number]
        elif change == "one" and ids:
            packet_id = ids.pop(number % len(ids))
            found = window.get(packet_id)
            assert found is not None
            window.remove(found)
        elif change == "in order" and window.runs is not None and runs:
            self.acknowledge(runs[0], number, more)
        elif change == "take run" and window.runs is not None and runs:
            run = runs[number % len(runs)]
            gone = range(run.first, run.first + run.left)
            window.runs.remove(run)
            self.ids = [each for each in ids if each not in gone]

    def acknowledge(self, first: PacketRun, count: int, wrong: int) -> None:
        """So many packets that begin with the first run, and others behind them."""
        assert self.window.runs is not None
        ids = [*range(first.first, first.first + count), *[LAST_ID] * wrong]
        data = b"".join(b"\x40\x02" + each.to_bytes(2, "big") for each in ids)
        found = self.window.runs.acknowledged(b"\x40\x02\0\x01" + data, 4)
        assert found == min(count, first.left)
        done = ids[:found]
        self.window.runs.advance(found)
        self.ids = [each for each in self.ids if each not in done]

    def check(self) -> None:
        window = self.window
        content = window.content()
        assert [each.packet_id for each in content] == self.ids
        assert len(window) == len(self.ids)
        assert window.oldest() == (content[0].turn if content else -1)


@given(WITH_RUNS)
@settings(max_examples=120)
def test_runs_are_in_flight_as_single_ones_are(changes: list[tuple[str, int, int]]) -> None:
    oracle = RunOracle()
    for change in changes:
        oracle.do(*change)
        oracle.check()


def test_a_client_that_holds_one_id_makes_no_ring_large() -> None:
    """Its window moves on all the same, round after round of the ids."""
    window = InflightWindow()
    held = sent()
    window.send(held)
    given_before: list[int] = []
    for _ in range(2 * LAST_ID):
        delivery = sent()
        window.send(delivery)
        given_before.append(delivery.packet_id)
        window.remove(delivery)
    assert len(window.slots) == FEWEST_SLOTS
    assert held.packet_id not in given_before
    assert all(one != other for one, other in pairwise(given_before))
    assert window.values() == [held]


def test_all_ids_can_be_in_flight() -> None:
    window = InflightWindow()
    for _ in range(LAST_ID):
        window.send(sent())
    assert sorted(each.packet_id for each in window.values()) == list(range(1, LAST_ID + 1))
    assert window.get(0) is None
    freed = window.values()[40_000]
    window.remove(freed)
    last = sent()
    window.send(last)
    assert last.packet_id == freed.packet_id
    assert window.values()[-1] is last


def test_what_is_not_there_cannot_be_taken_out() -> None:
    window = InflightWindow()
    with pytest.raises(KeyError):
        window.remove(sent(1))
    window.put(sent(1))
    with pytest.raises(KeyError):
        window.remove(sent(1))
    assert len(window) == 1


def test_an_empty_window_keeps_few_slots_or_none() -> None:
    window = InflightWindow()
    assert window.slots is NO_SLOTS
    for count, kept in ((20, KEPT_SLOTS), (100, len(NO_SLOTS))):
        deliveries = [sent() for _ in range(count)]
        for delivery in deliveries:
            window.send(delivery)
        for delivery in deliveries:
            window.remove(delivery)
        assert len(window.slots) == kept
    assert sys.getsizeof(window) <= 64
