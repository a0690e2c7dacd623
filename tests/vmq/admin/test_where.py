"""The filters of listings."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from vmq.admin.errors import AdminError
from vmq.admin.where import MAX_LENGTH, columns_of, compile_where


class Row(Struct):
    name: str
    size: int
    share: float | None
    is_on: bool
    user: str | None = None
    tags: list[str] = []


ROW = Row("dev-1", 150, 0.5, True)
OTHER = Row("gate", 7, None, False, "bob")


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("size > 100", True, False),
        ("size >= 150 and size <= 150", True, False),
        ('size > 100 and name ~ "^dev"', True, False),
        ("name = 'gate'", False, True),
        ('name == "gate" or size = 150', True, True),
        ("name != 'gate'", True, False),
        ("name !~ 'a'", True, False),
        ("is_on", True, False),
        ("not is_on", False, True),
        ("NOT is_on = TRUE", False, True),
        ("is_on = false", False, True),
        ("user = null", True, False),
        ("user != null", False, True),
        ("share > 0.1", True, False),
        ("share < 0.1", False, False),
        ("not share > 0.1", False, True),
        ("user ~ 'b'", False, True),
        ("100 < size", True, False),
        ("size > -1", True, True),
        ("size = size", True, True),
        ("(size = 7 or size = 150) and not (is_on)", False, True),
        ("size = 7 or size = 150 and is_on", True, True),
        (r'name = "a\"b"', False, False),
    ],
)
def test_expressions(text: str, first: bool, second: bool) -> None:
    holds = compile_where(text, Row)
    assert (holds(ROW), holds(OTHER)) == (first, second)


def test_columns_are_those_of_plain_values() -> None:
    assert columns_of(Row) == {
        "name": "text",
        "size": "number",
        "share": "number",
        "is_on": "boolean",
        "user": "text",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("siez > 1", "there is no column 'siez'; accepted: name, size, share, is_on, user"),
        ("tags = 1", "there is no column 'tags'"),
        ("size > 'x'", "size is a number and 'x' a text"),
        ("name > 5", "name is a text and 5 a number"),
        ("size", "size is a number, no yes or no"),
        ("size ~ '1'", "~ wants a text column"),
        ("name ~ user", "~ wants a text column"),
        ("name ~ '('", "a ( without its )"),
        ("size < null", "null is neither less nor more"),
        ("size >", "ends too early"),
        ("size > 1 size", "'size' is not expected here"),
        ("(size > 1", "a ( without its )"),
        ("size > 1)", "')' is not expected here"),
        ("and size > 1", "'and' is not expected here"),
        ("size > 1 ; drop", "cannot read '; drop'"),
        ("name = 'open", 'cannot read "\'open"'),
        ("   ", "empty"),
        ("(" * 40 + "is_on" + ")" * 40, "deeper than 30"),
        ("not " * 40 + "is_on", "deeper than 30"),
        ("is_on or " * MAX_LENGTH + "is_on", "longer than"),
        ("name.__class__ = 1", "cannot read '.__class__ = 1'"),
    ],
)
def test_errors_say_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(AdminError, match=re.escape(said)):
        compile_where(text, Row)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("siez > 1", 1),
        ("size > 1 and  siez > 1", 15),
        ("size > 1 ; drop", 10),
        ("size > 1 or name > 5", 13),
        ("is_on or (size > 1", 10),
        ("size >", 7),
        ("name ~ '('", 8),
        ("size > 1 size", 10),
        ("size > and", 8),
        ("is_on and size", 11),
    ],
)
def test_errors_say_where(text: str, place: int) -> None:
    with pytest.raises(AdminError, match=rf"^where, at character {place}: "):
        compile_where(text, Row)


@given(st.text(alphabet="size name=<>~!()\"' and or not 1.5-\\null", max_size=40))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        holds = compile_where(text, Row)
    except AdminError:
        return
    assert holds(ROW) in (True, False)
    assert holds(OTHER) in (True, False)
