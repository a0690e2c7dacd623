"""Rows on the terminal, and what is said beside them."""

import json

import pytest

from vmq.cli.terminal.rows import Columns, cell, json_text, show_rows


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_among_the_rows_is_said_beside_them(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    rows = [{"client_id": "c1"}]
    show_rows({"rows": rows, "more": False}, Columns(("client_id",)), as_json=as_json)
    assert capsys.readouterr().err == ""
    answer = {"rows": rows, "more": True, "missing": ["b", "c"]}
    show_rows(answer, Columns(("client_id",)), as_json=as_json)
    shown = capsys.readouterr()
    assert "c1" in shown.out
    assert "there are more rows than these 1" in shown.err
    assert "not among the rows: b, c" in shown.err


def test_json_has_no_control_characters_and_says_the_same() -> None:
    value = {"topic": "a\x1b[2J\x9b31m\x7f\u202e\n", "text": "grüße"}
    text = json_text(value)
    assert text.isprintable()
    assert json.loads(text) == value
    assert "grüße" in text


@pytest.mark.parametrize(
    ("value", "text"), [(100086881.4, "100086881"), (8.3232, "8.3232"), (2.0, "2"), (0.25, "0.25")]
)
def test_large_numbers_have_no_exponent(value: float, text: str) -> None:
    assert cell(value) == text
