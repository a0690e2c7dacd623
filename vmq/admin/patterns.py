"""Regular expressions that cannot hang: matching takes time in proportion to the text, whatever the pattern.

An operator's pattern runs inside the broker's loop, once for each of perhaps 100,000 rows. Python's `re` tries
alternatives one after the other, and `(a+)+$` makes it try exponentially many of them. Here a pattern becomes the set
of positions that may come next (Glushkov's automaton; re2 works alike): a character leads from one set to the next, and
steps that were taken before are looked up.

Pattern and text are bounded besides: 200 characters of pattern, the first 1,000 of the text.
"""

from collections.abc import Callable
from typing import Final

#: Longest pattern, and how much of a text is looked at.
MAX_PATTERN: Final = 200
MAX_TEXT: Final = 1000
#: Deepest nesting of parentheses.
MAX_DEPTH: Final = 20
#: Steps that are remembered; then all are forgotten.
MAX_STEPS: Final = 5000

ACCEPTED: Final = (
    "letters and digits as they are, . [a-z] [^a-z] \\d \\w \\s, \\ before a special character, "
    "* + ?, ( | ), ^ at the start, $ at the end"
)

Test = Callable[[str], bool]

_CLASSES: Final[dict[str, Test]] = {
    "d": str.isdecimal,
    "w": lambda char: char.isalnum() or char == "_",
    "s": str.isspace,
}


class PatternError(ValueError):
    """The pattern cannot be used; the text says why."""


class _Part:
    """What one part of a pattern may be: empty, beginning at these positions, ending at those."""

    def __init__(self, empty: bool, first: frozenset[int], last: frozenset[int]) -> None:
        self.empty = empty
        self.first = first
        self.last = last


class Pattern:
    """A pattern that is searched for anywhere in a text, unless ^ and $ hold it to the ends.

    Raises:
        PatternError: it is too long, or uses what is not supported.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise PatternError(f"the pattern is longer than {MAX_PATTERN} characters")
        self._from_start = pattern.startswith("^")
        body = pattern[1:] if self._from_start else pattern
        # An even number of backslashes before it escape each other.
        escapes = len(body[:-1]) - len(body[:-1].rstrip("\\"))
        self._to_end = body.endswith("$") and escapes % 2 == 0
        self._text = body[:-1] if self._to_end else body
        self._at = 0
        self._depth = 0
        #: What each position accepts, and which ones may follow it.
        self._tests: list[Test] = []
        self._follow: list[set[int]] = []
        whole = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("a ) without its (")
        self._whole = whole
        self._steps: dict[tuple[frozenset[int], str], tuple[bool, frozenset[int]]] = {}

    def search(self, text: str) -> bool:
        """Whether the pattern is in the text."""
        whole = self._whole
        if whole.empty and not (self._from_start and self._to_end):
            return True
        text = text[:MAX_TEXT]
        if not text:
            return whole.empty
        # The positions that the next character may match.
        follow = whole.first
        accepts = False
        for char in text:
            accepts, follow = self._step(follow, char)
            if accepts and not self._to_end:
                return True
        return accepts

    def _step(self, follow: frozenset[int], char: str) -> tuple[bool, frozenset[int]]:
        """Whether the pattern may end with this character, and the positions that may come next."""
        found = self._steps.get((follow, char))
        if found is None:
            reached = frozenset(each for each in follow if self._tests[each](char))
            after: set[int] = set() if self._from_start else set(self._whole.first)
            for position in reached:
                after |= self._follow[position]
            found = (not reached.isdisjoint(self._whole.last), frozenset(after))
            if len(self._steps) >= MAX_STEPS:
                self._steps.clear()
            self._steps[follow, char] = found
        return found

    # Reading a pattern

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            part = _Part(
                part.empty or other.empty, part.first | other.first, part.last | other.last
            )
        return part

    def _sequence(self) -> _Part:
        part = _Part(True, frozenset(), frozenset())
        while self._peek() not in ("", "|", ")"):
            other = self._repeated()
            self._link(part.last, other.first)
            part = _Part(
                part.empty and other.empty,
                part.first | other.first if part.empty else part.first,
                part.last | other.last if other.empty else other.last,
            )
        return part

    def _repeated(self) -> _Part:
        part = self._atom()
        while self._peek() and self._peek() in "*+?":
            sign = self._peek()
            self._at += 1
            if sign != "?":
                self._link(part.last, part.first)
            part = _Part(part.empty or sign != "+", part.first, part.last)
        return part

    def _link(self, last: frozenset[int], first: frozenset[int]) -> None:
        for position in last:
            self._follow[position] |= first

    def _atom(self) -> _Part:
        char = self._peek()
        self._at += 1
        if char == "(":
            return self._group()
        if char in "*+?":
            raise PatternError(f"nothing to repeat before {char}")
        if char in "{}^$":
            raise PatternError(f"{char} is not supported here; accepted: {ACCEPTED}")
        test: Test
        if char == ".":
            test = _anything
        elif char == "[":
            test = self._set()
        elif char == "\\":
            test = self._escaped()
        else:
            test = char.__eq__
        self._tests.append(test)
        self._follow.append(set())
        here = frozenset((len(self._tests) - 1,))
        return _Part(False, here, here)

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError(f"parentheses are nested deeper than {MAX_DEPTH}")
        if self._peek() == "?":
            raise PatternError(f"(? is not supported; accepted: {ACCEPTED}")
        part = self._alternatives()
        if self._peek() != ")":
            raise PatternError("a ( without its )")
        self._at += 1
        self._depth -= 1
        return part

    def _escaped(self) -> Test:
        char = self._peek()
        if not char:
            raise PatternError("a \\ at the end")
        self._at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if char.isalnum():
            raise PatternError(f"\\{char} is not supported; accepted: {ACCEPTED}")
        return char.__eq__

    def _set(self) -> Test:
        """A [set] of characters, up to its closing bracket."""
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            char = self._peek()
            if not char:
                raise PatternError("a [ without its ]")
            self._at += 1
            if char == "\\":
                tests.append(self._escaped())
            elif self._text[self._at : self._at + 1] == "-" and self._text[
                self._at + 1 : self._at + 2
            ] not in ("", "]"):
                tests.append(_between(char, self._text[self._at + 1]))
                self._at += 2
            else:
                tests.append(char.__eq__)
        self._at += 1
        return lambda char: any(test(char) for test in tests) is not negated


def _anything(_char: str) -> bool:
    return True


def _between(low: str, high: str) -> Test:
    if low > high:
        raise PatternError(f"the range {low}-{high} is empty")
    return lambda char: low <= char <= high
