"""What other nodes of the cluster have, as this one knows it."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from vmq.clustering.messages.sessions import NOTHING
from vmq.core.registry import Registry
from vmq.core.trie import Route
from vmq.store.entries import scope_of

if TYPE_CHECKING:
    from vmq.clustering.directory.directory import Directory
    from vmq.clustering.directory.records import Record
    from vmq.clustering.messages.sessions import AwaySession
    from vmq.clustering.node.node import Clustering
    from vmq.mqtt.message import Delivery
    from vmq.ports import BrokerView
    from vmq.runtime.own_sessions import SessionFigures


def own_name(broker: "BrokerView") -> str:
    """The name of this node; "" if the broker is none."""
    return "" if broker.clustering is None else broker.clustering.name


def record_of(broker: "BrokerView", mountpoint: str, client_id: str) -> "Record | None":
    """The record of a session that another node has; None if none is known."""
    directory = _directory_of(broker)
    record = None if directory is None else directory.record(mountpoint, client_id)
    return None if record is None or record.node == own_name(broker) else record


def home_of(broker: "BrokerView", mountpoint: str, client_id: str) -> str:
    """The other node that has a client's session; "" if none is known."""
    record = record_of(broker, mountpoint, client_id)
    return "" if record is None else record.node


async def ask(
    broker: "BrokerView",
    node: str,
    mountpoint: str,
    client_id: str,
    does: int = NOTHING,
    topic_filter: str = "",
) -> "SessionFigures | None":
    """What another node says of a session that it has, before it does what it is told to (see `AskSession`).

    None: it does not answer.
    """
    clustering = broker.clustering
    if clustering is None or not clustering.is_running:
        return None
    questions = clustering.sessions
    return await questions.ask(node, mountpoint, client_id, does=does, topic_filter=topic_filter)


async def ask_slot(
    broker: "BrokerView",
    mountpoint: str,
    client_id: str,
    does: int = NOTHING,
    topic_filter: str = "",
) -> "SessionFigures | None":
    """What the owner of a session in a slot says of it; None: there is none, or the owner does not answer."""
    clustering = broker.clustering
    if clustering is None or not clustering.is_running:
        return None
    return await clustering.sessions.ask_owner(scope_of(mountpoint) + client_id, does, topic_filter)


async def away_in_slots_elsewhere(
    broker: "BrokerView",
) -> "AsyncIterator[tuple[str, list[AwaySession] | None]]":
    """The sessions in slots of other nodes whose clients are not connected, by node; None: it does not answer.

    Other workers of this broker list theirs themselves.
    """
    clustering = broker.clustering
    if clustering is not None and clustering.is_running:
        async for node, found in clustering.sessions.away():
            if node not in broker.worker_names:
                yield node, found


def home_of_slot(broker: "BrokerView", mountpoint: str, client_id: str) -> str:
    """The node whose slot has a client's session, if it has one; "": sessions are in no slots, or nobody has it."""
    slots = None if broker.clustering is None else broker.clustering.slots
    return "" if slots is None else slots.owner_of(scope_of(mountpoint) + client_id)


def queue_elsewhere(broker: "BrokerView", mountpoint: str, client_id: str) -> str:
    """The other node that has the queue of a client's durable session, if it has one; "": it would be here.

    The client may be connected here, or nowhere.
    """
    directory = _directory_of(broker)
    record = None if directory is None else directory.record(mountpoint, client_id)
    owner = home_of_slot(broker, mountpoint, client_id)
    has_other = record is not None and not record.is_in_slot
    return "" if has_other or owner == own_name(broker) else owner


def mountpoints_in_slots(broker: "BrokerView") -> list[str]:
    """The mountpoints in which sessions in slots subscribe to anything, on whatever node."""
    slots = None if broker.clustering is None else broker.clustering.slots
    return [] if slots is None else slots.machines.routes.mountpoints()


