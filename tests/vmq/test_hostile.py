"""Peers that send anything: random bytes, impossible packets, good ones in any pieces."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.mqtt.strategies import cut
from tests.vmq.support import Client, House, stored_house, watcher


@contextmanager
def no_internal_errors() -> Iterator[None]:
    """Nothing is logged as a defect of the broker's own."""
    seen: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(self.format(record))

    log, handler = logging.getLogger("vmq"), Listener(logging.ERROR)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
    assert seen == []


IDS = st.integers(0, 3)
NAMES = st.sampled_from(["a", "b", "a/b", "$SYS/x", "", "+", "a/#", "$share/g/a", "\ufffe"])
QOS = st.integers(0, 3)
PACKETS = st.one_of(
    st.builds(
        lambda topic, payload, qos, pid, retain, dup: mqtt.publish_packet(
            topic, payload, qos=qos, packet_id=pid if qos else None, retain=retain, dup=dup
        ),
        NAMES,
        st.binary(max_size=8),
        QOS,
        IDS,
        st.booleans(),
        st.booleans(),
    ),
    st.builds(lambda pid, name, qos: mqtt.subscribe_packet(pid, (name, qos)), IDS, NAMES, QOS),
    st.builds(mqtt.unsubscribe_packet, IDS, NAMES),
    st.builds(
        lambda build, pid: build(pid),
        st.sampled_from(
            [mqtt.puback_packet, mqtt.pubrec_packet, mqtt.pubrel_packet, mqtt.pubcomp_packet]
        ),
        st.integers(0, 25),
    ),
    st.just(mqtt.PINGREQ_BYTES),
    st.builds(mqtt.packet, st.integers(0, 255), st.binary(max_size=12)),
)
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


@st.composite
def hostile_streams(draw: st.DrawFn) -> bytes:
    """Packets in any order, most of them possible, with some bytes changed."""
    start = draw(st.sampled_from([mqtt.connect_packet("c"), mqtt.connect_packet("c"), b""]))
    stream = bytearray(start + b"".join(draw(st.lists(PACKETS, max_size=12))))
    for _ in range(draw(st.integers(0, 3)) if stream else 0):
        stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
    return bytes(stream)


@given(st.one_of(hostile_streams(), st.binary(max_size=60)), st.lists(st.integers(0, 300)))
@settings(max_examples=400)
@example(mqtt.connect_packet("c") + b"\x30\x80\x80\x80\x80\x01", [])
def test_nothing_that_a_peer_sends_raises_or_touches_others(
    stream: bytes, places: list[int]
) -> None:
    house = House()
    bystander = house.client("bystander")
    client = Client(house)
    with no_internal_errors():
        for chunk in cut(stream, places):
            client.connection.data_received(chunk)
            house.settle()
        client.take()
        if client.connection.closing:
            assert client.is_closed()
            client.connection.data_received(mqtt.connect_packet("c") + mqtt.PINGREQ_BYTES)
            house.settle()
            client.expect()
            assert "c" not in house.registry.subscribers
        client.lose()
        assert set(house.registry.subscribers) == {"bystander"}
        assert house.registry.trie.root.is_empty()
    bystander.ping()


@given(hostile_streams(), hostile_streams())
@settings(max_examples=40)
def test_a_hostile_durable_session_can_be_resumed(first: bytes, second: bytes) -> None:
    with (
        TemporaryDirectory() as folder,
        stored_house(Path(folder)) as house,
        no_internal_errors(),
    ):
        for stream in (first, second):
            client = Client(house)
            client.send(mqtt.connect_packet("d", clean=False))
            client.send(stream)
            client.lose()
            house.restart()
        assert house.client("d", clean=False).take() is not None


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
