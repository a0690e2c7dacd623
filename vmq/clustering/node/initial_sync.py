"""A node that starts hears what others know before anybody is let in.

Another node may have sessions of this one since it was here last, and a CONNECT would make what is left of them the
newer ones; and what clients published would miss whoever subscribed elsewhere.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vmq.clustering.directory.heard import LOOK, has_heard

if TYPE_CHECKING:
    from vmq.clustering.node.node import Clustering

log = logging.getLogger("vmq.cluster")


async def catch_up(clustering: "Clustering", siblings: Mapping[str, str]) -> bool:
    """Returns when a node has heard what others know; whether that was within `cluster.sync_timeout`.

    That the others refuse it its name is said as soon as they do. It is waited all the same: the node that has the name
    may have died just now.

    Args:
        clustering: the node, which has started.
        siblings: names and addresses of nodes that become members and are all waited for. Of other members, those that
            are up are, and one at least.

    Raises:
        ClusterError: the node does not run any more.
    """
    for name, address in siblings.items():
        node = clustering.node
        # It may have moved since they last met, with the folder that its address is in.
        if not node.machine.membership.belongs or node.members.get(name) != address:
            node.join(address)
    loop = asyncio.get_running_loop()
    timeout = clustering.options.sync_timeout
    deadline = loop.time() + timeout
    said = ""
    while (reason := clustering.joining.why_nameless()) or not has_heard(
        clustering.node, siblings.keys()
    ):
        if loop.time() >= deadline:
            await _tell_who_is_silent(clustering, timeout)
            return False
        if reason and reason != said:
            said = reason
            log.warning("not let in: %s", reason)
        await asyncio.sleep(LOOK)
    return True


async def _tell_who_is_silent(clustering: "Clustering", seconds: float) -> None:
    node = clustering.node
    log.warning("not in touch with others after %g s: it goes on trying", seconds)
    for name, address in node.members.items():
        if name not in (node.name, *node.up):
            log.warning("node silent name=%s address=%s", name, address)
    for address in node.machine.contacts:
        reason = await clustering.joining.why_not(address)
        log.warning('not joined address=%s reason="%s": it is asked on', address, reason)
