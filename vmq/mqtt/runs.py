"""Runs of PUBLISH packets at QoS 0 without RETAIN on one topic, which are mostly handed on as they are."""

from typing import Final

from vmq.mqtt.decoder import Decoder
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError

#: The first byte of a PUBLISH at QoS 0 without RETAIN.
_QUICK: Final = 0x30
#: To compare one byte of all packets of a run costs as much as to look at so many packets.
_SLICE: Final = 6


def is_run(frames: bytes, topic: bytes, count: int) -> bool:
    """Whether these are so many PUBLISH packets on this topic."""
    if count == 1 and _is_one(frames, topic):
        return True
    topic_field = len(topic).to_bytes(2, "big") + topic
    decoder = Decoder()
    decoder.feed(frames)
    try:
        is_whole = decoder.next()
    except ProtocolError:
        return False
    if not is_whole or decoder.head != _QUICK or not decoder.is_shortest():
        return False
    if not frames.startswith(topic_field, decoder.body, decoder.end):
        return False
    head = decoder.body + len(topic_field)
    if decoder.end * count == len(frames) and head * _SLICE < count:
        return _repeats(frames, head, decoder.end)
    return decoder.run(topic_field) == count and decoder.end == len(frames)


def _is_one(frames: bytes, topic: bytes) -> bool:
    """Whether this is one short packet on this topic, which most are where they come one by one."""
    length, size = len(topic), len(frames)
    return (
        4 + length <= size < 130
        and frames[0] == _QUICK
        and frames[1] == size - 2
        and frames[2] == 0
        and frames[3] == length
        and frames.startswith(topic, 4)
    )


def _repeats(frames: bytes, head: int, length: int) -> bool:
    """Whether packets of one length all begin with what the first begins with."""
    count = len(frames) // length
    return all(frames[at::length] == frames[at : at + 1] * count for at in range(head))


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
