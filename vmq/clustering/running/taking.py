"""What other nodes say of slots, handed to the machines."""

import logging

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.slots import Beat

log = logging.getLogger("vmq.cluster")


def take_all(
    machines: SessionNode, now: int, peer: str, store: int, messages: list[NodeMessage]
) -> None:
    """Takes what one frame of a peer has, by this node's clock; one message that cannot be taken costs itself alone."""
    reach, own = machines.here.reach, machines.here.store
    known = reach.incarnation(store)
    try:
        machines.wake(now)
        for each in messages:
            _take(machines, peer, store, each)
        machines.finish()
        is_new = reach.incarnation(store) != known
        if is_new or any(isinstance(each, Beat) and own not in each.hears for each in messages):
            machines.beat(store)  # both are in reach before their next heartbeats
    except Exception:  # a defect here, which the peer must not pay for
        log.exception("cannot go on after what node %s says of slots", peer)


def _take(machines: SessionNode, peer: str, store: int, message: NodeMessage) -> None:
    try:
        machines.take(store, message)
    except Exception:  # a defect here, or in what it sent: what follows must not pay for it
        log.exception("cannot take a %s of node %s", type(message).__name__, peer)
