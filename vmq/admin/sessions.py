"""Sessions: list, show, disconnect, unsubscribe."""

from collections.abc import AsyncIterator, Collection, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from vmq.admin import elsewhere
from vmq.admin.errors import NotFoundError
from vmq.admin.listing import Listing, Selection
from vmq.admin.trees import Mountpoint, find, registries, registry_of, until_written
from vmq.clustering.messages.sessions import DISCONNECT, UNSUBSCRIBE
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.runtime import own_sessions
from vmq.runtime.own_sessions import SessionFigures, figures_of
from vmq.store.entries import split_scope

if TYPE_CHECKING:
    from vmq.clustering.directory.records import Record
    from vmq.clustering.messages.sessions import AwaySession
    from vmq.ports import BrokerView

_ITS_OWN: Final = (
    "; null = known to its own node only, which does not answer or was not asked (lists)"
)


class SessionRow(Struct, frozen=True, kw_only=True):
    """One session; the names are VerneMQ's.

    Of a session that another node has, a list has what its record says; all else is null. Of one that is shown, that
    node is asked.
    """

    node: Annotated[str, Meta(description="Which node has it; empty: the broker is no node")]
    client_id: str
    mountpoint: Mountpoint
    is_online: Annotated[
        bool | None,
        Meta(description="null = a durable session on another node, which knows whether it is"),
    ]
    user: Annotated[str | None, Meta(description="User name of the connection")] = None
    peer_host: str | None = None
    peer_port: int | None = None
    protocol: Annotated[int | None, Meta(description="3 = MQTT 3.1, 4 = MQTT 3.1.1")] = None
    clean_session: bool
    keep_alive: int | None = None
    queue_size: Annotated[
        int | None, Meta(description="Messages that wait to be sent" + _ITS_OWN)
    ] = None
    online_messages: Annotated[
        int | None, Meta(description="queue_size of a connected client" + _ITS_OWN)
    ] = None
    offline_messages: Annotated[
        int | None, Meta(description="queue_size of an absent client" + _ITS_OWN)
    ] = None
    waiting_acks: Annotated[
        int | None,
        Meta(
            description="Messages sent and not acknowledged; null = not loaded from the store yet, or known to its own "
            "node only"
        ),
    ] = None
    subscriptions: Annotated[int, Meta(description="How many")]
    dropped: Annotated[
        int | None, Meta(description="Messages lost to limits since the broker's start" + _ITS_OWN)
    ] = None
    session_started_at: Annotated[str | None, Meta(description="When it connected (UTC)")] = None
    offline_since: Annotated[str | None, Meta(description="When it left (UTC)")] = None


class SubscriptionRow(Struct, frozen=True):
    """One subscription of a session."""

    filter: str
    qos: int


class SessionDetails(SessionRow, frozen=True, kw_only=True):
    """One session and its subscriptions."""

    filters: list[SubscriptionRow]


class Disconnected(Struct, frozen=True, kw_only=True):
    """What a disconnect did."""

    client_id: str
    mountpoint: Mountpoint
    was_online: bool
    session_ended: Annotated[
        bool, Meta(description="Whether the session went too, with its messages and subscriptions")
    ]


class Unsubscribed(Struct, frozen=True):
    """What an unsubscribe did."""

    client_id: str
    filter: str
    mountpoint: Mountpoint


def list_sessions(
    broker: "BrokerView",
    selection: Selection,
    mountpoint: str | None = None,
    *,
    local: bool = False,
) -> Listing[SessionRow]:
    """All sessions, connected or not, of one mountpoint or (None) of all: this node's first, then those of others.

    Only this node's with `local`.
    """
    rows = _rows(broker, registries(broker, mountpoint))
    rows = chain(rows, _rows_in_slots(broker, mountpoint))
    if local:
        return Listing(SessionRow, rows, selection)
    rows = chain(rows, _rows_elsewhere(broker, mountpoint))
    missing: list[str] = []
    others = _rows_in_slots_elsewhere(broker, mountpoint, missing)
    return Listing(SessionRow, rows, selection, others, missing)


def _rows(broker: "BrokerView", trees: list[Registry]) -> Iterator[SessionRow | None]:
    node = elsewhere.own_name(broker)
    for registry in trees:
        for client_id in list(registry.subscribers):
            subscriber = registry.subscribers.get(client_id)
            yield None if subscriber is None else row_of(registry, subscriber, node)


