"""Which rows are wanted, by their topics and columns: what tickets say, and Spark pushes down."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct

from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import SHARE_PREFIX, check_filter, has_wildcard, matches
from vmq.streams.log.errors import StreamError

Operator = Literal["=", "<", "<=", ">", ">=", "in", "null", "not null", "starts with"]
Value = bool | int | float | Annotated[str, Meta(max_length=65_536)]

_COMPARE: Final[dict[str, Callable[[Any, Any], pa.BooleanArray]]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Condition(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A column, what is to hold of it, and with what it is compared; null is equal to nothing, nor less.

    Times are microseconds since 1970, binary values base64. `in` has a list; `null` and `not null` have nothing.
    """

    column: Annotated[str, Meta(min_length=1, max_length=100)]
    operator: Operator
    value: Value | Annotated[list[Value], Meta(max_length=1000)] | None = None


class ConditionError(StreamError):
    """A condition that cannot be."""


class BoundCondition:
    """A condition on a column of a type.

    Args:
        condition: what is to hold.
        schema: of all columns that there are.

    Raises:
        ConditionError: there is no such column, or its values cannot be compared so.
    """

    def __init__(self, condition: Condition, schema: pa.Schema) -> None:
        self.column, operator = condition.column, condition.operator
        if self.column not in schema.names:
            there = ", ".join(schema.names)
            raise ConditionError(f"where: there is no column {self.column!r}; accepted: {there}")
        kind = schema.field(self.column).type
        self.operator = operator
        if pa.types.is_nested(kind) and operator not in {"null", "not null"}:
            raise ConditionError(f"where: {self.column!r} can be null or not null, no more")
        if operator == "starts with" and kind != pa.string():
            raise ConditionError(
                f"where: {self.column!r} is no text, which alone starts with something"
            )
        self.value: Any = None
        if operator == "in":
            if not isinstance(condition.value, list):
                raise ConditionError(f"where: {self.column!r} in something that is no list")
            self.value = pa.array([self.read(each, kind) for each in condition.value], kind)
        elif operator not in {"null", "not null"}:
            self.value = pa.scalar(self.read(condition.value, kind), kind)

    def read(self, value: object, kind: pa.DataType) -> object:
        """A value as the column has it."""
        accepted: tuple[type, ...]
        if kind == pa.bool_():
            accepted = (bool,)
        elif kind == pa.float64():
            accepted = (int, float)
        elif kind in (pa.string(), pa.binary()):
            accepted = (str,)
        else:
            accepted = (int,)
        if not isinstance(value, accepted) or isinstance(value, bool) != (bool in accepted):
            raise ConditionError(f"where: {self.column!r} is {kind}, not {type(value).__name__}")
        try:
            if kind == pa.binary():
                return base64.b64decode(str(value), validate=True)
            pa.scalar(value, kind)
            return value
        except (pa.ArrowException, binascii.Error, ValueError, OverflowError):
            raise ConditionError(
                f"where: {self.column!r} is {kind}: {value!r:.80} is none"
            ) from None

    def mask(self, values: pa.Array) -> pa.BooleanArray:
        """For which of some values it holds."""
        if self.operator == "null":
            return values.is_null()
        if self.operator == "not null":
            return values.is_valid()
        if self.operator == "in":
            # Null is in no list, as SQL has it.
            return pc.and_(pc.is_in(values, value_set=self.value), values.is_valid())
        if self.operator == "starts with":
            return pc.fill_null(pc.starts_with(values, self.value.as_py()), fill_value=False)
        found = pc.fill_null(_COMPARE[self.operator](values, self.value), fill_value=False)
        if self.operator in {">", ">="} and values.type == pa.float64():
            # As SQL engines order them, what is no number is greater than all that are.
            found = pc.or_(found, pc.fill_null(pc.is_nan(values), fill_value=False))
        return found


def bind(conditions: Sequence[Condition], schema: pa.Schema) -> list[BoundCondition]:
    """Conditions on the columns that there are.

    Raises:
        ConditionError: one of them cannot be.
    """
    return [BoundCondition(each, schema) for each in conditions]


#: Topics whose verdict is remembered.
_MOST: Final = 65_536


class TopicFilter:
    """A filter that is asked once for each topic, not for each row.

    Raises:
        StreamError: the text is no topic filter.
    """

    def __init__(self, text: str) -> None:
        try:
            check_filter(text)
        except ProtocolError as error:
            raise StreamError(f"not a topic filter: {error}") from None
        if text.startswith(SHARE_PREFIX):
            raise StreamError("not a topic filter: a stream is not shared by $share/group/")
        self.text = text
        #: What all topics begin with that match, if nothing else is asked of them; they may end before its slash.
        self.parent: str | None = None
        if text.endswith("/#") and not has_wildcard(text[:-2]):
            self.parent = text[:-1]
        self.verdicts: dict[str, bool] = {}

    def matches(self, topic: str) -> bool:
        """Whether one topic matches."""
        verdict = self.verdicts.get(topic)
        if verdict is None:
            if len(self.verdicts) >= _MOST:
                self.verdicts.clear()
            self.verdicts[topic] = verdict = matches(self.text, topic)
        return verdict

    def mask(self, topics: pa.Array) -> pa.BooleanArray | None:
        """True where a row's topic matches; None if all do."""
        if not has_wildcard(self.text):
            return pc.equal(topics, self.text)
        if self.text == "#":
            hidden = pc.starts_with(topics, "$")  # [MQTT-4.7.2-1]
            return pc.invert(hidden) if pc.any(hidden).as_py() else None
        if self.parent is not None:
            found = pc.starts_with(topics, self.parent)
            if not pc.all(found).as_py():
                found = pc.or_(found, pc.equal(topics, self.parent[:-1]))
            return None if pc.all(found).as_py() else found
        encoded = topics.dictionary_encode()
        verdicts = [self.matches(topic) for topic in encoded.dictionary.to_pylist()]
        if all(verdicts):
            return None
        return pc.take(pa.array(verdicts, pa.bool_()), encoded.indices)
