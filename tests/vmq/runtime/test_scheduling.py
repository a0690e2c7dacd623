"""Short turns are for the event loop of a broker, and for nobody else."""

import os
import platform
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from vmq.runtime.scheduling import SHORT, take_short_turns, turn
from vmq.testing.process import BrokerProcess

#: Before, Linux takes the wish and goes by turns of its own.
HAS_TURNS = tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (6, 12)
T = TypeVar("T")

WANTED = SHORT if HAS_TURNS else turn()


def in_a_thread(what: Callable[[], T]) -> T:
    """The answer of a thread of its own: the one that runs the tests stays as it is."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(what).result()


TCP = "tcp://127.0.0.1:0"


@pytest.fixture
def threads_of_a_broker() -> Iterator[tuple[int, list[int]]]:
    """The thread of the event loop of a broker that serves streams, and its others."""
    env = {"VMQ_STREAMS__KEPT__FILTERS": '["kept/#"]'}
    with BrokerProcess.start((TCP, "grpc://127.0.0.1:0"), env=env) as broker:
        others = [int(each.name) for each in Path(f"/proc/{broker.pid}/task").iterdir()]
        others.remove(broker.pid)
        yield broker.pid, others


def test_a_thread_takes_short_turns() -> None:
    usual = turn()
    assert in_a_thread(lambda: (take_short_turns(), turn())) == (True, WANTED)
    assert turn() == usual


def test_threads_and_programs_of_that_thread_do_not() -> None:
    usual = turn()

    def later() -> float:
        take_short_turns()
        found: list[float] = []
        thread = threading.Thread(target=lambda: found.append(turn()))
        thread.start()
        thread.join()
        return found[0]

    assert in_a_thread(later) == usual


def test_what_somebody_chose_stays() -> None:
    def chosen() -> tuple[bool, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return take_short_turns(), os.sched_getscheduler(0)

    assert in_a_thread(chosen) == (False, os.SCHED_BATCH)


def test_a_system_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert not take_short_turns()
    assert turn() == 0.0


def test_a_broker_without_readers_has_turns_as_usual() -> None:
    with BrokerProcess.start((TCP,)) as broker:
        assert turn(broker.pid) == turn()


def test_a_broker_that_serves_streams_takes_them_in_its_loop(
    threads_of_a_broker: tuple[int, list[int]],
) -> None:
    loop, others = threads_of_a_broker
    assert turn(loop) == WANTED
    # The watchdog's timer is a new thread at each beat: one that has ended since has no turns.
    assert {turn(each) for each in others} - {0.0} == {turn()}