def _rows_in_slots(broker: "BrokerView", only: str | None) -> Iterator[SessionRow | None]:
    node = elsewhere.own_name(broker)
    for scoped_id, figures in elsewhere.away_in_slots(broker):
        mountpoint, client_id = _parted(scoped_id)
        if only in (None, mountpoint):
            yield _row(figures, node, mountpoint, client_id)


async def _rows_in_slots_elsewhere(
    broker: "BrokerView", only: str | None, missing: list[str]
) -> AsyncIterator[list[SessionRow]]:
    """Names of nodes that do not answer join the `missing`."""
    async for node, found in elsewhere.away_in_slots_elsewhere(broker):
        if found is None:
            missing.append(node)
            continue
        rows = [_row_away(node, each) for each in found]
        yield [each for each in rows if only in (None, each.mountpoint)]


def _parted(scoped: str) -> tuple[str, str]:
    """A mountpoint and a client id of it."""
    mountpoint, client_id = split_scope(scoped.encode())
    return mountpoint, client_id.decode()


def _row_away(node: str, away: "AwaySession") -> SessionRow:
    mountpoint, client_id = _parted(away.client_id)
    return SessionRow(
        node=node,
        client_id=client_id,
        mountpoint=mountpoint,
        is_online=False,
        user=away.user,
        clean_session=False,
        queue_size=away.queue_size,
        online_messages=0,
        offline_messages=away.queue_size,
        waiting_acks=away.waiting_acks,
        subscriptions=away.subscriptions,
        offline_since=_when(away.offline_since),
    )


def _rows_elsewhere(broker: "BrokerView", mountpoint: str | None) -> Iterator[SessionRow | None]:
    for tree, client_id, record in elsewhere.records(broker, mountpoint):
        yield None if record is None else _row_elsewhere(tree, client_id, record)


def _row_elsewhere(mountpoint: str, client_id: str, record: "Record") -> SessionRow:
    return SessionRow(
        node=record.node,
        client_id=client_id,
        mountpoint=mountpoint,
        # A clean session ends with its connection.
        is_online=True if record.clean else None,
        clean_session=record.clean,
        subscriptions=len(record.subscriptions),
    )


async def show_session(
    broker: "BrokerView", client_id: str, mountpoint: str = "", *, local: bool = False
) -> SessionDetails:
    """One session with its subscriptions, also one that another node has (not with `local`): that node is asked."""
    registry = registry_of(broker, mountpoint)
    record = None
    in_slot = await elsewhere.ask_slot(broker, mountpoint, client_id)
    if not local and client_id not in registry.subscribers:
        record = elsewhere.record_of(broker, mountpoint, client_id)
    if record is None and in_slot is not None and client_id not in registry.subscribers:
        node = elsewhere.home_of_slot(broker, mountpoint, client_id)
        row = _row(in_slot, node, mountpoint, client_id)
        granted = in_slot.subscriptions
    elif record is None:
        subscriber = find(broker, client_id, mountpoint)
        row = row_of(registry, subscriber, elsewhere.own_name(broker))
        granted = {name: each.qos for name, each in subscriber.subscriptions.items()}
    else:
        figures = await elsewhere.ask(broker, record.node, mountpoint, client_id)
        if figures is None:
            row = _row_elsewhere(mountpoint, client_id, record)
            granted = dict(record.subscriptions)
        else:
            row = _row(figures, record.node, mountpoint, client_id)
            granted = figures.subscriptions
    filters = [SubscriptionRow(name, qos) for name, qos in sorted(granted.items())]
    values = {name: getattr(row, name) for name in SessionRow.__struct_fields__}
    if (
        in_slot is not None and row.is_online
    ):  # its connection is one node's business, its queue another's
        waiting = in_slot.queue_size
        values.update(
            queue_size=waiting, online_messages=waiting, waiting_acks=in_slot.waiting_acks
        )
    return SessionDetails(**values, filters=filters)


def row_of(registry: Registry, subscriber: Subscriber, node: str) -> SessionRow:
    """A session of this node as a row."""
    figures = figures_of(registry, subscriber)
    return _row(figures, node, registry.mountpoint, subscriber.client_id)


