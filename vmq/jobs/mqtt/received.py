"""Packet ids of QoS 2, as jobs know them.

What a session knows as received is in the log of jobs (`JobService.go_before`) and on its hosts: that goes with the
session, to other nodes and into later lives of the broker. Between the job and that knowledge the packet id is a key of
the job on this node. A session in a slot knows the packet id at once, with the id of the job
(`vmq.jobs.mqtt.arriving`).
"""

from collections.abc import Callable
from typing import Any


def received_key(client: Any, packet_id: int) -> bytes:
    """A packet id of QoS 2, as a key: of a durable session, whose number no other one gets."""
    return session_key(client.queue_of().session) + packet_id.to_bytes(2, "big")


def session_key(session: bytes) -> bytes:
    """How the keys of a durable session's packet ids begin."""
    return b"\0" + session


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
