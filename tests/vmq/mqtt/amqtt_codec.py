"""amqtt's codec, called without an event loop: a second opinion on what bytes mean."""

from collections.abc import Coroutine
from typing import Any

from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import MQTTFixedHeader


def run_now(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never really waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AssertionError("it waits")


def amqtt_read(raw: bytes) -> Any:
    """amqtt's packet object of one packet's bytes, all of which it read."""
    reader = BufferReader(raw)
    header = run_now(MQTTFixedHeader.from_stream(reader))
    packet = run_now(packet_class(header).from_stream(reader, fixed_header=header))
    assert run_now(reader.read()) == b""
    return packet


def amqtt_bytes(packet: Any) -> bytes:
    """One packet's bytes as amqtt writes them."""
    return bytes(packet.to_bytes())
