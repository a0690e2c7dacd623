"""The way in of messages between nodes: taken one by one, with what each is about."""

import logging
from typing import Final

from vmq.jobs.sharing.messages import Present, decode
from vmq.jobs.sharing.outbox import LENGTH, JobOutbox
from vmq.jobs.sharing.replicas import JobReplicas

log = logging.getLogger("vmq.jobs")

#: Seconds for the answer to a greeting, before a member of which more comes is greeted again.
_ANSWER: Final = 0.5


class JobPost:
    """Between the links and the jobs of this node.

    Args:
        outbox: the way out.
    """

    def __init__(self, outbox: JobOutbox) -> None:
        self.outbox = outbox
        self.replicas: JobReplicas | None = None
        #: Members that sent something before they said who they are, and until when they may answer.
        self.greeted: dict[str, float] = {}

    def greet(self, name: str) -> None:
        """Tells a member who this node is, and asks who it is, unless that is known."""
        replicas = self.replicas
        if replicas is not None:
            self.outbox.greet(name, replicas.present(not replicas.peers.is_up(name)))

    def receive(self, name: str, payload: bytes, now: float) -> None:
        """Takes what a member sent; the caller ends the pass."""
        replicas = self.replicas
        if replicas is None:
            return
        peers = replicas.peers
        is_unheard = False
        try:
            for raw in messages_of(payload):
                entry = decode(raw)
                if isinstance(entry, Present):
                    peers.check(name, entry.node)
                    self.outbox.names[entry.node] = name
                    self.greeted.pop(name, None)
                    replicas.on_present(name, entry, now)
                elif peers.is_up(name):
                    replicas.receive(peers.numbers[name], entry, now)
                else:
                    is_unheard = True
        except ValueError as error:
            log.error("node %s: %s", name, error)
        if is_unheard and not peers.is_up(name) and now >= self.greeted.get(name, now):
            self.greeted[name] = now + _ANSWER
            self.greet(name)


def messages_of(payload: bytes) -> list[bytes]:
    """The messages of a payload.

    Raises:
        ValueError: it is none.
    """
    found: list[bytes] = []
    at = 0
    while at < len(payload):
        end = at + 4
        if end > len(payload):
            raise ValueError("a payload about jobs ends within a length")
        size = LENGTH.unpack_from(payload, at)[0]
        if end + size > len(payload):
            raise ValueError("a payload about jobs ends within a message")
        at = end + size
        found.append(payload[end:at])
    return found
