"""Good packets in any pieces and by any way. (What is not good: tests/fuzz/target.py, and test_packet_states.)"""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.mqtt.strategies import cut
from tests.vmq.support import Client, House, watcher

#: Packets that a well-behaved client may send at any time.
GOOD = st.one_of(
    st.builds(
        lambda topic, payload, qos, pid, retain: mqtt.publish_packet(
            topic, payload, qos=qos, packet_id=pid if qos else None, retain=retain
        ),
        st.sampled_from(["a", "b", "a/b"]),
        st.binary(max_size=8),
        st.integers(0, 2),
        st.integers(1, 3),
        st.booleans(),
    ),
    st.builds(
        lambda pid, name, qos: mqtt.subscribe_packet(pid, (name, qos)),
        st.integers(1, 3),
        st.sampled_from(["a", "+", "#", "a/#", "$share/g/a"]),
        st.integers(0, 2),
    ),
    st.builds(mqtt.unsubscribe_packet, st.integers(1, 3), st.sampled_from(["a", "+", "#"])),
    st.builds(
        lambda build, pid: build(pid),
        st.sampled_from(
            [mqtt.puback_packet, mqtt.pubrec_packet, mqtt.pubrel_packet, mqtt.pubcomp_packet]
        ),
        st.integers(1, 25),
    ),
    st.just(mqtt.PINGREQ_BYTES),
)


@given(st.lists(GOOD, max_size=15), st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=150)
def test_what_is_answered_does_not_depend_on_how_the_stream_is_cut(
    packets: list[bytes], places: list[int]
) -> None:
    stream = mqtt.connect_packet("c") + b"".join(packets)
    outcomes = []
    for chunks in ([stream], cut(stream, places)):
        house = House()
        client = Client(house)
        for chunk in chunks:
            client.send(chunk)
        outcomes.append((client.take(), house.retained()))
    assert outcomes[0] == outcomes[1]


@given(st.lists(GOOD, max_size=15))
def test_the_way_past_the_hooks_leads_to_the_same_end(packets: list[bytes]) -> None:
    outcomes = []
    for listening in (False, True):
        house = House()
        if listening:
            house.core.hooks.on_publish = lambda *_arguments: None
            house.core.hooks.on_deliver = lambda *_arguments: None
            house.core.hooks.resolve()
        client, other = Client(house), watcher(house)
        client.send(mqtt.connect_packet("c"), *packets)
        outcomes.append((raw_of(client.take()), raw_of(other.take())))
    assert outcomes[0] == outcomes[1]


def raw_of(packets: list[mqtt.Packet]) -> list[bytes]:
    return [each.raw for each in packets]
