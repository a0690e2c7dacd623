"""Floods of one kind of event."""

import logging

from tests.vmq.support import Clock
from vmq.cli.start import log_flood
from vmq.cli.start.log_flood import SPAN, FloodFilter

CLOSED = 'closed client=%s peer=%s reason="%s"'


def record(
    message: str = CLOSED, level: int = logging.INFO, name: str = "vmq.session"
) -> logging.LogRecord:
    arguments = ("c", "p", "r") if message == CLOSED else ()
    return logging.LogRecord(name, level, "file", 1, message, arguments, None)


def passed(flood: FloodFilter, count: int, message: str = CLOSED, level: int = logging.INFO) -> int:
    return sum(flood.filter(record(message, level)) for _ in range(count))


def texts(flood: FloodFilter, *, everything: bool = False) -> list[str]:
    return [each.getMessage() for each in flood.summaries(everything=everything)]


def test_a_kind_is_written_up_to_the_limit_and_then_summed_up() -> None:
    clock = Clock(100.0)
    flood = FloodFilter(3, clock)
    assert passed(flood, 3) == 3
    assert passed(flood, 7) == 0
    assert texts(flood) == []
    clock.now += SPAN
    assert texts(flood) == ['suppressed count=7 of="closed" seconds=10']
    assert texts(flood) == []
    assert passed(flood, 4) == 3


def test_other_kinds_are_written_meanwhile() -> None:
    flood = FloodFilter(1, Clock(100.0))
    assert passed(flood, 5) == 1
    assert passed(flood, 5, "started") == 1
    assert passed(flood, 5, level=logging.WARNING) == 1
    assert flood.filter(record(name="vmq.broker"))


def test_a_slow_trickle_is_all_written() -> None:
    clock = Clock(100.0)
    flood = FloodFilter(1, clock)
    for _ in range(5):
        assert passed(flood, 1) == 1
        clock.now += SPAN
    assert texts(flood, everything=True) == []


def test_debug_and_critical_events_and_no_limit_let_all_pass() -> None:
    flood = FloodFilter(1, Clock(100.0))
    assert passed(flood, 5, level=logging.DEBUG) == 5
    assert passed(flood, 5, level=logging.CRITICAL) == 5
    assert passed(FloodFilter(0, Clock(100.0)), 5) == 5


def test_at_the_end_nothing_is_left_unsaid() -> None:
    flood = FloodFilter(1, Clock(100.0))
    passed(flood, 3)
    (summary,) = flood.summaries(everything=True)
    assert (summary.levelno, summary.name) == (logging.INFO, "vmq.session")
    assert flood.filter(summary)


def test_a_summary_names_an_event_without_fields_too() -> None:
    flood = FloodFilter(1, Clock(100.0))
    passed(flood, 2, "the disk is full: %s")
    assert texts(flood, everything=True) == ['suppressed count=1 of="the disk is full" seconds=10']


def test_no_more_than_so_many_kinds_are_remembered() -> None:
    clock = Clock(100.0)
    flood = FloodFilter(1, clock)
    for number in range(2 * log_flood.MAX_KINDS):
        passed(flood, 2, f"event {number}")
    assert len(flood._counts) <= log_flood.MAX_KINDS + 1
    clock.now += SPAN
    assert len(texts(flood)) == log_flood.MAX_KINDS + 1
    assert flood._counts == {}
