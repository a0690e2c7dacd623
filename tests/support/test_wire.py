"""The wire's own reading: what it splits off a buffer is whole, however the bytes come."""

import pytest

from tests.support import wire as mqtt


@pytest.mark.parametrize("chunk", (1, 2, 7, 1000))
def test_packets_are_split_off_any_chunks(chunk: int) -> None:
    publish = mqtt.publish_packet("a/b", bytes(300), qos=2, packet_id=77, retain=True, dup=True)
    sent = publish + mqtt.PINGREQ_BYTES + mqtt.pubrel_packet(515)
    buffer = bytearray()
    packets: list[mqtt.Packet] = []
    for start in range(0, len(sent), chunk):
        buffer += sent[start : start + chunk]
        packets += mqtt.split_packets(buffer)
    assert [packet.type for packet in packets] == [mqtt.PUBLISH, mqtt.PINGREQ, mqtt.PUBREL]
    found = packets[0]
    assert (found.topic, found.payload, found.qos) == ("a/b", bytes(300), 2)
    assert (found.retain, found.dup, found.packet_id) == (True, True, 77)
    assert packets[2].packet_id == 515
