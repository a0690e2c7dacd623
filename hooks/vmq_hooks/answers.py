"""Reading what a hook answered: one form for every way of saying yes, no and next.

The broker and the test kit read answers with this, so that a plugin's unit test sees the errors
that a broker would log.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from vmq_hooks.modifiers import (
    DeliverModifiers,
    ModifierError,
    PublishModifiers,
    RegisterModifiers,
    check_modifiers,
)
from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.verdicts import Accept, Cache, Dependency, Next, Refuse

NEXT: Final = Next()
ACCEPT: Final = Accept()
REFUSE: Final = Refuse("it says no, and not why")

Verdict = Accept | Next | Refuse

_MODIFIERS: Final[Mapping[str, type[RegisterModifiers] | type[PublishModifiers]]] = {
    "auth_on_register": RegisterModifiers,
    "auth_on_publish": PublishModifiers,
}
#: The smallest value of each number among the modifiers.
_SMALLEST: Final = {
    "max_message_size": 0,
    "max_message_rate": 0,
    "max_connection_lifetime": 0,
    "max_inflight_messages": 0,
    "max_online_messages": -1,
    "max_offline_messages": -1,
    "max_msgs_per_drain_step": 1,
    "max_drain_time": 0,
    "retry_interval": 0,
    "throttle": 0,
}
#: What a verdict may depend on.
_FACTS: Final = get_args(Dependency)
_LONGEST: Final = 65_535
_LARGEST_PAYLOAD: Final = 268_435_455 - _LONGEST - 4
#: Begin topics that are no message's: what is published there does something.
_SERVICES: Final = ("$jobs/", "$delayed/", "$replay/", "$stream/")
_MOST_ADDRESSES: Final = 100
_MOST_FUNCTIONS: Final = 100
_ADDRESS: Final = re.compile(r"(tcp://\S{1,255}:\d{1,5}|ipc://[^\0]{1,255})\Z")


class AnswerError(ValueError):
    """A plugin answered something that is no answer to this hook; the text says what is one."""


def refuse_coroutine(returned: Any) -> None:
    """Of what a plain function returned: a coroutine is closed, for nobody awaits it.

    Raises:
        AnswerError: it is one.
    """
    if inspect.iscoroutine(returned):
        returned.close()
        raise AnswerError("a coroutine of a plain function; accepted: async def")


def read_verdict(hook: str, returned: Any, asked: Sequence[Subscription] = ()) -> Verdict:
    """What an auth hook answered, checked; modifiers are typed afterwards.

    Args:
        hook: the name of the hook.
        returned: what the implementation returned, or the `Refuse` that it raised.
        asked: of auth_on_subscribe: what the client wants.

    Raises:
        AnswerError: it is no answer to this hook.
    """
    if returned is None:
        return NEXT
    if returned is True:
        return ACCEPT
    if returned is False:
        return REFUSE
    if isinstance(returned, Next | Refuse):
        _check_cache(returned.cache)
        return returned
    if isinstance(returned, Accept):
        _check_cache(returned.cache)
        if returned.modifiers is None and returned.subscriptions is None:
            return returned
    if hook == "auth_on_subscribe":
        return _read_subscriptions(returned, asked)
    if hook == "auth_on_unsubscribe":
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: None, True, False, Accept, Next or Refuse, without changes"
        )
    return _read_modifiers(hook, returned)


def _read_modifiers(hook: str, returned: Any) -> Accept:
    kind = _MODIFIERS[hook]
    cache = None
    given = returned
    if isinstance(returned, Accept):
        if returned.subscriptions is not None:
            raise AnswerError("subscriptions are an answer to auth_on_subscribe only")
        given, cache = returned.modifiers, returned.cache
    if not isinstance(given, kind | Mapping):
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: None, True, False, Accept, Next, Refuse, "
            f"{kind.__name__} or a mapping with its keys"
        )
    return Accept(_checked(given, kind), cache=cache)


def _checked(
    given: Any, kind: type[RegisterModifiers] | type[PublishModifiers]
) -> RegisterModifiers | PublishModifiers:
    try:
        modifiers: RegisterModifiers | PublishModifiers
        if kind is PublishModifiers:
            modifiers = check_modifiers(given, PublishModifiers)
        else:
            modifiers = check_modifiers(given, RegisterModifiers)
    except ModifierError as error:
        raise AnswerError(f"{error}; accepted keys: {', '.join(kind.__struct_fields__)}") from None
    for name, smallest in _SMALLEST.items():
        value = getattr(modifiers, name, None)
        if value is not None and not smallest <= value <= 1 << 53:
            raise AnswerError(f"{kind.__name__}: {name} = {value}; accepted: {smallest} or more")
    if isinstance(modifiers, PublishModifiers):
        _check_topic(modifiers.topic)
        if modifiers.topic is not None and modifiers.topic.startswith(_SERVICES):
            raise AnswerError(f"topic {_shown(modifiers.topic)} is a service's, no message's")
        _check_payload(modifiers.payload)
        _check_texts(mountpoint=modifiers.mountpoint)
        return modifiers
    who = modifiers.subscriber_id
    if who is not None:
        if not who.client_id:
            raise AnswerError("RegisterModifiers: subscriber_id without a client id")
        _check_texts(client_id=who.client_id, mountpoint=who.mountpoint)
    _check_texts(username=modifiers.username)
    return modifiers


def _check_texts(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and not _is_text(text):
            raise AnswerError(f"{name} {_shown(text)} is no text that MQTT can carry")


def _read_subscriptions(returned: Any, asked: Sequence[Subscription]) -> Accept:
    cache = None
    given = returned
    if isinstance(returned, Accept):
        if returned.modifiers is not None:
            raise AnswerError("auth_on_subscribe takes subscriptions and no modifiers")
        given, cache = returned.subscriptions, returned.cache
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, Subscription) and isinstance(each.topic_filter, str) for each in given
    ):
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: None, True, False, Accept, Next, Refuse "
            "or a list of Subscription"
        )
    if len(given) != len(asked):
        raise AnswerError(
            f"{len(given)} subscriptions for {len(asked)}; accepted: one for each, "
            f"QoS {REFUSED_QOS} refuses it"
        )
    for each in given:
        if type(each.qos) is not int or each.qos not in (0, 1, 2, REFUSED_QOS):
            raise AnswerError(f"QoS {each.qos}; accepted: 0, 1, 2, {REFUSED_QOS}")
        check_filter(each.topic_filter)
    return Accept(subscriptions=list(given), cache=cache)


def read_filters(returned: Any) -> list[str] | None:
    """What on_unsubscribe answered: other filters, or None.

    Raises:
        AnswerError: it is neither.
    """
    if returned is None:
        return None
    if not isinstance(returned, list | tuple) or not all(
        isinstance(each, str) for each in returned
    ):
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: None or a list of topic filters"
        )
    for each in returned:
        check_filter(each)
    return list(returned)


def read_delivery(returned: Any) -> DeliverModifiers | Refuse | None:
    """What on_deliver answered: changes, that the message is kept back, or None.

    Raises:
        AnswerError: it is none of these.
    """
    if returned is None or isinstance(returned, Refuse):
        return returned
    if not isinstance(returned, DeliverModifiers | Mapping):
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: None, Refuse, DeliverModifiers "
            "or a mapping with its keys"
        )
    try:
        modifiers = check_modifiers(returned, DeliverModifiers)
    except ModifierError as error:
        raise AnswerError(f"{error}; accepted keys: topic, payload") from None
    _check_topic(modifiers.topic)
    _check_payload(modifiers.payload)
    if modifiers.topic is None and modifiers.payload is None:
        return None
    return modifiers


def read_addresses(returned: Any) -> list[str] | None:
    """What discover_nodes answered: addresses, or None.

    Raises:
        AnswerError: it is neither.
    """
    if returned is None:
        return None
    if (
        not isinstance(returned, list | tuple)
        or len(returned) > _MOST_ADDRESSES
        or not all(isinstance(each, str) and _ADDRESS.match(each) for each in returned)
    ):
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: None or a list of up to {_MOST_ADDRESSES} addresses "
            "tcp://HOST:PORT or ipc://PATH"
        )
    return list(returned)


def read_functions(returned: Any) -> dict[str, Callable[..., Any]]:
    """What expression_functions answered: functions by their names.

    Raises:
        AnswerError: it is none of that.
    """
    if returned is None:
        return {}
    if not isinstance(returned, Mapping) or len(returned) > _MOST_FUNCTIONS:
        raise AnswerError(
            f"{_shown(returned)} is no answer; accepted: up to {_MOST_FUNCTIONS} functions by their names, or None"
        )
    for name, function in returned.items():
        if not isinstance(name, str) or not name.isascii() or not name.isidentifier():
            raise AnswerError(f"{_shown(name)} is no name of a function in an expression")
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise AnswerError(f"{name}: {_shown(function)}; accepted: a plain function")
    return dict(returned)


#: What reads the answers to hooks that give no verdict.
READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "on_unsubscribe": read_filters,
    "on_deliver": read_delivery,
    "discover_nodes": read_addresses,
    "expression_functions": read_functions,
}


def _check_topic(topic: str | None) -> None:
    if topic is None:
        return
    if not topic or "+" in topic or "#" in topic or not _is_text(topic):
        raise AnswerError(f"topic {_shown(topic)} is no topic name")


def _check_payload(payload: bytes | None) -> None:
    """Refuses a payload that fits into no packet with some topic (section 2.2.3)."""
    if payload is not None and len(payload) > _LARGEST_PAYLOAD:
        raise AnswerError(
            f"payload of {len(payload)} bytes; accepted: up to {_LARGEST_PAYLOAD} bytes"
        )


def check_filter(topic_filter: str) -> None:
    """Refuses what is no topic filter (section 4.7).

    Raises:
        AnswerError: it is none.
    """
    words = topic_filter.split("/")
    good = bool(topic_filter) and _is_text(topic_filter) and "#" not in "".join(words[:-1])
    if good:
        good = all(word == "+" or "+" not in word for word in words)
        good = good and (words[-1] == "#" or "#" not in words[-1])
    if topic_filter.startswith("$share/"):  # then the name of a group, and a filter
        good = good and words[1] not in ("", "+") and words[2:] not in ([], [""])
    if not good:
        raise AnswerError(f"{_shown(topic_filter)} is no topic filter")


def _is_text(text: str) -> bool:
    """Whether MQTT can carry the text (section 1.5.3)."""
    try:
        return "\0" not in text and len(text.encode()) <= _LONGEST
    except UnicodeEncodeError:
        return False


def _check_cache(cache: Any) -> None:
    if cache is None:
        return
    if not isinstance(cache, Cache) or not isinstance(cache.seconds, int | float):
        raise AnswerError(f"cache {_shown(cache)}; accepted: Cache(seconds, by)")
    by: Any = cache.by
    facts = by if isinstance(by, Iterable) else [None]
    if cache.seconds != cache.seconds or not all(each in _FACTS for each in facts):
        raise AnswerError(
            f"cache {_shown(cache)}; accepted: a number of seconds, and of {', '.join(_FACTS)} any"
        )


def _shown(value: Any) -> str:
    """A value for the log, not longer than a line."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - `__repr__` is the plugin's code: it may raise anything
        text = type(value).__name__
    return text if len(text) <= 100 else text[:97] + "..."
