"""What an earlier life of a node, or of a broker alone, has of sessions comes into slots before anybody is served."""

from collections.abc import Mapping

from vmq.clustering.directory.directory import Directory
from vmq.clustering.running.migration import Migration
from vmq.clustering.running.service import SlotService
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.store.store import StoreError
from vmq_cluster.errors import ClusterError


def migrate(
    slots: SlotService, core: Core, registries: Mapping[str, Registry], directory: Directory
) -> Migration:
    """Has slots take what the broker's store has of sessions.

    Raises:
        ClusterError: it cannot be read or written.
    """
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
