"""Whether the sessions of a node are in slots, and whether its data directory fits that."""

from collections.abc import Mapping
from pathlib import Path

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.routing.routing import Routing
from vmq.clustering.running.service import SlotService
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode


def open_slots(
    options: ClusterOptions,
    records: Path,
    node: ClusterNode,
    core: Core,
    outboxes: Outboxes,
    routing: Routing,
    registries: Mapping[str, Registry],
    durability: str,
) -> SlotService | None:
    """The slots of a node that is not started yet; None: its sessions are those of nodes.

    The arguments are those of `SlotService`; `records` is the folder of the database.

    Raises:
        ClusterError: the data directory has sessions of the other kind.
        StorageError: the records cannot be read.
    """
    if options.sessions == "nodes":
        if records.exists():
            raise ClusterError(
                f'cluster.sessions is "nodes", and {records} has durable sessions in slots: set it to "slots", '
                "or begin with an empty data directory"
            )
        return None
    kept = sum(
        subscriber.queue.durable
        for registry in registries.values()
        for subscriber in registry.subscribers.values()
    )
    if kept:
        raise ClusterError(
            f'cluster.sessions is "slots", and the store has {kept} durable sessions of its node, which do not move '
            'into slots: set it to "nodes", or begin with an empty data directory'
        )
    where = None if durability == "memory" else records
    return SlotService(options, where, durability, node, core, outboxes, routing, registries)
