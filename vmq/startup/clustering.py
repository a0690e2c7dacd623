"""Has a broker be a node of its cluster, before clients are let in."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmq.clustering.node.discovery import Discovery
from vmq.clustering.node.initial_sync import catch_up
from vmq.clustering.node.node import Clustering
from vmq.config.options import Config
from vmq.plugins.manager import Plugins
from vmq.runtime.errors import StartError
from vmq.runtime.share import Share
from vmq.startup.parts import Parts
from vmq_cluster.errors import ClusterError

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog


async def start_node(
    config: Config,
    folder: Path,
    parts: Parts,
    catalog: "Catalog | None",
    open_catalog: "Callable[[], Catalog]",
    turn_away: Callable[[str], None],
    share: Share | None,
) -> Clustering:
    """Starts the node, which finds the others and is found.

    Args:
        config: the broker's.
        folder: where the node keeps what it knows.
        parts: of the broker.
        catalog: its streams, if it has any yet.
        open_catalog: opens them.
        turn_away: ends all connections, for a reason.
        share: the broker's part where several processes are one.

    Raises:
        StartError: the node cannot start.
    """
    clustering = Clustering(
        config.cluster,
        folder,
        parts.core,
        parts.committer,
        parts.registries,
        parts.registry,
        open_catalog,
        parts.banning,
        turn_away=turn_away,
        nearby=None if share is None else share.sockets,
        durability=config.store.durability,
        data_dir=Path(config.broker.data_dir),
    )
    try:
        await clustering.start(catalog)
    except ClusterError as error:
        raise StartError(f"cluster: {error}") from error
    parts.damage.ghosts = clustering.mover.ghosts
    return clustering


async def catch_up_with(
    clustering: Clustering, plugins: Plugins, share: Share | None
) -> Coroutine[Any, Any, None]:
    """Has the node learn what the others know; returns the search for more of them, which goes on.

    Raises:
        StartError: the cluster does not have it.
    """
    try:
        await catch_up(clustering, {} if share is None else share.siblings)
    except ClusterError as error:
        raise StartError(f"cluster: {error}") from error
    await clustering.admission.look()
    clustering.admission.start()
    return Discovery(clustering.joining, lambda: plugins.only("discover_nodes")).run()
