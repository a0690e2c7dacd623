"""Retained messages: list, show, delete."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from vmq.admin.errors import AdminError, NotFoundError
from vmq.admin.listing import SLICE, Listing, Selection
from vmq.admin.payloads import Encoding, show_payload
from vmq.admin.trees import Mountpoint, elsewhere, registries, registry_of, until_written
from vmq.core.registry import Registry
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import check_filter, split_shared

if TYPE_CHECKING:
    from vmq.ports import BrokerView


class RetainedRow(Struct, frozen=True, kw_only=True):
    """One retained message."""

    topic: str
    mountpoint: Mountpoint
    qos: int
    size: int
    payload: str
    encoding: Encoding
    truncated: bool


class RetainedDeleted(Struct, frozen=True):
    """What a delete did."""

    filter: str
    mountpoint: Mountpoint
    deleted: int


def list_retained(
    broker: "BrokerView",
    selection: Selection,
    topic_filter: str = "",
    payload_bytes: int = 64,
    mountpoint: str | None = None,
) -> Listing[RetainedRow]:
    """The retained messages whose topics a filter matches; without one, all of them, those under $ included.

    Of one mountpoint, or (None) of all.

    Raises:
        AdminError: that is no topic filter.
    """
    _check(topic_filter)
    rows = _rows(registries(broker, mountpoint), topic_filter, payload_bytes)
    return Listing(RetainedRow, rows, selection)


def show_retained(
    broker: "BrokerView", topic: str, payload_bytes: int = 0, mountpoint: str = ""
) -> RetainedRow:
    """The retained message of a topic.

    Raises:
        NotFoundError: the topic has none.
    """
    message = registry_of(broker, mountpoint).retained.get(topic)
    if message is None:
        text = f"topic {topic!r} has no retained message"
        others = elsewhere(broker, lambda registry: registry.retained.get(topic) is not None)
        raise NotFoundError(text + others)
    return _row(mountpoint, message, payload_bytes)


async def delete_retained(
    broker: "BrokerView", topic_filter: str, mountpoint: str = ""
) -> RetainedDeleted:
    """Deletes the retained messages whose topics a filter matches; subscribers are told nothing.

    Raises:
        AdminError: that is no topic filter.
        NotFoundError: it matches no retained message.
    """
    if not topic_filter:
        raise AdminError("filter: missing; # stands for every topic but those under $")
    _check(topic_filter)
    registry = registry_of(broker, mountpoint)
    deleted = 0
    for step, message in enumerate(walk(registry, topic_filter), 1):
        topic = "" if message is None else message.topic.decode()
        if message is not None and registry.retained.get(topic) is not None:
            registry.retain(topic, Message(message.topic, b"", 0, True))
            deleted += 1
        if step % SLICE == 0:
            await asyncio.sleep(0)
    if not deleted:
        raise NotFoundError(f"no retained message matches {topic_filter!r}")
    await until_written(broker)
    return RetainedDeleted(topic_filter, mountpoint, deleted)


def _check(topic_filter: str) -> None:
    if not topic_filter:
        return
    if split_shared(topic_filter)[0]:
        raise AdminError("filter: a shared subscription brings no retained messages")
    try:
        check_filter(topic_filter)
    except ProtocolError as error:
        raise AdminError(f"filter: {error}") from None


def _rows(
    trees: list[Registry], topic_filter: str, payload_bytes: int
) -> Iterator[RetainedRow | None]:
    for registry in trees:
        for message in walk(registry, topic_filter):
            yield None if message is None else _row(registry.mountpoint, message, payload_bytes)


def _row(mountpoint: str, message: Message, payload_bytes: int) -> RetainedRow:
    shown = show_payload(message.payload, payload_bytes)
    return RetainedRow(
        topic=message.topic.decode(errors="replace"),
        mountpoint=mountpoint,
        qos=message.qos,
        size=len(message.payload),
        payload=shown.text,
        encoding=shown.encoding,
        truncated=shown.truncated,
    )


def walk(registry: Registry, topic_filter: str) -> Iterator[Message | None]:
    """The retained messages that a filter matches (none given: all), and None for each step without one.

    Lazy, and at home with changes between two steps: what is deleted meanwhile is not shown; what comes new may be.
    """
    steps = registry.retained.walk(topic_filter)
    while not steps.is_over():
        found = steps.take(1)
        yield found[0] if found else None
