"""The topic trees of a broker, one for each mountpoint, and the sessions in them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from vmq.admin.elsewhere import home_of, mountpoints_in_slots
from vmq.admin.errors import NotFoundError, UnavailableError
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.streams.serving.batch_commit import SinkStep

if TYPE_CHECKING:
    from vmq.ports import BrokerView

Mountpoint = Annotated[
    str, Meta(description="The topic tree, as listeners name it; empty = the default one")
]


def mountpoints(broker: "BrokerView") -> list[str]:
    """Those that listeners have, or sessions and retained messages that outlived their listener, or are in slots."""
    named = (each.mountpoint for each in broker.config.listeners.values())
    return sorted({"", *broker.registries, *named, *mountpoints_in_slots(broker)})


def registry_of(broker: "BrokerView", mountpoint: str = "") -> Registry:
    """The sessions and topics of a mountpoint.

    Raises:
        NotFoundError: nothing and nobody has that mountpoint (a typo must not make one).
    """
    known = mountpoints(broker)
    if mountpoint not in known:
        accepted = ", ".join(repr(each) for each in known)
        raise NotFoundError(f"there is no mountpoint {mountpoint!r}; accepted: {accepted}")
    return broker.registry(mountpoint)


def registries(broker: "BrokerView", mountpoint: str | None) -> list[Registry]:
    """The topic trees that a listing looks at; None = all of them.

    Raises:
        NotFoundError: there is no such mountpoint.
    """
    if mountpoint is not None:
        return [registry_of(broker, mountpoint)]
    return [broker.registries[each] for each in sorted(broker.registries)]


def find(broker: "BrokerView", client_id: str, mountpoint: str = "") -> Subscriber:
    """The session of a client.

    Raises:
        NotFoundError: there is none; the text names another node, or other mountpoints, that have one.
    """
    subscriber = registry_of(broker, mountpoint).subscribers.get(client_id)
    if subscriber is not None:
        return subscriber
    text = f"there is no session of client {client_id!r}"
    if mountpoint:
        text += f" under mountpoint {mountpoint!r}"
    home = home_of(broker, mountpoint, client_id)
    if home:
        raise NotFoundError(f"{text} on this node; node {home!r} has it: ask there")
    others = elsewhere(broker, lambda registry: client_id in registry.subscribers)
    raise NotFoundError(text + others)


def elsewhere(broker: "BrokerView", has: Callable[[Registry], bool]) -> str:
    """The end of an error's text: in which topic trees there is what was looked for, if in any."""
    others = [
        repr(name) if name else "the default one"
        for name, registry in sorted(broker.registries.items())
        if has(registry)
    ]
    return f"; there is one under another mountpoint: {', '.join(others)}" if others else ""


async def until_written(broker: "BrokerView") -> None:
    """Returns once all that this process has changed in its store so far is safe: a kill then takes nothing back.

    Raises:
        UnavailableError: the store cannot write.
    """
    core = registry_of(broker, "").core
    if core.store is None:
        core.outbox.flush()
        return
    step = SinkStep(core.outbox)
    step.answer_after(core.outbox.stored, core.store.last_barrier())
    await step.settle()
    if step.failure is not None:
        raise UnavailableError(f"{step.failure}: it is done, and not on disk yet")