def end_in_slot(broker: "BrokerView", mountpoint: str, client_id: str) -> None:
    """Ends a client's session in a slot, with its connection."""
    slots = None if broker.clustering is None else broker.clustering.slots
    if slots is not None:
        slots.end_session(scope_of(mountpoint) + client_id)


def away_in_slots(broker: "BrokerView") -> "Iterator[tuple[str, SessionFigures]]":
    """The sessions in slots of this node whose clients are not connected; client ids stand behind their scopes."""
    slots = None if broker.clustering is None else broker.clustering.slots
    if slots is not None:
        yield from slots.status.away()


def queue_in_slots(
    broker: "BrokerView", mountpoint: str, client_id: str
) -> "list[tuple[str, Delivery]] | None":
    """What is in the queue of a session in a slot of this node; None: there is no such session."""
    slots = None if broker.clustering is None else broker.clustering.slots
    return None if slots is None else slots.status.contents(scope_of(mountpoint) + client_id)


def wanting_in_slots(
    broker: "BrokerView", mountpoint: str, topic: str
) -> "Iterator[tuple[str, str, int, bool]]":
    """The durable sessions in slots of this node that a topic's messages are for: see `SlotStatus.wanting`."""
    slots = None if broker.clustering is None else broker.clustering.slots
    if slots is not None:
        yield from slots.status.wanting(scope_of(mountpoint), topic)


def purge_in_slots(broker: "BrokerView", mountpoint: str, client_id: str, reason: str) -> int:
    """Drops what waits in the queue of such a session; how much that was."""
    slots = None if broker.clustering is None else broker.clustering.slots
    return 0 if slots is None else slots.purge(scope_of(mountpoint) + client_id, reason)


def records(
    broker: "BrokerView", mountpoint: str | None
) -> "Iterator[tuple[str, str, Record | None]]":
    """The sessions of other nodes, of one mountpoint or (None) of all; a record None is of one that is not asked for.

    Other workers of this broker list theirs themselves. The broker may go on between two of them.
    """
    directory = _directory_of(broker)
    if directory is None:
        return
    own = broker.worker_names | {own_name(broker)}
    for tree, client_id, record in directory.records_while_written():
        wanted = record.node not in own and mountpoint in (None, tree)
        yield tree, client_id, record if wanted else None


def _directory_of(broker: "BrokerView") -> "Directory | None":
    clustering = broker.clustering
    return None if clustering is None or not clustering.is_running else clustering.directory


def _slots_elsewhere(
    clustering: "Clustering", slots: list[tuple[int, str]], qos: int
) -> Iterator[tuple[bool, str]]:
    """The nodes that have slots with durable sessions that want a message."""
    assert clustering.slots is not None, "who has routes to slots has slots"
    owners = {clustering.slots.owner_of_slot(slot) for slot, _ in slots} if qos else set()
    for name in sorted(owners - {clustering.name}):
        who = f"node {name} has" if name else "nobody yet has"
        yield True, f"{who} slots of durable sessions that get it"


def targets(
    broker: "BrokerView", registry: Registry, topic: str, qos: int
) -> Iterator[tuple[bool, str]]:
    """Where else a message goes: whether it arrives there, now or later, and the words for it."""
    clustering = broker.clustering
    if clustering is None:
        return
    route = Route(topic.encode(), topic)
    registry.trie.remote.complete(route)
    up = set(clustering.node.up)
    for target in route.nodes:
        if not target.node:
            yield from _slots_elsewhere(clustering, target.slots, qos)
            continue
        name: str = target.node
        granted = min(qos, target.qos)
        if name in up:
            yield True, f"node {name} gets it at QoS {granted} at most, for its subscribers"
        elif granted:
            yield True, f"node {name} cannot be reached: it waits here until that is up again"
        else:
            yield False, f"node {name} cannot be reached, and at QoS 0 nothing waits for it"
    for shared in route.shared:
        names = ", ".join(sorted(shared.members))
        yield True, f"one member of {shared.name} gets it, among those on {names}"
