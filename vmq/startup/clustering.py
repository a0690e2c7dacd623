"""Has a broker be a node of its cluster, before clients are let in."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmq.clustering.node.discovery import Discovery
from vmq.clustering.node.initial_sync import catch_up
from vmq.clustering.node.node import Clustering
from vmq.runtime.errors import StartError
from vmq_cluster.errors import ClusterError

if TYPE_CHECKING:
    from vmq.startup.whole import WholeBroker


async def start_node(
    broker: "WholeBroker", folder: Path, turn_away: Callable[[str], None]
) -> Clustering:
    """Starts a broker's node, which finds the others and is found.

    Args:
        broker: has its parts.
        folder: where the node keeps what it knows.
        turn_away: ends all connections, for a reason.

    Raises:
        StartError: the node cannot start.
    """
    config, parts, streaming = broker.config, broker.parts, broker.streaming
    clustering = Clustering(
        config.cluster,
        folder,
        parts.core,
        parts.committer,
        parts.registries,
        parts.registry,
        lambda: broker.open_streams().catalog,
        parts.banning,
        turn_away=turn_away,
        nearby=None if broker.share is None else broker.share.sockets,
        durability=config.store.durability,
        data_dir=Path(config.broker.data_dir),
    )
    try:
        await clustering.start(None if streaming is None else streaming.catalog)
    except ClusterError as error:
        raise StartError(f"cluster: {error}") from error
    return clustering


async def catch_up_with(clustering: Clustering, broker: "WholeBroker") -> Coroutine[Any, Any, None]:
    """Has the node learn what the others know; returns the search for more of them, which goes on.

    Raises:
        StartError: the cluster does not have it.
    """
    try:
        await catch_up(clustering, {} if broker.share is None else broker.share.siblings)
    except ClusterError as error:
        raise StartError(f"cluster: {error}") from error
    await clustering.admission.look()
    clustering.admission.start()
    try:
        await broker.parts.host.open()
    except Exception as error:
        raise StartError(f"a plugin cannot start: {error}") from error
    return Discovery(clustering.joining, lambda: broker.plugins.only("discover_nodes")).run()
