"""The cluster that this broker is a node of: status, join, leave, drain, remove."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from vmq.clustering.node.node import Clustering
    from vmq.ports import BrokerView
    from vmq_cluster.node import ClusterNode

#: Seconds that a node which is to be joined has to answer.
JOIN_TIMEOUT = 10.0
#: The statuses of who can be removed.
_THERE = frozenset({"joined", "drained", "leaving", "expired"})


class MemberRow(Struct, frozen=True, kw_only=True):
    """One node that belongs to the cluster, belonged to it, or is asked to take this one in."""

    node: Annotated[str, Meta(description="Its name; empty: not known yet")]
    status: Annotated[
        str,
        Meta(
            description="joined, drained (it serves no clients for now), leaving, left, removed (by an operator), "
            "expired (dead for too long), asked (to take this node in), joining (this node: it is not let in "
            "yet, and serves no clients; health says why), or refused (this node: another has its name by now)"
        ),
    ]
    is_up: Annotated[bool, Meta(description="This node can reach it")]
    is_self: Annotated[bool, Meta(description="It is the node that answers")]
    address: Annotated[str, Meta(description="Where the others reach it")]
    sessions: Annotated[
        int,
        Meta(
            description="Sessions that it has; of another node those that are known here, without durable ones in its "
            "slots whose clients are away"
        ),
    ] = 0
    online: Annotated[
        int | None,
        Meta(description="Those whose clients are connected; null = only the node itself knows"),
    ] = None
    offline: Annotated[
        int | None,
        Meta(description="Those whose clients are away; null = only the node itself knows"),
    ] = None
    subscriptions: Annotated[
        int,
        Meta(description="Subscriptions of those, but for durable ones in slots that are away"),
    ] = 0
    waiting_messages: Annotated[
        int,
        Meta(description="Messages of QoS 1 and 2 that wait here for it"),
    ] = 0
    waiting_bytes: int = 0
    slots_owned: Annotated[
        int | None,
        Meta(
            description="Slots of durable sessions that it owns; null = the node is about to stop"
        ),
    ] = None
    slots_followed: Annotated[int | None, Meta(description="Slots that it has a copy of")] = None
    slots_without_follower: Annotated[
        int | None, Meta(description="Slots that it owns and nobody has a copy of")
    ] = None
    slots_behind: Annotated[
        int | None,
        Meta(
            description="Slots of the node that answers of which its copy lacks what that had a second ago: "
            "acknowledgements wait for it"
        ),
    ] = None
    slots_waiting: Annotated[
        int | None,
        Meta(
            description="Slots that it owns and does not serve yet, for other nodes have not said what they have of "
            "them; null = only the node itself knows"
        ),
    ] = None
    partitions: Annotated[
        int | None,
        Meta(
            description="Partitions of streams with copies that it has one of; null = only the node itself knows"
        ),
    ] = None
    leads_meta: Annotated[
        bool | None,
        Meta(
            description="It leads the meta group, which decides where copies of streams are: if no node does, nothing "
            "is decided; null = the node that answers has no part in that"
        ),
    ] = None


class Joined(Struct, frozen=True, omit_defaults=True):
    """How far a join has come."""

    address: str
    status: Annotated[str, Meta(description="joined, or asked: it is asked until it answers")]
    reason: Annotated[
        str | None, Meta(description="Why it has not answered yet, if it has not")
    ] = None


class LeftCluster(Struct, frozen=True):
    """How a leave has ended."""

    node: str
    complete: Annotated[
        bool, Meta(description="The others have all that this node had, durable sessions included")
    ]


class Drained(Struct, frozen=True):
    """How a drain has ended."""

    node: str
    drained: Annotated[bool, Meta(description="No client is served here")]
    complete: Annotated[
        bool,
        Meta(
            description="Other nodes have all durable sessions and jobs of this one, and lead its partitions of streams"
        ),
    ]


class Removed(Struct, frozen=True):
    """Who was removed."""

    node: str


def list_members(broker: "BrokerView") -> list[MemberRow]:
    """The members, past ones included.

    Raises:
        RefusedError: the broker is no node, or its node has stopped.
    """
    return list(_rows(broker, _node_of(broker)))


def _rows(broker: "BrokerView", node: "ClusterNode") -> Iterator[MemberRow]:
    from vmq.clustering.delivery.drained import drained_nodes
    from vmq_cluster.membership import Status

    machine = node.machine
    clustering = _clustering_of(broker)
    groups = clustering.streams.replicas.groups
    leader = None if groups is None else groups.meta_leader()
    drained = drained_nodes(node)
    for record in machine.membership.records:
        name = record.name
        is_self = name == node.name
        is_member = name in machine.membership.others
        status = Status(record.status).name.lower()
        tally = clustering.directory.census.of(name)
        sessions = tally.clean + tally.durable
        online = None if tally.durable else sessions
        offline = None
        if is_self:
            offline = sum(len(each.offline) for each in broker.registries.values())
            online = max(0, sessions - offline)
            if clustering.slots is not None:
                offline += clustering.slots.status.count_away()
            sessions = online + offline
        messages, size = clustering.outboxes.waiting_for(name)
        slots = None if clustering.slots is None else clustering.slots.tally(name)
        if is_self and machine.membership.has_lost_name:
            status = "refused"
        elif status == "joined" and name in drained:
            status = "drained"
        elif status == "joined" and is_self and clustering.admission.reason:
            status = "joining"
        yield MemberRow(
            node=name,
            status=status,
            is_up=is_self or (is_member and machine.detector.is_up(name)),
            is_self=is_self,
            address=node.address if is_self else record.address,
            sessions=sessions,
            online=online,
            offline=offline,
            subscriptions=tally.subscriptions,
            waiting_messages=messages,
            waiting_bytes=size,
            slots_owned=None if slots is None else slots.owned,
            slots_followed=None if slots is None else slots.followed,
            slots_without_follower=None if slots is None else slots.alone,
            slots_behind=None if slots is None else slots.behind,
            slots_waiting=None if slots is None else slots.waiting,
            partitions=len(groups.places.open) if is_self and groups is not None else None,
            leads_meta=None if leader is None else name == leader,
        )
    for address in machine.contacts:
        yield MemberRow(node="", status="asked", is_up=False, is_self=False, address=address)


async def join(broker: "BrokerView", address: str) -> Joined:
    """Asks the node at an address to take this one into its cluster.

    Raises:
        RefusedError: the broker is no node.
        AdminError: it is no address of another node.
    """
    from vmq_cluster.errors import ClusterError

    clustering = _clustering_of(broker)
    try:
        joined = await clustering.joining.join(address, JOIN_TIMEOUT)
        reason = None if joined else await clustering.joining.why_not(address)
        await broker.open_listeners()  # a node that has left has closed them
        await clustering.admission.look()
    except (ClusterError, RuntimeError) as error:
        raise AdminError(str(error)) from None
    return Joined(address, "joined" if joined else "asked", reason)


def _refuse_outsider(node: "ClusterNode") -> None:
    if not node.machine.membership.belongs:
        raise RefusedError(f"node {node.name!r} does not belong to a cluster any more")


async def leave(broker: "BrokerView", timeout: float) -> LeftCluster:  # noqa: ASYNC109 - a limit, not an error
    """Leaves the cluster: clients are turned away, and durable sessions handed over to the other nodes.

    A broker that was started as a program stops then.

    Raises:
        RefusedError: the broker is no node, or alone.
    """
    from vmq_cluster.errors import ClusterError

    node = _node_of(broker)
    _refuse_outsider(node)
    if not node.machine.membership.others:
        raise RefusedError(f"node {node.name!r} is in no cluster: it is alone")
    broker.turn_clients_away("the node leaves its cluster")
    try:
        has_handed_over = await broker.jobs.hand_over(timeout, is_leaving=True)
        complete = await _clustering_of(broker).leave(timeout) and has_handed_over
        broker.jobs.take_part()  # it is alone, and what is added to it from now on is its own
    except ClusterError as error:
        raise RefusedError(str(error)) from None
    if broker.on_left is not None:
        broker.on_left()
    return LeftCluster(node.name, complete)


async def drain(
    broker: "BrokerView",
    timeout: float,  # noqa: ASYNC109 - a limit, not an error
    *,
    undo: bool = False,
) -> Drained:
    """Turns clients away, and hands durable sessions, jobs and the lead of partitions over; the node stays a member.

    With `undo` it lets clients in again.

    Raises:
        RefusedError: the broker is no node, or none is up that could have the sessions.
    """
    from vmq.clustering.delivery.drained import say_drained
    from vmq.clustering.node.admission import DRAINED

    node, clustering = _node_of(broker), _clustering_of(broker)
    if undo:
        broker.jobs.take_part()
        clustering.streams.replicas.lead_again()
        if clustering.slots is not None:
            clustering.slots.take_part()
        say_drained(node, False)
        await clustering.admission.turn_elsewhere("")
        return Drained(node.name, drained=False, complete=True)
    _refuse_outsider(node)
    if not set(node.up) - broker.worker_names:
        raise RefusedError("no other node is up that could serve the clients of this one")
    say_drained(node, True)
    await clustering.admission.turn_elsewhere(DRAINED)
    jobs, partitions = await asyncio.gather(
        broker.jobs.hand_over(timeout), clustering.streams.replicas.hand_over(timeout)
    )
    slots = clustering.slots
    sessions = slots is None or await slots.hand_over(timeout, leaves_host=True)
    return Drained(node.name, drained=True, complete=jobs and partitions and sessions)


def remove(broker: "BrokerView", name: str, *, force: bool) -> Removed:
    """Takes a dead node out of the cluster.

    Raises:
        NotFoundError: it is no other member.
        RefusedError: the broker is no node, or the member is alive (unless `force`).
    """
    from vmq_cluster.errors import ClusterError

    node = _node_of(broker)
    known = {row.node for row in _rows(broker, node) if row.status in _THERE}
    others = sorted(known - {node.name, ""})
    if name not in others:
        accepted = ", ".join(others) or "there is none"
        raise NotFoundError(f"{name!r} is no other member of the cluster; accepted: {accepted}")
    try:
        node.remove(name, force)
    except ClusterError as error:
        raise RefusedError(f"{error}, or use --force") from None
    return Removed(name)


def _clustering_of(broker: "BrokerView") -> "Clustering":
    clustering = broker.clustering
    if clustering is None:
        raise RefusedError("this broker is no node of a cluster: cluster.listen is not set")
    return clustering


def _node_of(broker: "BrokerView") -> "ClusterNode":
    from vmq_cluster.errors import ClusterError

    try:
        return _clustering_of(broker).node
    except ClusterError as error:
        raise RefusedError(str(error)) from None
