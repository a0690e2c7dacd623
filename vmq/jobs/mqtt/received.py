"""Packet ids of QoS 2, as jobs know them.

What a session knows as received is in the log of jobs (`JobService.go_before`) and on its hosts: that goes with the
session, to other nodes and into later lives of the broker. Between the job and that knowledge the packet id is a key of
the job on this node. A session in a slot knows the packet id at once, and counts it while this node is there: what goes
with the node before it is on its hosts comes again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from vmq.core.trie import Route
from vmq.mqtt.message import Message
from vmq.protocol.front_queue import FrontQueue


def received_key(client: Any, packet_id: int) -> bytes:
    """A packet id of QoS 2, as a key: of a durable session, whose number no other one gets."""
    return session_key(client.queue_of().session) + packet_id.to_bytes(2, "big")


def session_key(session: bytes) -> bytes:
    """How the keys of a durable session's packet ids begin."""
    return b"\0" + session


def has_come(client: Any, packet_id: int, message: Message, topic: str) -> bool:
    """Whether a session has a QoS 2 message already, by this connection or an earlier one, at whichever node."""
    if client.received_ids().has(packet_id):
        return True
    queue = client.queue_of()
    if not queue.came_before(packet_id, message, client.decoder.head & 8 != 0):
        return False
    client.remember(Route(message.topic, topic), packet_id)
    queue.on_routed(message, client)
    return True


def remembering(client: Any, packet_id: int) -> Callable[[], None]:
    """What has a durable session know that a packet id came, its client being there or not.

    Not if the session has ended by then, or is another node's: that is told of none whose job is on its way.
    """
    core, registry, subscriber = client.core, client.registry, client.subscriber

    def remember() -> None:
        if registry.subscribers.get(subscriber.client_id) is subscriber:
            received = subscriber.received_ids(core)
            if not received.has(packet_id):
                received.add(packet_id)
                core.store.put_received(subscriber.queue.session, packet_id)

    return remember


def settling(client: Any, packet_id: int, message: Message) -> Callable[[], None] | None:
    """What has a session in a slot count a packet id whatever becomes of this node; None: it is in none.

    The answers of this pass wait for that.
    """
    queue = client.queue_of()
    if not isinstance(queue, FrontQueue):
        return None
    wait = client.output.confirmations()
    wait.expect()
    return partial(queue.port.settle, queue.number, packet_id, message, wait)


def forget(client: Any, packet_id: int, then: Callable[[], None]) -> None:
    """Calls `then` when a session takes a packet id for new that came to nothing: else it would not be added again."""
    queue = client.queue_of()
    if isinstance(queue, FrontQueue):
        queue.port.release(queue.number, packet_id, then)
    else:
        then()
