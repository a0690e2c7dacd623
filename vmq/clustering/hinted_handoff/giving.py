"""Messages that waited for a node and go to sessions elsewhere instead: what each becomes, and when there is room."""

import logging
from collections.abc import Callable
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.directory.directory import Directory
from vmq.clustering.hinted_handoff.route_intervals import Place, RouteIntervals
from vmq.clustering.messages.codec import AnyMessage, MessageBatch, WireError, decode_parcel
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import Move, RedirectedPublish, SessionMessage

log = logging.getLogger("vmq.cluster")

#: The most clients that one message names.
STEP_CLIENTS: Final = 500


class Giving:
    """What one node gives to sessions, wherever they are.

    `STEP_BYTES` are given in one go.

    Args:
        outboxes: to the other nodes.
        directory: which node has which session.
        give: gives sessions what `RedirectedPublish` or `SessionBatch` says, wherever they are.
        share: gives a message of a node for a share group to a member of it.
    """

    STEP_BYTES = 256 * 1024

    def __init__(
        self,
        outboxes: Outboxes,
        directory: Directory,
        give: Callable[[Move], None],
        share: Callable[[str, RemotePublish], None],
    ) -> None:
        self._outboxes = outboxes
        self._directory = directory
        self.give = give
        self.share = share
        #: Messages that were given since the start, counted for each session.
        self.given = 0

    def find(
        self, message: AnyMessage, place: Place, stretches: RouteIntervals, known: KnownPeer
    ) -> list[RedirectedPublish]:
        """What a message on an outbox becomes for the sessions that it was for."""
        if not isinstance(message, RemotePublish) or message.group:
            return []
        return [
            RedirectedPublish(
                message.mountpoint,
                clients[at : at + STEP_CLIENTS],
                SessionMessage(message.topic, message.payload, qos),
            )
            for qos, clients in stretches.find(message, place, known).items()
            for at in range(0, len(clients), STEP_CLIENTS)
        ]

    def is_full(self, message: AnyMessage, found: list[RedirectedPublish]) -> bool:
        """Whether too much waits already for a node that some of it goes to, or may."""
        return any(map(self._outboxes.is_filling, self.receivers(message, found)))

    def receivers(self, message: AnyMessage, found: list[RedirectedPublish]) -> set[str]:
        """The nodes that some of it goes to, or may."""
        if isinstance(message, RemotePublish) and message.group:
            return set(self._outboxes.up)
        records = (
            self._directory.record(each.mountpoint, client)
            for each in found
            for client in each.clients
        )
        return {each.node for each in records if each}

    def give_each(self, found: list[RedirectedPublish]) -> int:
        """Gives them; returns how much that was."""
        size = 0
        for each in found:
            self.given += len(each.clients)
            self.give(each)
            size += len(each.entry.payload) + sum(map(len, each.clients))
        return size


def read_batch(raw: bytes) -> MessageBatch:
    """A batch of this broker's own; nothing of one that a damaged store spoiled."""
    try:
        return decode_parcel(raw)[0]
    except WireError as error:
        log.error("what waited for another node is lost: %s", error)
        return MessageBatch(1, 1, 1, [])
