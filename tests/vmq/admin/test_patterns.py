"""Patterns: what `re` answers, in time that cannot explode."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.admin.patterns import MAX_PATTERN, MAX_TEXT, Pattern, PatternError

ATOMS = st.sampled_from(
    ["a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\.", r"\w", "1", "-"]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


PATTERNS = st.tuples(
    st.sampled_from(["", "^"]),
    st.recursive(ATOMS, _larger, max_leaves=6),
    st.sampled_from(["", "$"]),
).map("".join)


@given(PATTERNS, st.text(alphabet="abc1.-x", max_size=12))
def test_patterns_mean_what_they_mean_to_re(pattern: str, text: str) -> None:
    expected = re.search(pattern.removesuffix("$") + (r"\Z" if pattern.endswith("$") else ""), text)
    assert Pattern(pattern).search(text) is (expected is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^dev", "dev-1", True),
        ("^dev", "my-dev", False),
        ("dev$", "my-dev", True),
        ("", "anything", True),
        ("^$", "", True),
        ("^$", "x", False),
        ("^a|b", "ab", True),
        ("a|", "", True),
        (r"\$$", "5$", True),
        (r"a\$", "a$b", True),
        (r"\\$", "a\\", True),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        ("(a+)+$", "a" * 5000 + "b", True),  # the end of what is looked at
        ("^[A-Z][0-9]+$", "Q17", True),
        ("ü", "München", True),
        (r"^\w+\s\d$", "größe\u2003\u0667", True),
        (r"[\w-.]$", "a-", True),
        (r"^[^\w]$", "é", False),
        ("^.$", "\n", True),
        ("^a+?$", "", True),
        ("^a**$", "aa", True),
    ],
)
def test_examples(pattern: str, text: str, found: bool) -> None:
    assert Pattern(pattern).search(text) is found


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a*)*b", "(a|a)*b", "(.*.*.*.*.*)x", "(a?)*" * 30 + "b"]
)
def test_what_hangs_others_ends(pattern: str) -> None:
    # An engine that tries one alternative after the other would take 2 ** 999 steps.
    assert not Pattern(pattern).search("a" * (MAX_TEXT - 1) + "c")


def test_what_no_utf_8_has_is_not_found_nor_an_error() -> None:
    assert not Pattern("^\ud800$").search("\ud800")
    assert Pattern("dev").search("dev\udcff")


def test_a_broker_that_searches_nothing_does_not_load_the_engine() -> None:
    code = "import sys, vmq.broker, vmq.admin.where; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a{2}", "{ is not supported"),
        ("a^", "^ is not supported"),
        ("a$b", "$ is not supported"),
        ("*a", "nothing to repeat"),
        ("(a", "a ( without"),
        ("a)", "a ) without"),
        ("[a", "a [ without"),
        ("[z-a]", "is empty"),
        ("(?:a)", "(? is not supported"),
        (r"(a)\1", r"\1 is not supported"),
        (r"\bx", r"\b is not supported"),
        ("a\\", "a \\ at the end"),
        ("(" * 21 + ")" * 21, "deeper than 20"),
        ("a" * (MAX_PATTERN + 1), "longer than"),
        (r"\w" * 100, "more than 1 MiB"),
    ],
)
def test_what_is_not_supported_says_so(pattern: str, said: str) -> None:
    with pytest.raises(PatternError, match=re.escape(said)):
        Pattern(pattern)
