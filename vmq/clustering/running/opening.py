"""Whether the sessions of a node are in slots, and whether its data directory fits that."""

from collections.abc import Mapping
from pathlib import Path

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.routing.routing import Routing
from vmq.clustering.running.migration import Migration
from vmq.clustering.running.service import SlotService
from vmq.clustering.streams.replicas import Replicas
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.store.store import StoreError
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode


def open_slots(
    options: ClusterOptions,
    records: Path,
    durability: str,
    node: ClusterNode,
    core: Core,
    outboxes: Outboxes,
    routing: Routing,
    registries: Mapping[str, Registry],
    replicas: Replicas,
) -> SlotService | None:
    """The slots of a node that is not started yet; None: its sessions are those of nodes.

    The arguments are those of `SlotService`; `records` is the folder of the database.

    Raises:
        ClusterError: the data directory has sessions in slots, and they are to be nodes'.
        StorageError: the records cannot be read.
    """
    if options.sessions == "nodes":
        if records.exists():
            raise ClusterError(
                f'cluster.sessions is "nodes", and {records} has durable sessions in slots: set it to "slots", '
                "or begin with an empty data directory"
            )
        return None
    where = None if durability == "memory" else records
    parts = node, core, outboxes, routing, registries, replicas
    return SlotService(options, where, durability, *parts)


def migrate(
    slots: SlotService | None,
    core: Core,
    registries: Mapping[str, Registry],
    directory: Directory,
) -> Migration | None:
    """Has slots, if there are any, take what the broker's store has of sessions of nodes; nobody is served before.

    Raises:
        ClusterError: it cannot be read or written.
    """
    if slots is None:
        return None
    core.sessions = directory
    machine, has_copies = slots.machines.slots, slots.here.replicas > 1
    migration = Migration(
        slots.name, slots.disk, machine, core, registries, directory, slots.say_routes, has_copies
    )
    try:
        migration.run()
    except StoreError as error:
        raise ClusterError(f"sessions cannot come into slots: {error}") from None
    return migration


async def end_migration(migration: Migration | None, committer: Committer) -> None:
    """No client may be let in before what slots took is out of the broker's store."""
    if migration is not None:
        await committer.finish_all()
        migration.finish()
