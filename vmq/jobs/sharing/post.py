"""The way in of messages between nodes: taken one by one, with what each is about."""

import logging

from vmq.jobs.sharing.messages import Present, decode
from vmq.jobs.sharing.outbox import LENGTH, JobOutbox
from vmq.jobs.sharing.replicas import JobReplicas

log = logging.getLogger("vmq.jobs")


class JobPost:
    """Between the links and the jobs of this node.

    Args:
        outbox: the way out.
    """

    def __init__(self, outbox: JobOutbox) -> None:
        self.outbox = outbox
        self.replicas: JobReplicas | None = None

    def greet(self, name: str) -> None:
        """Tells a member who this node is, and asks who it is."""
        if self.replicas is not None:
            self.outbox.greet(name, self.replicas.present(True))

    def greet_strangers(self, names: list[str]) -> None:
        """Greets those of some members that have not said who they are: a greeting, or its answer, may be lost."""
        if self.replicas is not None:
            peers = self.replicas.peers
            for name in names:
                if peers.numbers.get(name) not in peers.up:
                    self.greet(name)

    def receive(self, name: str, payload: bytes, now: float) -> None:
        """Takes what a member sent; the caller ends the pass.

        What comes of one that has not said who it is is lost: it says it again when it is greeted.
        """
        replicas = self.replicas
        if replicas is None:
            return
        peers = replicas.peers
        try:
            for raw in messages_of(payload):
                entry = decode(raw)
                if isinstance(entry, Present):
                    peers.check(name, entry.node)
                    self.outbox.names[entry.node] = name
                    replicas.on_present(name, entry, now)
                    continue
                node = peers.numbers.get(name, 0)
                if node in peers.up:
                    replicas.receive(node, entry, now)
        except ValueError as error:
            log.error("node %s: %s", name, error)


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
