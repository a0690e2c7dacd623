"""What a plugin's breaker (tests/vmq_hooks/test_breaker.py) counts and tells, against a clock that stands still."""

import pytest
from vmq_hooks.answers import AnswerError

from tests.vmq.support import Clock
from vmq.cli.start.logs import LineFormatter
from vmq.plugins.guard import MOST_ANSWERS, QUIET, PluginGuard


def guard() -> tuple[PluginGuard, Clock]:
    clock = Clock(1_000.0)
    return PluginGuard("p", 5.0, limit=0, clock=clock), clock


def test_a_flood_of_failures_is_one_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    it, clock = guard()
    for _ in range(50):
        it.failed("h", AnswerError("x"))
    clock.advance(QUIET)
    it.failed("h", AnswerError("x"))
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 2
    assert lines[1].endswith("more=49")
    assert it.errors == {"h": 51}
    for number in range(500):  # and so are those that all differ
        it.failed("h", AnswerError(f"{number} is no answer"))
    assert len(caplog.records) == MOST_ANSWERS + 2


def test_failures_of_another_kind_are_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    it, _ = guard()
    for _ in range(2):
        it.failed("h", OSError("away"))
        it.failed("h", ValueError('a" plugin=q'))
        it.failed("h", AnswerError("3 is no answer"))
        it.failed("h", AnswerError("4 is no answer"))
        it.failed("h", TimeoutError())
        it.timed_out("h")
    for each in caplog.records:
        each.exc_info = None
    told = [LineFormatter().format(each).partition("hook=h ")[2] for each in caplog.records]
    assert told == [
        'error="OSError: away" more=0',
        r'error="ValueError: a\" plugin=q" more=0',
        'answer="3 is no answer" more=0',
        'answer="4 is no answer" more=0',
        'error="TimeoutError" more=0',
        'error="no verdict within 5 s" more=0',
    ]
