"""What plugins see and change of what is published."""

from vmq_hooks.modifiers import PublishModifiers
from vmq_hooks.types import Message as SeenMessage

from vmq.mqtt.message import Message, Sourced
from vmq.mqtt.special import JOBS, canonical, is_served


def seen_message(topic: str, payload: bytes, qos: int, retain: bool) -> SeenMessage:
    """A message as plugins see it: a job without its options, and with what is to be done."""
    if not is_served(topic):
        return SeenMessage(topic, payload, qos, retain)
    seen = canonical(topic)
    if seen.startswith(JOBS):
        return SeenMessage(seen, payload, qos, False, "add")
    return SeenMessage(seen, payload, qos, retain)


def changed_message(message: Message, changes: PublishModifiers) -> Message:
    """A message as a plugin wants it; raises ProtocolError if its topic cannot be routed."""
    topic = message.topic if changes.topic is None else changes.topic.encode()
    payload = message.payload if changes.payload is None else changes.payload
    qos = message.qos if changes.qos is None else changes.qos
    retain = message.retain if changes.retain is None else changes.retain
    if isinstance(message, Sourced) and topic == message.topic and changes.mountpoint is None:
        return Sourced(topic, payload, qos, retain, message.client_id, message.user)
    # Whether its source may publish it cannot be asked again: it published something else.
    return Message(topic, payload, qos, retain)
