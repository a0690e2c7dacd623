"""A session's trace: which hooks were called and what was answered, to be replayed through a plugin.

A trace is text, one JSON object a line: the hook, its arguments, and the verdict in words. Record one
with a `Recorder` in a broker, or write it by hand.

    {"hook": "auth_on_publish", "arguments": {"username": "u", "subscriber_id": {"client_id": "c"},
     "message": {"topic": "a", "payload": "eA=="}}, "verdict": "accept"}

Payloads and passwords are base64. Passwords are left out of what a Recorder writes.
"""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from vmq_hooks.answers import NEXT, read_verdict
from vmq_hooks.plugin import Plugin, hook
from vmq_hooks.specs import CHAINS, Specs
from vmq_hooks.testing.calls import call_async
from vmq_hooks.types import Message, Peer, SubscriberId, Subscription
from vmq_hooks.verdicts import Accept, Refuse

#: The hooks whose calls are recorded: those that decide.
RECORDED: Final = ("auth_on_register", "auth_on_publish", "auth_on_subscribe")

_encoder: Final = msgspec.json.Encoder()


class Entry(msgspec.Struct, omit_defaults=True):
    """One call of a hook."""

    hook: str
    arguments: dict[str, Any]
    #: accept, next or refuse; "" if it is not known.
    verdict: str = ""


class ReplayError(AssertionError):
    """A plugin did not answer as the trace says."""


def read_trace(source: Path | Iterable[str]) -> Iterator[Entry]:
    """The calls of a trace, their arguments typed.

    Raises:
        ValueError: a line is none of a trace; the text names it.
    """
    lines = source.read_text(encoding="utf-8").splitlines() if isinstance(source, Path) else source
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=Entry)
            entry.arguments = _typed(entry.hook, entry.arguments)
        except (msgspec.MsgspecError, TypeError, KeyError) as error:
            raise ValueError(f"line {number} of the trace: {error}") from None
        yield entry


def _typed(name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name not in CHAINS:
        raise TypeError(f"there is no hook {name!r}; accepted: {', '.join(CHAINS)}")
    specification = getattr(Specs, name)
    hints = get_type_hints(specification)
    typed: dict[str, Any] = {}
    for argument in list(inspect.signature(specification).parameters)[1:]:
        typed[argument] = msgspec.convert(given.get(argument), hints[argument])
    return typed


async def replay(plugin: Plugin, trace: Path | Iterable[str]) -> int:
    """Calls a started plugin as the trace says, and compares its verdicts with the trace's.

    Returns how many calls were made.

    Raises:
        ReplayError: a verdict differs; the text names the line's call and both verdicts.
    """
    count = 0
    for entry in read_trace(trace):
        if not hasattr(getattr(plugin, entry.hook, None), "vmq_impl"):
            continue
        verdict = await call_async(plugin, entry.hook, **entry.arguments)
        count += 1
        if entry.verdict and verdict is not None and word_of(verdict) != entry.verdict:
            raise ReplayError(
                f"call {count}, {entry.hook} of {entry.arguments.get('subscriber_id')}: "
                f"{word_of(verdict)} instead of {entry.verdict}"
            )
    return count


def word_of(verdict: Any) -> str:
    """A verdict in one word."""
    if isinstance(verdict, Refuse):
        return "refuse"
    return "accept" if isinstance(verdict, Accept) else "next"


class Recorder(Plugin):
    """Stands in front of a plugin, in a broker of a test, and writes down what it is asked and answers.

    Args:
        inner: the plugin that answers; None asks the next one, and the verdict is not known.
        lines: where the lines go.
    """

    def __init__(self, inner: Plugin | None, lines: list[str]) -> None:
        self.inner = inner
        self.lines = lines
        if inner is not None:
            self.Config = inner.Config  # type: ignore[misc]  # a class's, but here each has its own

    def start(self, broker: Any, config: Any) -> Any:
        return None if self.inner is None else self.inner.start(broker, config)

    def stop(self) -> Any:
        return None if self.inner is None else self.inner.stop()

    @hook
    async def auth_on_register(
        self,
        peer: Peer,
        subscriber_id: SubscriberId,
        username: str | None,
        password: bytes | None,
        clean_session: bool,
    ) -> Any:
        shown = {
            "peer": peer,
            "subscriber_id": subscriber_id,
            "username": username,
            "clean_session": clean_session,
        }
        return await self._ask("auth_on_register", {**shown, "password": password}, shown)

    @hook
    async def auth_on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> Any:
        arguments = {"username": username, "subscriber_id": subscriber_id, "message": message}
        return await self._ask("auth_on_publish", arguments, arguments)

    @hook
    async def auth_on_subscribe(
        self,
        username: str | None,
        subscriber_id: SubscriberId,
        subscriptions: list[Subscription],
    ) -> Any:
        arguments = {
            "username": username,
            "subscriber_id": subscriber_id,
            "subscriptions": subscriptions,
        }
        return await self._ask("auth_on_subscribe", arguments, arguments)

    async def _ask(self, name: str, arguments: dict[str, Any], shown: dict[str, Any]) -> Any:
        verdict = read_verdict(name, None)
        known = hasattr(getattr(self.inner, name, None), "vmq_impl")
        if self.inner is not None and known:
            verdict = await call_async(self.inner, name, **arguments)
        entry = Entry(name, shown, word_of(verdict) if known else "")
        self.lines.append(_encoder.encode(entry).decode())
        return verdict if verdict is not NEXT else None
