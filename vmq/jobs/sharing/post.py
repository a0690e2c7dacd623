"""The way of messages between nodes: gathered in a pass, sent when what the pass did is safe, taken one by one.

What is sent in a pass to one node is one payload: each message with its length in front.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final

from vmq.jobs.calls import NodeOutput
from vmq.jobs.commit import JobCommit
from vmq.jobs.sharing.messages import AnyEntry, Present, decode, encode
from vmq.jobs.sharing.replicas import JobReplicas

log = logging.getLogger("vmq.jobs")

_LENGTH: Final[Any] = Struct("<I")
#: Bytes of one payload; one message alone may be longer.
_MOST: Final = 1 << 18


class JobPost:
    """Between the jobs of this node and the links.

    Args:
        commit: makes a pass safe.
        transmit: gives a node, by its name in the cluster, a payload, which may be lost.
    """

    def __init__(self, commit: JobCommit, transmit: Callable[[str, bytes], None]) -> None:
        self.commit = commit
        self.transmit = transmit
        self.replicas: JobReplicas | None = None
        self.outputs: dict[str, NodeOutput] = {}
        self.names: dict[int, str] = {}
        #: What was sent last, and as it is sent: mostly several nodes get the same.
        self.last: AnyEntry | None = None
        self.last_piece = b""

    def send(self, node: int, entry: AnyEntry) -> None:
        """Sends a message to a node at the end of this pass."""
        name = self.names.get(node)
        if name is not None:
            self._put(name, entry)

    def greet(self, name: str) -> None:
        """Tells a member who this node is, and asks who it is."""
        if self.replicas is not None:
            self._put(name, self.replicas.present(True))

    def _put(self, name: str, entry: AnyEntry) -> None:
        output = self.outputs.get(name)
        if output is None:
            output = self.outputs[name] = NodeOutput(partial(self._post, name))
        if entry is not self.last:
            raw = encode(entry)
            self.last, self.last_piece = entry, _LENGTH.pack(len(raw)) + raw
        output.pieces.append(self.last_piece)
        if not output.is_touched:
            self.commit.touch(output)

    def _post(self, name: str, data: bytes) -> None:
        for payload in cut(data):
            self.transmit(name, payload)

    def receive(self, name: str, payload: bytes, now: float) -> None:
        """Takes what a member sent; the caller ends the pass."""
        replicas = self.replicas
        if replicas is None:
            return
        peers = replicas.peers
        try:
            for raw in messages_of(payload):
                entry = decode(raw)
                if isinstance(entry, Present):
                    self.names[entry.node] = name
                    replicas.on_present(name, entry, now)
                    continue
                node = peers.numbers.get(name, 0)
                if node in peers.up:
                    replicas.receive(node, entry, now)
                else:
                    self.greet(name)
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
        size = _LENGTH.unpack_from(payload, at)[0]
        if end + size > len(payload):
            raise ValueError("a payload about jobs ends within a message")
        at = end + size
        found.append(payload[end:at])
    return found


def cut(data: bytes) -> Iterator[bytes]:
    """Messages in payloads that are not too long."""
    if len(data) <= _MOST:
        yield data
        return
    start = at = 0
    while at < len(data):
        end = at + 4 + _LENGTH.unpack_from(data, at)[0]
        if end - start > _MOST and at > start:
            yield data[start:at]
            start = at
        at = end
    yield data[start:]
