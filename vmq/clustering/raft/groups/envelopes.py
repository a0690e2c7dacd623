"""Envelopes of other nodes' groups, looked at before the machine gets them."""

import logging

from vmq.streams.log.frame import BadFrameError
from vmq.streams.replica.batches import check_batches
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.messages import AnyMessage, Append, Envelope, Mended

log = logging.getLogger("vmq.cluster")


def checked(peer: str, envelope: Envelope) -> Envelope:
    """What a node that speaks for itself says, without the messages whose batches are not what they say.

    Raises:
        MalformedError: it speaks for another one.
    """
    if envelope.sender.rpartition("@")[0] != peer:
        raise MalformedError(f"it speaks for {envelope.sender!r:.100}")
    # One group's bad batch must not keep from the others what came with it.
    envelope.items = [each for each in envelope.items if _is_good(peer, *each)]
    return envelope


def _is_good(peer: str, group: str, message: AnyMessage) -> bool:
    if isinstance(message, Append | Mended):
        try:
            check_batches(message.batches)
        except (MalformedError, BadFrameError) as error:
            log.warning("group=%s: what %s says is passed over: %s", group, peer, error)
            return False
    return True
