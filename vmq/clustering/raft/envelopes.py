"""Envelopes of other nodes' groups, looked at before the machine gets them."""

from vmq.streams.replica.batches import check_batches
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.messages import Append, Envelope, Mended


def checked(peer: str, envelope: Envelope) -> Envelope:
    """An envelope of a node that speaks for itself, with batches that are what they say.

    Raises:
        MalformedError: it speaks for another one.
        BadFrameError: a batch is not.
    """
    if envelope.sender.rpartition("@")[0] != peer:
        raise MalformedError(f"it speaks for {envelope.sender!r:.100}")
    for _, message in envelope.items:
        if isinstance(message, Append | Mended):
            check_batches(message.batches)
    return envelope
