"""Last wills: what a client wants published if its connection ends without DISCONNECT."""

from vmq.mqtt.message import Message, Sourced
from vmq.mqtt.packets import Connect


def will_of(connect: Connect, client_id: str = "") -> Message | None:
    """The will that an accepted CONNECT leaves with the broker [MQTT-3.1.2-8]."""
    if not connect.has_will:
        return None
    topic, payload, qos = connect.will_topic, connect.will_payload, connect.will_qos
    if connect.will_retain and client_id:
        return Sourced(topic, payload, qos, True, client_id, connect.username)
    return Message(topic, payload, qos, connect.will_retain)
