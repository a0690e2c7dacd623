"""Errors and tables as terminals and pipes get them."""

import io

import pytest

from vmq.cli.terminal.console import error, has_colour, painted, table, warning
from vmq.cli.terminal.rows import show_one


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_colour(Terminal())
    assert not has_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not has_colour(stream)


def test_each_line_of_an_error_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    error("one\ntwo")
    warning("three")
    assert capsys.readouterr().err == ("vmq: error: one\nvmq: error: two\nvmq: warning: three\n")


def test_on_a_terminal_the_mark_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    error("no")
    assert terminal.getvalue() == "vmq: \x1b[1;31merror:\x1b[0m no\n"


def test_bytes_that_are_no_text_do_not_hinder_the_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error("a\udcffb")
    assert capsys.readouterr().err == "vmq: error: a?b\n"


def test_an_error_that_nobody_can_read_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr("sys.stderr", gone)
    error("no")


def test_a_table_in_a_pipe_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    table(("key", "value"), [("a", "x" * 300), ("b", "[red]y")])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["key", "value"]
    assert first.split() == ["a", "x" * 300]
    assert second.split() == ["b", "[red]y"]


def test_a_table_on_a_terminal_is_a_frame_with_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    table(("key", "value"), [("a", "b")])
    assert "\u2500" in terminal.getvalue()
    assert len(terminal.getvalue().splitlines()) > 2


def test_in_a_pipe_two_blanks_part_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """So that a script can take apart cells with single blanks in them."""
    table(("what", "value"), [("load generator", "11% of a core"), ("end", "complete")])
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    found = [(name, value.strip()) for name, value in lines]
    assert found == [("what", "value"), ("load generator", "11% of a core"), ("end", "complete")]


def test_styles_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert painted("x", "2") == "x"
    monkeypatch.setattr("vmq.cli.terminal.console.has_colour", lambda _stream: True)
    assert painted("x", "2") == "\x1b[2mx\x1b[0m"


def test_a_list_of_names_is_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    show_one({"group": "g", "standing_by": ["m1", "m2"], "stalled": []})
    said = capsys.readouterr().out.splitlines()
    assert said[-5:] == ["standing_by", "m1         ", "m2         ", "", "stalled: none"]


def test_a_row_shows_what_it_holds_as_an_operator_would_write_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"replicas": ["a", "b"], "behind": {"c": 3}}, {"replicas": [], "behind": {}}]
    show_one({"partitions": rows})
    shown = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    found = [[each.strip() for each in line if each.strip()] for line in shown[-3:]]
    assert found == [["replicas", "behind"], ["a, b", "c: 3"], ["-", "-"]]
