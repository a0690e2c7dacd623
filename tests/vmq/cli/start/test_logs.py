"""The lines of the broker's log."""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmq.cli.start.logs import LineFormatter, configure


def record(message: str, *arguments: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("vmq.test", level, "file", 1, message, arguments, None)


def test_an_event_is_a_line_of_time_level_and_message() -> None:
    line = LineFormatter().format(record("closed client=%s", "c1"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info closed client=c1", line)


def test_of_several_workers_each_names_itself_in_its_lines() -> None:
    assert LineFormatter(worker=3).format(record("closed")).endswith("Z info worker=3 closed")


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x1b[2Jb", "a\x85b", "a\u2028b", "a\x00b"])
def test_what_a_stranger_sent_cannot_begin_a_line_or_steer_the_terminal(text: str) -> None:
    line = LineFormatter().format(record("closed client=%s", text))
    assert line.isprintable()
    assert len(line.splitlines()) == 1


def test_what_a_stranger_sent_looks_like_no_field() -> None:
    event = record('refused client=%s user="%s" peer=%s', 'c peer="x"', 'a" peer=\\', "1.2.3.4")
    line = LineFormatter().format(event)
    assert line.endswith(r'client="c peer=\"x\"" user="a\" peer=\\" peer=1.2.3.4')


def test_other_text_stays_as_it_is() -> None:
    assert LineFormatter().format(record("café → 茶")).endswith("café → 茶")


def test_a_traceback_follows_its_event_and_begins_no_line_as_one() -> None:
    failed = record("failed", level=logging.ERROR)
    error = ValueError("a\n2026-03-01T12:00:00.123Z info b\x1b[2J\x85")
    failed.exc_info = (ValueError, error, None)
    first, *rest = LineFormatter().format(failed).splitlines()
    assert first.endswith("error failed")
    assert rest == ["  ValueError: a", r"  2026-03-01T12:00:00.123Z info b\x1b[2J\x85"]


def test_colours_only_when_asked_for() -> None:
    warning = record("careful", level=logging.WARNING)
    assert "\x1b" not in LineFormatter().format(warning)
    assert "\x1b[33mwarning\x1b[0m" in LineFormatter(coloured=True).format(warning)


@pytest.fixture
def undisturbed() -> Iterator[None]:
    """The logging of this process is afterwards as it was."""
    root, ours = logging.getLogger(), logging.getLogger("vmq")
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    yield
    for handler in root.handlers:
        if handler not in before[0]:
            handler.close()
    root.handlers[:], logging.raiseExceptions = before[0], before[3]
    root.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.mark.usefixtures("undisturbed")
def test_a_file_that_cannot_be_opened_anew_leaves_the_log_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = configure("info", "text", folder / "vmq.log")
    moved = folder.rename(tmp_path / "moved")
    with pytest.raises(OSError, match="No such file"):
        log.reopen()
    logging.getLogger("vmq.test").info("still here")
    assert "still here" in (moved / "vmq.log").read_text()


@pytest.mark.usefixtures("undisturbed")
def test_who_could_read_the_log_can_read_it_after_it_was_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "vmq.log"
    log = configure("info", "text", path)
    path.chmod(0o640)
    before = os.umask(0o077)  # as of a broker that runs
    try:
        path.rename(tmp_path / "vmq.log.1")
        log.reopen()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
