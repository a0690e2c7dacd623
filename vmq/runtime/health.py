"""What is wrong with a broker: what keeps new clients out, and what concerns a part of its work only."""

from typing import Final, Literal

from msgspec import Struct

from vmq.core.context import Core
from vmq.listeners.state import AnyListener

#: A loop that was late by more seconds lately is unwell.
UNWELL_LAG: Final = 1.0


class Health(Struct):
    """The reasons why a broker is not well: `failing` are those for which new clients cannot be served."""

    failing: list[str]
    degraded: list[str]

    @property
    def status(self) -> Literal["ok", "degraded", "failing"]:
        """All in one word."""
        if self.failing:
            return "failing"
        return "degraded" if self.degraded else "ok"

    @property
    def reasons(self) -> list[str]:
        """All of them, those that matter more first."""
        return [*self.failing, *self.degraded]


def problem_of(listener: AnyListener) -> str:
    """What is said of a listener that lets nobody in; "": it does."""
    name = f"listener {listener.name} ({listener.url})"
    if not listener.is_open:
        return f"{name} does not accept connections"
    if listener.is_wanting:
        return f"{name} has clients wait: no more files may be open (ulimit -n), or memory lacks"
    return ""


def add_listener(health: Health, listener: AnyListener) -> None:
    """A listener that lets nobody in is missed by new clients if it is one for them."""
    problem = problem_of(listener)
    if problem:
        (health.failing if listener.endpoint.is_mqtt else health.degraded).append(problem)


def add_core(health: Health, core: Core, lag: float) -> None:
    """What store, memory and event loop say; `lag` is how late the loop was lately, in seconds."""
    if core.store is not None and core.store.failing:
        health.failing.append("the store cannot write")
    if core.store is not None and (core.store.is_short or core.store.is_full()):
        health.degraded.append(f"durable work is refused: {core.store.why_refused()}")
    if core.memory_is_high:
        health.failing.append("memory is high: new clients are refused (limits.max_memory)")
    if lag > UNWELL_LAG:
        health.degraded.append(f"the event loop was {lag:.1f} s late in the last seconds")
