"""The syntax of the file of rules."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from vmq_acl.rules import Access, Rule, parse
from vmq_hooks.files import FileError

PATH = Path("/etc/vmq/acl")
BOTH = Access.READ | Access.WRITE


def rules(text: str) -> list[Rule]:
    return parse(text.encode(), PATH)


def unplaced(text: str) -> list[Rule]:
    """The rules, wherever they stand."""
    return [replace(rule, line=0) for rule in rules(text)]


def test_a_file_as_people_write_it() -> None:
    text = """\
# everybody without a name
topic read $SYS/#

user bob builder
topic readwrite   tools/+/hammer
\ttopic write a topic with blanks\t
topic deny tools/1/saw
pattern read of/%u
user eve
topic all/of/it\r
"""
    assert [rule.line for rule in rules(text)] == [2, 5, 6, 7, 8, 10]
    assert unplaced(text) == [
        Rule("$SYS/#", Access.READ),
        Rule("tools/+/hammer", BOTH, "bob builder"),
        Rule("a topic with blanks", Access.WRITE, "bob builder"),
        Rule("tools/1/saw", Access(0), "bob builder"),
        Rule("of/%u", Access.READ, None, is_pattern=True),
        Rule("all/of/it", BOTH, "eve"),
    ]
    assert [rule.denies for rule in rules(text)] == [False, False, False, True, False, False]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert unplaced("\ufefftopic a") == [Rule("a", BOTH)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("topics a", "'topics' begins no rule; accepted: topic, pattern, user"),
        ("topic", "topic: a topic filter is missing"),
        ("topic read", "topic read: a topic filter is missing"),
        ("pattern", "pattern: a topic filter is missing"),
        ("topic reed a", "'reed' is no access; accepted: read, write, readwrite, deny"),
        ("user", "user: a name is missing"),
        ("topic a/#/b", "'a/#/b': # stands alone, in the last level only"),
        ("topic a#", "'a#': # stands alone, in the last level only"),
        ("pattern read a+/b", "'a+/b': + stands alone in its level"),
        ("topic read $share/g/a", "rules name topics; leave $share/GROUP/ away"),
        ("topic read a\0", "no null character"),
        ("topic read " + "a" * 65536, "longer than 65535 bytes"),
    ],
)
def test_what_is_no_rule_is_named_with_file_and_line(line: str, problem: str) -> None:
    with pytest.raises(FileError) as refused:
        rules(f"topic a\n\n{line}\ntopic b\n")
    assert str(refused.value).startswith("/etc/vmq/acl, line 3: ")
    assert problem in str(refused.value)


def test_what_is_no_text_is_named_with_file_and_line() -> None:
    with pytest.raises(FileError, match="/etc/vmq/acl, line 2: not UTF-8"):
        parse(b"topic a\ntopic \xff\n", PATH)


@given(st.binary() | st.text().map(str.encode))
def test_whatever_the_bytes_are_they_are_rules_or_refused(data: bytes) -> None:
    try:
        parse(data, PATH)
    except FileError as refused:
        assert "line" in str(refused)
