r"""Regular expressions that cannot hang: matching takes time in proportion to the text, whatever the pattern.

An operator's pattern runs inside the broker's loop, once for each of perhaps 100,000 rows. Python's `re` tries
alternatives one after the other, and `(a+)+$` makes it try exponentially many of them. RE2 walks an automaton instead.
What is accepted means what it means to `re`, and is rewritten part by part: RE2's own \d, \w and \s know ASCII only.

Pattern and text are bounded besides: 200 characters of pattern, the first 1,000 of the text.
"""

import re
from typing import Final

#: Longest pattern, and how much of a text is looked at.
MAX_PATTERN: Final = 200
MAX_TEXT: Final = 1000
#: Deepest nesting of parentheses.
MAX_DEPTH: Final = 20
#: Bytes for a compiled pattern and for the steps that RE2 remembers; a `\w` takes some 15 kB.
MAX_MEMORY: Final = 1 << 20

ACCEPTED: Final = (
    "letters and digits as they are, . [a-z] [^a-z] \\d \\w \\s, \\ before a special character, "
    "* + ?, ( | ), ^ at the start, $ at the end"
)

#: What stands for these among the members of a set.
_CLASSES: Final = {
    "\\d": r"\p{Nd}",
    "\\w": r"\p{L}\p{N}_",
    "\\s": r"\p{Z}\t\n\v\f\r\x1c-\x1f\x85",
}
_PART: Final = re.compile(
    r"(?P<set>\[\^?+(?:\\.|[^\\])(?:\\.|[^]\\])*\])|(?P<escape>\\.)|(?P<repeat>[*+?]+)|.",
    re.DOTALL,
)
_MEMBER: Final = re.compile(r"(\\.|.)(?:-(\\.|.))?", re.DOTALL)


class PatternError(ValueError):
    """The pattern cannot be used; the text says why."""


class Pattern:
    """A pattern that is searched for anywhere in a text, unless ^ and $ hold it to the ends.

    Raises:
        PatternError: it is too long or too large, or uses what is not supported.
    """

    def __init__(self, pattern: str) -> None:
        import re2  # only who searches pays for it

        if len(pattern) > MAX_PATTERN:
            raise PatternError(f"the pattern is longer than {MAX_PATTERN} characters")
        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.dot_nl = True
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(_rewritten(pattern).encode(), options)
        except re2.error:
            raise PatternError(f"the pattern takes more than {MAX_MEMORY >> 20} MiB") from None
        re2.purge()  # it would keep 128 of them

    def search(self, text: str) -> bool:
        """Whether the pattern is in the text."""
        return self._compiled.search(text[:MAX_TEXT].encode(errors="replace")) is not None


def _rewritten(pattern: str) -> str:
    """The pattern in RE2's syntax."""
    body = pattern.removeprefix("^")
    # An even number of backslashes before it escape each other.
    escapes = len(body[:-1]) - len(body[:-1].rstrip("\\"))
    to_end = body.endswith("$") and escapes % 2 == 0
    body = body[:-1] if to_end else body
    start = "\\A" if pattern.startswith("^") else ""
    end = "\\z" if to_end else ""
    return f"{start}(?:{_alternatives(body)}){end}"


def _alternatives(body: str) -> str:
    found: list[str] = []
    depth = 0
    repeatable = False
    for part in _PART.finditer(body):
        text = part[0]
        if part["set"]:
            found.append(_set(text))
        elif part["escape"]:
            found.append(f"[{_CLASSES[text]}]" if text in _CLASSES else _character(text))
        elif part["repeat"]:
            if not repeatable:
                raise PatternError(f"nothing to repeat before {text[0]}")
            # a+? is an a+ that may miss, not one that takes little.
            found.append(text[0] if len(set(text)) == 1 else "*")
        else:
            depth += (text == "(") - (text == ")")
            _check(text, depth, body[part.end() :])
            found.append({"(": "(?:", ")": ")", "|": "|", ".": "."}.get(text) or _literal(text))
        repeatable = text not in ("(", "|")
    if depth:
        raise PatternError("a ( without its )")
    return "".join(found)


def _check(char: str, depth: int, rest: str) -> None:
    """Raises PatternError if a character that stands for itself, or a sign, cannot stand where it does."""
    if char == "(" and depth > MAX_DEPTH:
        raise PatternError(f"parentheses are nested deeper than {MAX_DEPTH}")
    if char == "(" and rest.startswith("?"):
        raise PatternError(f"(? is not supported; accepted: {ACCEPTED}")
    if depth < 0:
        raise PatternError("a ) without its (")
    if char == "[":
        raise PatternError("a [ without its ]")
    if char == "\\":
        raise PatternError("a \\ at the end")
    if char in "{}^$":
        raise PatternError(f"{char} is not supported here; accepted: {ACCEPTED}")


def _set(text: str) -> str:
    """A [set] of characters."""
    negation = "^" if text.startswith("[^") else ""
    found: list[str] = []
    for low, high in _MEMBER.findall(text[1 + len(negation) : -1]):
        if low in _CLASSES:
            found.append(_CLASSES[low] + (f"\\-{_character(high)}" if high else ""))
        elif not high:
            found.append(_character(low))
        elif high in _CLASSES or low[-1] > high[-1]:
            raise PatternError(f"the range {low}-{high} is empty")
        else:
            found.append(f"{_character(low)}-{_character(high)}")
    return f"[{negation}{''.join(found)}]"


def _character(text: str) -> str:
    """One character, perhaps behind a backslash."""
    if len(text) == 2 and text[1].isalnum():
        raise PatternError(f"{text} is not supported; accepted: {ACCEPTED}")
    return _literal(text[-1])


def _literal(char: str) -> str:
    return char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):x}}}"
