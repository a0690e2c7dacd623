"""The operations of the API on the nodes of a cluster; see `vmq.http.operations`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.admin import (
    cluster,
)
from vmq.http.operation import List, Operation
from vmq.http.operations.common import listed


class JoinCluster(Struct, forbid_unknown_fields=True):
    """Which cluster to join."""

    address: Annotated[str, Meta(description="Of any of its nodes: tcp://HOST:PORT")]


class LeaveCluster(Struct, forbid_unknown_fields=True):
    """How long to wait."""

    timeout: Annotated[
        float, Meta(ge=1, le=3600, description="Seconds after which the node has left anyway")
    ] = 60.0


class DrainNode(Struct, forbid_unknown_fields=True):
    """Whether clients are to be elsewhere, and how long that may take."""

    undo: Annotated[bool, Meta(description="Let clients in again instead")] = False

    timeout: Annotated[
        float, Meta(ge=1, le=3600, description="Seconds that the sessions may take to move")
    ] = 60.0


class RemoveMember(Struct, forbid_unknown_fields=True):
    """Which node to take out."""

    node: Annotated[str, Meta(description="Its name")]
    force: Annotated[bool, Meta(description="Even if it is alive")] = False


NODE_OPERATIONS: Final = (
    Operation(
        "list_members",
        "GET",
        "/cluster/members",
        "List the nodes of the cluster, as this one sees them",
        List,
        cluster.MemberRow,
        lambda context, wanted: listed(
            cluster.MemberRow, cluster.list_members(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "join_cluster",
        "POST",
        "/cluster/join",
        "Join the cluster of the node at an address",
        JoinCluster,
        cluster.Joined,
        lambda context, wanted: cluster.join(context.broker, wanted.address),
    ),
    Operation(
        "leave_cluster",
        "POST",
        "/cluster/leave",
        "Hand durable sessions over, leave the cluster and stop",
        LeaveCluster,
        cluster.LeftCluster,
        lambda context, wanted: cluster.leave(context.broker, wanted.timeout),
    ),
    Operation(
        "drain_node",
        "POST",
        "/cluster/drain",
        "Turn clients away, hand durable sessions over, and stay a member",
        DrainNode,
        cluster.Drained,
        lambda context, wanted: cluster.drain(context.broker, wanted.timeout, undo=wanted.undo),
    ),
    Operation(
        "remove_member",
        "DELETE",
        "/cluster/member",
        "Take a dead node out of the cluster",
        RemoveMember,
        cluster.Removed,
        lambda context, wanted: cluster.remove(context.broker, wanted.node, force=wanted.force),
    ),
)
