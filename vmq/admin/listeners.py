"""Listeners: list, start, stop."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from vmq.admin.errors import NotFoundError, RefusedError

if TYPE_CHECKING:
    from vmq.ports import BrokerView


class ListenerRow(Struct, frozen=True, kw_only=True):
    """One listener of the configuration."""

    name: str
    status: Annotated[str, Meta(description="running or stopped")]
    url: Annotated[str, Meta(description="With the real port, while it runs")]
    connections: Annotated[int, Meta(description="Open MQTT connections")]
    mountpoint: Annotated[
        str | None, Meta(description="The topic tree of its clients; null = it has none (http)")
    ]
    allow_anonymous: Annotated[bool | None, Meta(description="null = it has no clients (http)")]


def list_listeners(broker: "BrokerView") -> list[ListenerRow]:
    """The listeners of the configuration."""
    return [_row(broker, name) for name in broker.config.listeners]


def _row(broker: "BrokerView", name: str) -> ListenerRow:
    listener = broker.listeners.get(name)
    options = broker.config.listeners[name]
    is_mqtt = options.endpoint.is_mqtt or options.endpoint.is_resp
    return ListenerRow(
        name=name,
        status="stopped" if listener is None else "running",
        url=options.url if listener is None else listener.url,
        connections=0 if listener is None else listener.connections,
        mountpoint=options.mountpoint if is_mqtt else None,
        allow_anonymous=_is_open(broker, name) if is_mqtt else None,
    )


def _is_open(broker: "BrokerView", name: str) -> bool:
    """Whether anonymous clients get in now: loopback is open by default, until a plugin knows clients."""
    if not broker.config.anonymous_allowed(name):
        return False
    if not broker.config.anonymous_until_hook(name):
        return True
    hooks = getattr(broker.listeners.get(name), "hooks", broker.hooks)
    return hooks.auth_on_register is None


def _check(broker: "BrokerView", name: str) -> None:
    if name not in broker.config.listeners:
        names = ", ".join(broker.config.listeners)
        raise NotFoundError(f"there is no listener {name!r}; accepted: {names}")


async def start_listener(broker: "BrokerView", name: str) -> ListenerRow:
    """Opens a listener that was stopped.

    Raises:
        NotFoundError: the configuration has no such listener.
        RefusedError: it runs already, or its address cannot be had.
    """
    _check(broker, name)
    if name in broker.listeners:
        raise RefusedError(f"listener {name!r} runs already")
    try:
        await broker.open_listener(name)
    except RuntimeError as error:
        raise RefusedError(str(error)) from None
    return _row(broker, name)


def stop_listener(broker: "BrokerView", name: str) -> ListenerRow:
    """Closes a listener: nobody new gets in there, who is connected stays.

    Raises:
        NotFoundError: the configuration has no such listener.
        RefusedError: it is stopped already.
    """
    _check(broker, name)
    if name not in broker.listeners:
        raise RefusedError(f"listener {name!r} is stopped already")
    broker.close_listener(name)
    return _row(broker, name)
