"""What an endpoint answers: `{"result": "ok" | "next" | {"error": REASON}, "modifiers": {}, "topics": []}`."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from vmq_hooks import Accept, Cache, Next, Refuse, Subscription
from vmq_hooks.answers import AnswerError, Verdict, read_filters, read_verdict
from vmq_hooks.verdicts import Dependency

#: For an endpoint is told everything but the port, a kept verdict may depend on all of that.
_DEPENDENCIES: Final[Mapping[str, frozenset[Dependency]]] = {
    "auth_on_register": frozenset({"peer", "username", "client_id", "password"}),
    "auth_on_publish": frozenset({"username", "client_id", "topic", "qos", "retain"}),
    "auth_on_subscribe": frozenset({"username", "client_id", "topic", "qos"}),
}
_LONGEST: Final = 31_536_000.0


class _Error(msgspec.Struct, frozen=True):
    error: str


class _Topic(msgspec.Struct, frozen=True):
    topic: str
    qos: int = 0


class _Answer(msgspec.Struct, frozen=True):
    result: Literal["ok", "next"] | _Error
    modifiers: dict[str, Any] | None = None
    topics: list[_Topic | str] | None = None


class EndpointError(Exception):
    """An endpoint did not answer, or answered what is no answer; the text says what."""


def read(hook: str, body: bytes, cache: Cache | None, asked: Sequence[Subscription]) -> Verdict:
    """The verdict in an answer to an auth hook.

    Raises:
        EndpointError: there is none.
    """
    answer = _decode(body)
    if isinstance(answer.result, _Error):
        reason = answer.result.error[:200]
        if reason == "unavailable":
            return Refuse(reason, unavailable=True)
        bad = hook == "auth_on_register" and reason == "invalid_credentials"
        return Refuse(reason, bad_credentials=bad, cache=cache)
    if answer.result == "next":
        return Next(cache=cache)
    try:
        return read_verdict(hook, _accepted(hook, answer, cache), asked)
    except AnswerError as error:
        raise EndpointError(str(error)) from None


def read_topics(body: bytes) -> list[str] | None:
    """The filters in an answer to on_unsubscribe; None: as the client wants it.

    Raises:
        EndpointError: it is no answer.
    """
    answer = _decode(body)
    if isinstance(answer.result, _Error) or answer.result == "next" or answer.topics is None:
        return None
    try:
        return read_filters(
            [each if isinstance(each, str) else each.topic for each in answer.topics]
        )
    except AnswerError as error:
        raise EndpointError(str(error)) from None


def cache_of(hook: str, cache_control: str, longest: float) -> Cache | None:
    """For how long a verdict may be kept (RFC 9111, section 5.2.2), and what it depends on."""
    seconds = 0.0
    for directive in cache_control.lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name in {"no-store", "no-cache"}:
            return None
        if name == "max-age":
            digits = value.strip('"')
            seconds = float(digits) if digits.isascii() and digits.isdigit() else 0.0
    seconds = min(seconds, longest, _LONGEST)
    if seconds <= 0:
        return None
    return Cache(seconds, _DEPENDENCIES[hook])


def _decode(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EndpointError(
            f'{error}; accepted: {{"result": "ok" | "next" | {{"error": REASON}}}}'
        ) from None


def _accepted(hook: str, answer: _Answer, cache: Cache | None) -> Accept:
    if hook == "auth_on_subscribe":
        if answer.modifiers:
            raise EndpointError("modifiers are no answer to auth_on_subscribe; accepted: topics")
        if answer.topics is None:
            return Accept(cache=cache)
        wanted = [
            Subscription(each.topic, each.qos) for each in answer.topics if isinstance(each, _Topic)
        ]
        if len(wanted) != len(answer.topics):
            raise EndpointError("topics without QoS")
        return Accept(subscriptions=wanted, cache=cache)
    if answer.topics is not None:
        raise EndpointError(f"topics are no answer to {hook}")
    modifiers = answer.modifiers
    payload = None if modifiers is None else modifiers.get("payload")
    if modifiers is not None and payload is not None:
        try:
            modifiers = {**modifiers, "payload": base64.b64decode(payload, validate=True)}
        except (binascii.Error, TypeError, ValueError):
            raise EndpointError("modifiers: the payload is not in base64") from None
    return Accept(modifiers or None, cache=cache)
