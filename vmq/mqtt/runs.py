"""Runs of PUBLISH packets at QoS 0 without RETAIN on one topic, which are mostly handed on as they are."""

from vmq.mqtt.decoder import Decoder
from vmq.mqtt.message import Message


def split_run(frames: bytes, topic: bytes) -> list[Message]:
    """The messages of a run."""
    return [Message(topic, payload, 0, False) for payload in payloads_of(frames, topic)]


def payloads_of(frames: bytes, topic: bytes) -> list[bytes]:
    """Their payloads."""
    decoder = Decoder()
    decoder.feed(frames)
    skip = 2 + len(topic)
    payloads: list[bytes] = []
    while decoder.next():
        payloads.append(decoder.data[decoder.body + skip : decoder.end])
    return payloads