def _row(figures: SessionFigures, node: str, mountpoint: str, client_id: str) -> SessionRow:
    waiting = figures.queue_size
    host, port = (None, None) if figures.peer is None else split_peer(figures.peer)
    return SessionRow(
        node=node,
        client_id=client_id,
        mountpoint=mountpoint,
        is_online=figures.is_online,
        user=figures.user,
        peer_host=host,
        peer_port=port,
        protocol=figures.protocol,
        clean_session=not figures.is_durable,
        keep_alive=figures.keep_alive,
        queue_size=waiting,
        online_messages=waiting if figures.is_online else 0,
        offline_messages=0 if figures.is_online else waiting,
        waiting_acks=figures.waiting_acks,
        subscriptions=len(figures.subscriptions),
        dropped=figures.dropped,
        session_started_at=_when(figures.connected_at),
        offline_since=_when(figures.offline_since),
    )


def split_peer(text: str) -> tuple[str, int | None]:
    """Host and port of a peer as connections describe it; a peer without a port has none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        return text, None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _when(seconds: float) -> str | None:
    if not seconds:
        return None
    when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return when.removesuffix("+00:00") + "Z"


async def disconnect(
    broker: "BrokerView", client_id: str, mountpoint: str = "", *, cleanup: bool = False
) -> Disconnected:
    """Closes a client's connection; its will is published. With `cleanup` its session ends, too."""
    registry = registry_of(broker, mountpoint)
    in_slot = await elsewhere.ask_slot(broker, mountpoint, client_id) if cleanup else None
    if in_slot is not None:
        elsewhere.end_in_slot(broker, mountpoint, client_id)
        await until_written(broker)
        return Disconnected(
            client_id=client_id,
            mountpoint=mountpoint,
            was_online=in_slot.is_online,
            session_ended=True,
        )
    if not cleanup and client_id not in registry.subscribers:
        figures = await _there(broker, client_id, mountpoint, DISCONNECT)
        if figures is not None:
            return Disconnected(
                client_id=client_id,
                mountpoint=mountpoint,
                was_online=figures.is_online,
                session_ended=not figures.is_durable,
            )
    subscriber = find(broker, client_id, mountpoint)
    was_online = own_sessions.disconnect(subscriber)
    # A clean session has ended with its connection.
    left = registry.subscribers.get(client_id) is subscriber
    if left and cleanup:
        registry.end_session(subscriber)
    ended = registry.subscribers.get(client_id) is not subscriber
    await until_written(broker)
    return Disconnected(
        client_id=client_id,
        mountpoint=mountpoint,
        was_online=was_online,
        session_ended=ended,
    )


async def _there(
    broker: "BrokerView", client_id: str, mountpoint: str, does: int, topic_filter: str = ""
) -> SessionFigures | None:
    """Has the node that has a session, which is not this one, do something with it; None: none that answers has it."""
    node = elsewhere.home_of(broker, mountpoint, client_id)
    if node:
        return await elsewhere.ask(broker, node, mountpoint, client_id, does, topic_filter)
    return await elsewhere.ask_slot(broker, mountpoint, client_id, does, topic_filter)


async def unsubscribe(
    broker: "BrokerView", client_id: str, topic_filter: str, mountpoint: str = ""
) -> Unsubscribed:
    """Removes a subscription, at any node; the client is not told, since MQTT has no packet for it.

    Raises:
        NotFoundError: the client has no subscription to exactly this filter.
    """
    registry = registry_of(broker, mountpoint)
    figures = None
    if client_id not in registry.subscribers:
        figures = await _there(broker, client_id, mountpoint, UNSUBSCRIBE, topic_filter)
    if figures is not None:
        had: Collection[str] = figures.subscriptions
        is_ended = topic_filter in had
    else:
        subscriber = find(broker, client_id, mountpoint)
        is_ended = own_sessions.unsubscribe(registry, subscriber, topic_filter)
        had = subscriber.subscriptions
    if not is_ended:
        have = ", ".join(sorted(had)[:20]) or "none"
        raise NotFoundError(
            f"client {client_id!r} has no subscription to {topic_filter!r}; it has: {have}"
        )
    await until_written(broker)
    return Unsubscribed(client_id, topic_filter, mountpoint)
