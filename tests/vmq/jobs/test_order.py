"""Walks in order: what one step costs, and against a plain dictionary."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.jobs.support import House
from vmq.jobs.order import NameOrder
from vmq.jobs.storage.journal import SegmentWalk


class Looks:
    """Counts what an order looks at."""

    def __init__(self, order: NameOrder) -> None:
        self.count = 0
        self.number_of = order.number_of
        order.number_of = self

    def __call__(self, name: bytes) -> int:
        self.count += 1
        return self.number_of(name)

    def during(self, call: Callable[[], object]) -> int:
        """What a call looks at."""
        before = self.count
        call()
        return self.count - before


@pytest.mark.parametrize("of", ["jobs", "queues"])
def test_a_step_of_a_walk_looks_at_nothing_that_came_before(of: str) -> None:
    house = House()
    machine = house.machine
    for number in range(5000):
        queue = machine.queue(b"%d" % number, house.now)
        machine.add(queue, b"x", house.now)
    looks = Looks(machine.job_order if of == "jobs" else machine.queue_order)
    seen: list[bytes] = []
    at = 0

    def step() -> None:
        nonlocal at
        if of == "jobs":
            for job in machine.jobs_after(at, 100):
                seen.append(job.id)
                at = int(job.created)
        else:
            for queue in machine.queues_after(at, 100):
                seen.append(queue.name)
                at = queue.number

    assert max(looks.during(step) for _ in range(50)) < 1200
    assert seen == list(machine.jobs if of == "jobs" else machine.queues)


def test_a_search_of_a_segment_goes_on_where_it_stopped() -> None:
    house = House()
    for number in range(5000):
        house.add().segment = number % 10
    looks, walk = Looks(house.machine.job_order), SegmentWalk(house.machine)
    looked_at = looks.during(lambda: walk.some(3, 100))
    assert looked_at < 2500
    assert len(walk.some(3, 400)) == 400
    assert looks.count < 10_000
    assert walk.some(3, 1) == []
    assert walk.is_over
    # From the first on again: some may have come back to memory.
    assert len(walk.some(3, 500)) == 500


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("anog"), st.integers(0, 3000)), max_size=40))
def test_a_walk_sees_once_what_is_there_from_its_beginning_to_its_end(
    steps: list[tuple[str, int]],
) -> None:
    there: dict[bytes, int] = {}
    order = NameOrder(there, there.__getitem__)
    used: set[int] = set()
    highest = 0

    def add(number: int) -> None:
        name = b"%d" % (number % 4001)  # one that is gone may come again, with another number
        if name not in there and number not in used:
            used.add(number)
            there[name] = number
            order.add(name, number)

    for number in range(1, 1500):
        add(2 * number)
    highest = 3000
    stays = set(there)
    seen: list[bytes] = []
    at = 0
    for what, which in steps:
        if what == "a":
            for number in range(highest + 1, highest + which):
                add(number)
            highest += which
        elif what == "n":
            add(which)
        elif what == "o":
            some = order.after(at, which + 1)
            assert some == sorted(some, key=there.__getitem__)
            seen += some
            at = there[some[-1]] if some else at
        else:
            for name in [each for each, number in there.items() if which < number < 2 * which]:
                del there[name]
                stays.discard(name)
            order.tidy()
    while some := order.after(at, 700):
        seen += some
        at = there[some[-1]]
    assert stays <= set(seen)
    assert order.after(-1, 1 << 30) == sorted(there, key=there.__getitem__)


def test_what_is_gone_is_forgotten_also_if_nothing_is_added() -> None:
    there = {b"%d" % number: number for number in range(100_000)}
    order = NameOrder(there, there.__getitem__)
    for name, number in there.items():
        order.add(name, number)
    there.clear()
    while order.tidy():
        pass
    assert order.size <= 512
