"""One mapping: whether it wants a message, where that goes, and what it becomes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from vmq.config.expressions import LEVEL, VARIABLES, CelError, all_by_member, compiled, decoder_of
from vmq.config.mappings import EXPANSION, MappingOptions, source_of
from vmq.mqtt.special import DELAYED, JOBS, encode_level

#: Bytes of a payload that is looked into as JSON: it is turned into other values, in the pass of the message.
LONGEST_JSON: Final = 65_536
_LONGEST_LEVEL: Final = 512
_NO_LEVEL: Final = "/+#\0"


class MappingError(Exception):
    """An expression fails for a message, or its value cannot be used."""


class Seen(NamedTuple):
    """What a mapping looks at. `time`: seconds since 1970."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    client_id: str
    time: float


class Mapped(NamedTuple):
    """Where a message goes, and as what."""

    target: str
    body: bytes


class _MappingTarget:
    """A target, taken apart: text, and programs whose values stand in it."""

    def __init__(self, target: str, programs: list[Any]) -> None:
        self.texts = EXPANSION.split(target)[::2]
        self.programs = programs
        #: The name of a queue may have signs that a topic may not.
        self.is_job = target.startswith((JOBS, DELAYED))


class _Programs:
    """The expressions of a mapping, compiled, in one of two ways.

    Args:
        options: of the mapping.
        texts: its expressions, as `_texts_of` lists them, perhaps in other words.
        compile_text: compiles one.

    Raises:
        CelError: one of them is none.
    """

    def __init__(
        self, options: MappingOptions, texts: Sequence[str], compile_text: Callable[[str], Any]
    ) -> None:
        programs = [compile_text(each) for each in texts]
        self.needs = sorted({name for each in programs for name in each.variables()})
        left = iter(programs)
        self.where = None if options.where is None else next(left)
        self.payload = None if options.payload is None else next(left)
        self.targets = [
            _MappingTarget(each, [next(left) for _ in EXPANSION.split(each)[1::2]])
            for each in options.to
        ]

    def map(self, context: Any, body: bytes) -> list[Mapped]:
        """Where a message goes, by what the context has of it."""
        if self.where is not None and not _is_true(self.where.execute(context)):
            return []
        if self.payload is not None:
            body = _encoded(self.payload.execute(context))
        return [Mapped(_expanded(each, context), body) for each in self.targets]


def _texts_of(options: MappingOptions) -> list[str]:
    texts = [each for each in (options.where, options.payload) if each is not None]
    return texts + [part for each in options.to for part in EXPANSION.split(each)[1::2]]


class MessageMapping:
    """One mapping.

    Args:
        name: in the configuration.
        options: as they were checked.
        functions: those that plugins bring.
    """

    def __init__(
        self,
        name: str,
        options: MappingOptions,
        functions: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.options = options
        self.source = source_of(options)
        self.is_enabled = options.enabled
        self._levels: list[str] = []
        # Since the start: what it looked at, what it sent on, and what failed.
        self.seen = 0
        self.sent = 0
        self.failed = 0
        self.last_error = ""
        #: Why it cannot read its stream, or take jobs, for now; empty: it can.
        self.hindrance = ""
        self.use(functions)

    def use(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Goes by the functions that plugins bring from now on; while it lacks one, every message fails."""
        from cel import Context

        options, texts = self.options, _texts_of(self.options)
        #: Why it can map nothing now.
        self.flaw = ""
        #: Its expressions as they stand; and those that look at members of the JSON only, if they all do.
        self._whole: _Programs | None = None
        self._quick: _Programs | None = None
        self._members: Mapping[str, str] = {}
        try:
            self._whole = _Programs(options, texts, lambda text: compiled(text, functions))
            found = all_by_member(texts, "json")
            if found is not None:
                self._members = {name: each for one in found for name, each in one.members.items()}
                known = {*VARIABLES, *self._members}
                self._quick = _Programs(
                    options,
                    [one.text for one in found],
                    lambda text: compiled(text, functions, known),
                )
                self._decode = decoder_of(self._members)
        except CelError as error:
            self.flaw = str(error)
        self._context = Context()
        for function, call in functions.items():
            self._context.add_function(function, call)
        self._context.add_function(LEVEL, self._level)

    def _level(self, number: int) -> str:
        return self._levels[number - 1] if 0 < number <= len(self._levels) else ""

    def map(self, seen: Seen) -> list[Mapped]:
        """Where a message goes; nowhere, if it is not wanted.

        Raises:
            MappingError: an expression fails.
        """
        self.seen += 1
        if self._whole is None:
            raise MappingError(self.flaw)
        self._levels = seen.topic.split("/")
        if self._quick is not None and len(seen.payload) <= LONGEST_JSON:
            members = self._decode(seen.payload)
            if len(members) == len(self._members):  # the context keeps what an earlier message had
                with suppress(Exception):  # it is said below, in the words of the expression
                    return self._by(self._quick, seen, members)
        try:
            return self._by(self._whole, seen, {})
        except MappingError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library, or a plugin, raises
            text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
            raise MappingError(" ".join(text.split())[:300]) from None

    def _by(self, programs: _Programs, seen: Seen, members: Mapping[str, Any]) -> list[Mapped]:
        for name in programs.needs:
            value = members[name] if name in members else _value_of(name, seen)
            self._context.add_variable(name, value)
        return programs.map(self._context, seen.payload)


def _expanded(target: _MappingTarget, context: Any) -> str:
    pieces = [target.texts[0]]
    for text, program in zip(target.texts[1:], target.programs, strict=True):
        pieces += (_one_level(program.execute(context), target.is_job), text)
    return "".join(pieces)


def _is_true(verdict: object) -> bool:
    if isinstance(verdict, bool):
        return verdict
    raise MappingError(f"where is neither true nor false but {verdict!r:.80}")


def _value_of(name: str, seen: Seen) -> Any:
    if name == "payload":
        try:
            return seen.payload.decode()
        except UnicodeDecodeError:
            return seen.payload
    if name == "json":
        if len(seen.payload) > LONGEST_JSON:
            raise MappingError(f"a payload of more than {LONGEST_JSON} bytes is not read as JSON")
        try:
            return msgspec.json.decode(seen.payload)
        except (msgspec.DecodeError, RecursionError):
            raise MappingError("the payload is no JSON") from None
    if name == "levels":
        return seen.topic.split("/")
    if name == "time":
        return datetime.fromtimestamp(seen.time, UTC)
    return getattr(seen, name)


def _encoded(value: Any) -> bytes:
    """A text and bytes as they are, anything else as JSON."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return msgspec.json.encode(value, order="deterministic")  # CEL's maps have none


def _one_level(value: Any, is_job: bool) -> str:
    """What stands for an expression in a target: nobody writes a topic of several levels by what he publishes.

    Raises:
        MappingError: it is no level.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MappingError(f"a level is a text or a number, not {value!r:.80}")
    text = str(value)
    if not 0 < len(text.encode("utf-8", "surrogatepass")) <= _LONGEST_LEVEL:
        raise MappingError(f"a level has 1 to {_LONGEST_LEVEL} bytes")
    if text[0] == "$" or any(each in text for each in _NO_LEVEL):
        raise MappingError(f"a level has no $ first and no / + # or NUL: {text!r:.80}")
    return encode_level(text) if is_job else text
