"""Last wills: what a client wants published if its connection ends without DISCONNECT."""

from vmq.message import Message
from vmq.mqtt.packets import Connect


def will_of(connect: Connect) -> Message | None:
    """The will that an accepted CONNECT leaves with the broker [MQTT-3.1.2-8]."""
    if not connect.has_will:
        return None
    return Message(connect.will_topic, connect.will_payload, connect.will_qos, connect.will_retain)
