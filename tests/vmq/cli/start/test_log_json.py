"""The lines of a log in JSON."""

import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.cli.start.log_json import JsonFormatter

CLOSED = 'closed client=%s peer=%s reason="%s"'


def line(message: str, *arguments: object, level: int = logging.INFO) -> str:
    record = logging.LogRecord("vmq.test", level, "file", 1, message, arguments, None)
    return JsonFormatter().format(record)


def entry(message: str, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line(message, *arguments))
    return found


def test_the_fields_of_an_event_are_fields_of_the_object() -> None:
    found = entry(CLOSED, "c1", "127.0.0.1:1", 'said "no"')
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "info",
        "logger": "vmq.test",
        "message": "closed",
        "client": "c1",
        "peer": "127.0.0.1:1",
        "reason": 'said "no"',
    }


def test_of_several_workers_each_names_itself() -> None:
    record = logging.LogRecord("vmq", logging.INFO, "file", 1, "moved worker=%d", (7,), None)
    found = json.loads(JsonFormatter(worker=3).format(record))
    assert (found["worker"], found["worker_"]) == (3, 7)


def test_numbers_stay_numbers() -> None:
    found = entry("expired sessions=%d share=%s", 3, 0.5)
    assert (found["sessions"], found["share"]) == (3, 0.5)
    found = entry("late after=%.1fs", 0.5)
    assert (found["message"], found["after"]) == ("late", 0.5)


@pytest.mark.parametrize(
    ("message", "arguments", "text"),
    [
        ("the store cannot write: %s", ("full",), "the store cannot write: full"),
        ("%s client=%s", ("lost", "c1"), "lost client=c1"),
        ("100 % sure", (), "100 % sure"),
    ],
)
def test_values_that_are_no_fields_are_in_the_message(
    message: str, arguments: tuple[object, ...], text: str
) -> None:
    found = entry(message, *arguments)
    assert found["message"] == text
    assert found.get("client") == ("c1" if "client" in text else None)


def test_a_field_does_not_hide_what_every_event_has() -> None:
    found = entry("changed level=%s", "debug")
    assert (found["level"], found["level_"]) == ("info", "debug")


@given(st.text(st.characters(codec=None)))
def test_whatever_a_stranger_sent_stays_in_its_line(text: str) -> None:
    one = line(CLOSED, text, text, text)
    assert len(one.splitlines()) == 1
    assert not any(0x7F <= ord(char) <= 0x9F or char in "\u2028\u2029" for char in one)
    assert json.loads(one)["client"] == text


def test_a_traceback_is_a_field() -> None:
    record = logging.LogRecord("vmq.test", logging.ERROR, "file", 1, "failed", (), None)
    try:
        int("x")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "ValueError" in json.loads(JsonFormatter().format(record))["traceback"]
