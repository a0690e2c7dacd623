"""The filters of listings: `queue_size > 100 and client_id ~ "^dev"`.

    expression  = term {"or" term}
    term        = factor {"and" factor}
    factor      = "not" factor | "(" expression ")" | operand [operator operand]
    operand     = a column, a number, a "text" or 'text', true, false, null
    operator    = "=" "==" "!=" "<" "<=" ">" ">=" "~" "!~"

A column alone stands for a yes or no. `~` searches for a pattern (see `patterns`). What is null is smaller than nothing
and larger than nothing: only `= null` and `!= null` hold for it. Types are checked before the first row is looked at.
Nothing is evaluated but this: an expression calls no code, and its length and depth are bounded.
"""

import operator
import re
import types
from collections.abc import Callable
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from vmq.admin.errors import AdminError
from vmq.admin.patterns import Pattern, PatternError

MAX_LENGTH: Final = 1000
MAX_DEPTH: Final = 30

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>-?\d+(?:\.\d+)?)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign>[=!<>]=|!~|[=<>~()]))""",
    re.VERBOSE,
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS: Final = "= != < <= > >= ~ !~"
_CONSTANTS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}

#: Kind, text, and where it stands in the expression.
Token = tuple[str, str, int]
Getter = Callable[[Any], Any]
Predicate = Callable[[Any], bool]


def columns_of(row: type[Struct]) -> dict[str, str]:
    """The columns of a kind of row that a filter or an order may name, and what each holds: number, text or boolean."""
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(row):
        kind = _kind(field.type)
        if kind:
            found[field.name] = kind
    return found


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    is_union = get_origin(annotation) in (Union, types.UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    for kind, python in (("boolean", bool), ("number", int), ("number", float), ("text", str)):
        if python in members:
            return kind
    return ""


def check_column(columns: dict[str, str], name: str, what: str) -> None:
    """Raises AdminError if there is no such column; `what` begins its text."""
    if name not in columns:
        raise AdminError(f"{what}: there is no column {name!r}; accepted: {', '.join(columns)}")


def compile_where(text: str, row: type[Struct]) -> Predicate:
    """The test of rows that an expression stands for.

    Raises:
        AdminError: the expression makes no sense; the text says where, and what is accepted.
    """
    return _Parser(text, columns_of(row)).parse()


def _place(at: int) -> str:
    return f"where, at character {at + 1}"


class _Operand:
    """One side of a comparison: how to get its value, and what it is."""

    def __init__(self, shown: str, kind: str, get: Getter, constant: object = None) -> None:
        self.shown = shown
        self.kind = kind
        self.get = get
        self.constant = constant


class _Parser:
    def __init__(self, text: str, columns: dict[str, str]) -> None:
        if len(text) > MAX_LENGTH:
            raise AdminError(f"where: longer than {MAX_LENGTH} characters")
        self._columns = columns
        self._depth = 0
        self._end = len(text.rstrip())
        self._tokens = self._split(text)
        self._at = 0

    def _error(self, what: str, token: int | None = None) -> AdminError:
        """An error at a token, by its number: the present one, unless another is named."""
        number = self._at if token is None else token
        at = self._tokens[number][2] if number < len(self._tokens) else self._end
        return AdminError(f"{_place(at)}: {what}")

    def _split(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                rest = text[at:].lstrip()
                place = _place(len(text) - len(rest))
                raise AdminError(f"{place}: cannot read {rest[:40]!r}")
            assert match.lastgroup is not None
            tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        if not tokens:
            raise AdminError("where: the expression is empty")
        return tokens

    def _peek(self) -> str:
        """The next token if it is a sign or a word, in lower case; else nothing."""
        if self._at >= len(self._tokens):
            return ""
        kind, text, _ = self._tokens[self._at]
        return text.lower() if kind in ("name", "sign") else ""

    def _take(self, *wanted: str) -> bool:
        if self._peek() in wanted:
            self._at += 1
            return True
        return False

    def parse(self) -> Predicate:
        """The whole expression."""
        found = self._either()
        if self._at < len(self._tokens):
            raise self._error(
                f"{self._tokens[self._at][1][:40]!r} is not expected here; "
                f"accepted: and, or, or one of {_OPERATORS}"
            )
        return found

    def _either(self) -> Predicate:
        terms = [self._both()]
        while self._take("or"):
            terms.append(self._both())
        return terms[0] if len(terms) == 1 else lambda row: any(term(row) for term in terms)

    def _both(self) -> Predicate:
        factors = [self._factor()]
        while self._take("and"):
            factors.append(self._factor())
        if len(factors) == 1:
            return factors[0]
        return lambda row: all(factor(row) for factor in factors)

    def _factor(self) -> Predicate:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        if self._take("not"):
            inner = self._factor()
            found: Predicate = lambda row: not inner(row)  # noqa: E731
        elif self._take("("):
            opened = self._at - 1
            found = self._either()
            if not self._take(")"):
                raise self._error("a ( without its )", opened)
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Predicate:
        began = self._at
        left = self._operand()
        sign = self._peek()
        if sign in ("~", "!~"):
            self._at += 1
            return self._search(left, self._operand(), sign == "!~", began)
        if sign not in _COMPARISONS:
            if left.kind != "boolean":
                raise self._error(
                    f"{left.shown} is a {left.kind}, no yes or no; "
                    f"compare it with one of {_OPERATORS}",
                    began,
                )
            get = left.get
            return lambda row: get(row) is True
        self._at += 1
        return self._compare(left, sign, self._operand(), began)

    def _compare(self, left: _Operand, sign: str, right: _Operand, began: int) -> Predicate:
        compare = _COMPARISONS[sign]
        a, b = left.get, right.get
        if "null" in (left.kind, right.kind):
            if sign not in ("=", "==", "!="):
                raise self._error(
                    f"null is neither less nor more; accepted: = != (not {sign})", began
                )
            return lambda row: compare(a(row), b(row))
        if left.kind != right.kind:
            raise self._error(
                f"{left.shown} is a {left.kind} and {right.shown} a {right.kind}: "
                "they cannot be compared",
                began,
            )

        def holds(row: Any) -> bool:
            one, other = a(row), b(row)
            return one is not None and other is not None and compare(one, other)

        return holds

    def _search(self, left: _Operand, right: _Operand, negated: bool, began: int) -> Predicate:
        if left.kind != "text" or not isinstance(right.constant, str):
            raise self._error('~ wants a text column before it and a "pattern" behind it', began)
        try:
            pattern = Pattern(right.constant)
        except PatternError as error:
            raise self._error(f"{right.shown}: {error}", self._at - 1) from None
        get = left.get

        def holds(row: Any) -> bool:
            value = get(row)
            return value is not None and pattern.search(value) is not negated

        return holds

    def _operand(self) -> _Operand:
        if self._at >= len(self._tokens):
            raise self._error("the expression ends too early")
        kind, text, at = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number = float(text) if "." in text else int(text)
            return _Operand(text, "number", lambda _row: number)
        if kind == "text":
            plain = re.sub(r"\\([\"'\\])", r"\1", text[1:-1])
            return _Operand(text, "text", lambda _row: plain, plain)
        if kind == "sign" or text.lower() in ("and", "or", "not"):
            raise self._error(
                f"{text!r} is not expected here; accepted: a column or a value", self._at - 1
            )
        if text.lower() in _CONSTANTS:
            constant = _CONSTANTS[text.lower()]
            of = "null" if constant is None else "boolean"
            return _Operand(text, of, lambda _row: constant)
        check_column(self._columns, text, _place(at))
        return _Operand(text, self._columns[text], operator.attrgetter(text))
