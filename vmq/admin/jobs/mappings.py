"""The mappings of a running broker: what they did, what they would do, and whether they are in force."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from vmq.admin.errors import NotFoundError, RefusedError
from vmq.admin.payloads import Encoding, show_payload
from vmq.admin.trees import Mountpoint

if TYPE_CHECKING:
    from vmq.jobs.mappings.mapping import MessageMapping
    from vmq.jobs.mappings.service import Mappings
    from vmq.ports import BrokerView


class MappingRow(Struct, frozen=True, kw_only=True):
    """One mapping."""

    mapping: str
    enabled: bool
    source: Annotated[str, Meta(description="The topic filter, or queue of jobs, that it takes")]
    where: Annotated[str, Meta(description="Which of it; empty = all")]
    to: list[str]
    mountpoint: Mountpoint
    seen: Annotated[int, Meta(description="Messages and jobs that it looked at since the start")]
    sent: Annotated[int, Meta(description="What it sent on")]
    failed: Annotated[
        int, Meta(description="Messages that an expression failed for, or a target refused")
    ]
    error: Annotated[str, Meta(description="Why it waits, or the last failure")]


class MappedTo(Struct, frozen=True):
    """What a message would become."""

    target: str
    payload: str
    encoding: Encoding


class MappingTried(Struct, frozen=True, kw_only=True):
    """What a mapping would do with a message."""

    mapping: str
    wanted: Annotated[bool, Meta(description="Whether where is true for it")]
    error: Annotated[str, Meta(description="Why it fails; empty = it does not")]
    to: list[MappedTo]


def _all(broker: "BrokerView") -> "Mappings | None":
    service = broker.jobs.service
    return None if service is None else service.mappings


def _find(broker: "BrokerView", name: str) -> "tuple[Mappings, MessageMapping]":
    mappings = _all(broker)
    found = None if mappings is None else mappings.all.get(name)
    if mappings is None or found is None:
        names = ", ".join(mappings.all) if mappings is not None else ""
        raise NotFoundError(f"there is no mapping {name!r}; accepted: {names or 'there is none'}")
    return mappings, found


def _row(each: "MessageMapping") -> MappingRow:
    return MappingRow(
        mapping=each.name,
        enabled=each.is_enabled,
        source=each.source,
        where=each.options.where or "",
        to=list(each.options.to),
        mountpoint=each.options.mountpoint,
        seen=each.seen,
        sent=each.sent,
        failed=each.failed,
        error=each.hindrance or each.last_error,
    )


def added(one: MappingRow, other: MappingRow) -> MappingRow:
    """A mapping of which two processes do a part each."""
    return msgspec.structs.replace(
        one,
        enabled=one.enabled and other.enabled,
        seen=one.seen + other.seen,
        sent=one.sent + other.sent,
        failed=one.failed + other.failed,
        error=one.error or other.error,
    )


def list_mappings(broker: "BrokerView") -> list[MappingRow]:
    """Those of the configuration."""
    mappings = _all(broker)
    return [] if mappings is None else [_row(each) for each in mappings.all.values()]


def switch(broker: "BrokerView", name: str, *, is_enabled: bool) -> MappingRow:
    """Has a mapping in force or not, whatever the file says, also after a restart.

    Raises:
        NotFoundError: there is none of this name.
        RefusedError: the disk fails.
    """
    mappings, found = _find(broker, name)
    try:
        mappings.switch(name, is_enabled)
    except OSError as error:
        raise RefusedError(f"that cannot be kept: {error}") from None
    return _row(found)


def try_out(
    broker: "BrokerView", name: str, topic: str, payload: bytes, qos: int, client_id: str
) -> MappingTried:
    """What a mapping would do with a message; nothing is sent.

    Raises:
        NotFoundError: there is none of this name.
        AdminError: the mapping does not take messages of this topic.
    """
    from vmq.admin.errors import AdminError
    from vmq.config.mappings import stream_source
    from vmq.jobs.mappings.mapping import MappingError, Seen
    from vmq.mqtt.special import STREAM
    from vmq.mqtt.topics import has_wildcard, matches

    _, found = _find(broker, name)
    taken = found.source
    if taken.startswith(STREAM):
        taken = stream_source(taken).filter
    if not topic and has_wildcard(taken):
        raise AdminError(f"which topic? {found.source} has many")
    topic = topic or taken
    if topic != taken and not matches(taken, topic):
        raise AdminError(f"{topic!r} is no topic of {found.source}")
    seen = Seen(topic, payload, qos, False, client_id, broker.jobs.open().core.wall_clock())
    outs, error = [], ""
    counts = found.seen
    try:
        outs = found.map(seen)
    except MappingError as flaw:
        error = str(flaw)
    found.seen = counts
    shown = [(each.target, show_payload(each.body, 0)) for each in outs]
    return MappingTried(
        mapping=name,
        wanted=bool(outs),
        error=error,
        to=[MappedTo(target, each.text, each.encoding) for target, each in shown],
    )
