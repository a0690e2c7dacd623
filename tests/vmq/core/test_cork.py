"""Writes that are held back within a turn: which, for how long, and that nothing is lost or overtaken by it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.support import Client, House
from vmq.core.context import CoreOptions
from vmq.core.cork import CLOSE, LARGEST, LONGEST, SPARED

#: Seconds that a pass and its write may take.
STEP = 20e-6


def corking_house(path: Path | None = None) -> House:
    """A house whose turns a test ends itself; a second has passed since anything was written."""
    house = House(path, change=no_window)
    house.core.cork.close = CLOSE
    return house


@pytest.fixture
def house() -> House:
    return corking_house()


def no_window(options: CoreOptions) -> None:
    options.max_inflight_messages = 0


def subscriber(house: House, qos: int = 0, client_id: str = "subscriber") -> Client:
    begin_turn(house)
    client = house.client(client_id)
    begin_turn(house)
    client.subscribe(("t/#", qos))
    begin_turn(house)
    return client


def begin_turn(house: House) -> None:
    house.settle()
    house.patient = True
    house.clock.advance(1.0)


def publish(client: Client, payload: bytes, qos: int = 0) -> None:
    """One pass of the broker; then time passes."""
    packet_id = client.next_id() if qos else None
    client.send(mqtt.publish_packet("t/a", payload, qos=qos, packet_id=packet_id))
    client.house.clock.advance(STEP)


def test_the_first_write_goes_at_once_and_the_others_of_the_turn_are_one(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    before = reader.transport.writes
    for number in range(5):
        publish(device, b"%d" % number)
    assert reader.payloads() == [b"0"]
    assert reader.transport.writes == before + 1
    assert house.turn()
    assert reader.payloads() == [b"1", b"2", b"3", b"4"]
    assert reader.transport.writes == before + 2
    assert not house.turn(), "a turn too many"


def test_writes_that_are_apart_go_at_once_and_ask_for_no_turn(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    for number in range(3):
        publish(device, b"%d" % number)
        house.clock.advance(CLOSE)
        assert reader.payloads() == [b"%d" % number]
    assert not house.turn()


def test_after_a_write_that_was_held_back_for_nothing_the_next_ones_are_not(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    publish(device, b"first")
    publish(device, b"for nothing")
    assert house.turn()
    assert reader.payloads() == [b"first", b"for nothing"]
    for number in range(SPARED):
        publish(device, b"%d" % number)
        assert reader.payloads() == [b"%d" % number]
    assert not house.turn(), "turns cost as much as writes"
    publish(device, b"tried again")
    publish(device, b"and good")
    assert reader.payloads() == []
    house.turn()
    assert reader.payloads() == [b"tried again", b"and good"]
    publish(device, b"so again")
    assert reader.payloads() == []


def test_every_peer_is_judged_by_itself(house: House) -> None:
    device, first, second = house.client("device"), subscriber(house), house.client("second")
    begin_turn(house)
    second.subscribe(("t/b", 0))
    begin_turn(house)
    publish(device, b"1")
    publish(device, b"2")
    device.send(mqtt.publish_packet("t/b", b"3"))
    assert first.payloads() == [b"1"]
    assert second.payloads() == [b"3"]
    house.turn()
    assert first.payloads() == [b"2", b"3"]


def test_nothing_is_held_back_longer_than_the_longest(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    publish(device, b"first")
    publish(device, b"held")
    since = house.clock.now - STEP
    assert reader.payloads() == [b"first"]
    got: list[bytes] = []
    while not got:
        assert house.clock.now <= since + LONGEST + STEP
        house.core.cork.close = 0.0  # so that only the end of the time can have it written
        device.send(mqtt.PINGREQ_BYTES)  # a pass that has nothing for the reader
        house.clock.advance(STEP)
        got = reader.payloads()
    assert got == [b"held"]
    assert house.clock.now > since + LONGEST, "too early: it could have been more"


def test_a_turn_that_goes_on_writes_again_and_again(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    before = reader.transport.writes
    for number in range(100):
        publish(device, b"%d" % number)
    house.turn()
    assert reader.payloads() == [b"%d" % number for number in range(100)]
    most = 2 + 100 * STEP / LONGEST
    assert 2 < reader.transport.writes - before <= most + 1


def test_no_more_is_held_back_than_the_largest(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    publish(device, b"first")
    publish(device, bytes(LARGEST - 100))
    assert reader.payloads() == [b"first"]
    publish(device, bytes(100))
    assert [len(each) for each in reader.payloads()] == [LARGEST - 100, 100]
    publish(device, b"last")
    assert reader.payloads() == []
    house.turn()
    assert reader.payloads() == [b"last"]


def test_a_close_writes_first_what_is_held_back(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    for number in range(3):
        publish(device, b"%d" % number)
    reader.connection.close("for a test")
    house.core.outbox.flush()
    assert reader.transport.closed
    assert reader.payloads() == [b"0", b"1", b"2"]
    house.turn()  # the transport refuses what is written after its close


def test_the_pass_that_closes_is_not_held_back(house: House) -> None:
    client = Client(house)
    house.patient = True
    client.send(mqtt.connect_packet("c"))
    client.send(mqtt.PINGREQ_BYTES)
    client.send(mqtt.PINGREQ_BYTES + b"\xe0\0")
    assert client.take_bytes() == b"\x20\x02\0\0" + mqtt.PINGRESP_BYTES * 2
    assert client.transport.closed


def test_a_peer_that_sends_no_more_has_what_is_held_back_for_it(
    house: House, client: Client
) -> None:
    begin_turn(house)
    client.send(mqtt.PINGREQ_BYTES)
    client.send(mqtt.PINGREQ_BYTES)
    assert client.take_bytes() == mqtt.PINGRESP_BYTES
    assert not client.connection.eof_received(), "the transport closes itself now"
    assert client.take_bytes() == mqtt.PINGRESP_BYTES
    client.lose()
    house.turn()
    assert client.take_bytes() == b""


def test_what_is_held_back_for_a_peer_that_is_gone_goes_nowhere(house: House) -> None:
    device, reader = house.client("device"), subscriber(house)
    publish(device, b"1")
    publish(device, b"2")
    assert reader.payloads() == [b"1"]
    reader.lose()
    house.turn()
    assert reader.take_bytes() == b""
    publish(device, b"3")
    house.turn()


def test_a_transport_that_raises_is_its_own_end_alone(
    monkeypatch: pytest.MonkeyPatch, house: House
) -> None:
    device, first, second = (
        house.client("device"),
        subscriber(house),
        subscriber(house, client_id="second"),
    )
    publish(device, b"1")
    publish(device, b"2")

    def fail(_data: bytes) -> None:
        raise RuntimeError("for a test")

    monkeypatch.setattr(first.transport, "write", fail)
    house.turn()
    assert first.connection.closing
    assert second.payloads() == [b"1", b"2"]


def test_acknowledgements_wait_for_their_commit_and_keep_their_order(tmp_path: Path) -> None:
    house = corking_house(tmp_path)
    keeper = house.subscriber("keeper", ("t/#", 1), clean=False)
    keeper.disconnect()
    device = house.client("device")
    begin_turn(house)
    device.send(mqtt.PINGREQ_BYTES)
    house.clock.advance(STEP)
    publish(device, b"1", qos=1)
    first = device.last_id
    device.send(mqtt.PINGREQ_BYTES)
    publish(device, b"2", qos=1)
    assert device.take_bytes() == mqtt.PINGRESP_BYTES
    house.turn()
    assert device.take_bytes() == mqtt.PINGRESP_BYTES, "acknowledged before the commit"
    house.commit()
    house.turn()
    assert device.take_bytes() == mqtt.puback_packet(first) + mqtt.puback_packet(device.last_id)
    house.close()


def test_the_limit_of_unread_replies_counts_what_is_held_back(house: House, client: Client) -> None:
    client.connection.listener.reply_limit = 10
    begin_turn(house)
    client.block()
    client.transport.buffered = 8
    client.send(mqtt.PINGREQ_BYTES)
    assert client.transport.reading
    client.send(mqtt.PINGREQ_BYTES)
    assert client.connection.corked_bytes == len(mqtt.PINGRESP_BYTES)
    assert client.transport.reading
    client.send(mqtt.PINGREQ_BYTES)
    assert not client.transport.reading


Acts = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.integers(0, 300), st.just(0)),
        st.tuples(st.just("turn"), st.just(0), st.just(0)),
        st.tuples(st.just("commit"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(Acts)
def test_order_holds_and_nothing_is_held_back_beyond_the_bounds(
    acts: list[tuple[str, int, int]],
) -> None:
    house = corking_house()
    devices = [house.client(f"device-{number}") for number in range(3)]
    readers = [subscriber(house, qos, f"reader-{qos}") for qos in (0, 1)]
    begin_turn(house)
    sent: list[bytes] = []
    got: list[list[bytes]] = [[], []]
    #: When each reader's oldest message came that it has not.
    missing: list[list[float]] = [[], []]
    for act, number, qos in acts:
        if act == "wait":
            house.clock.advance(number * 1e-6)
            continue
        if act == "turn":
            house.turn()
        elif act == "commit":
            house.commit()
        else:
            sent.append(b"%d" % len(sent))
            for waits in missing:
                waits.append(house.clock.now)
            publish(devices[number], sent[-1], qos)
        for reader, have, waits in zip(readers, got, missing, strict=True):
            new = reader.payloads()
            have.extend(new)
            del waits[: len(new)]
            assert have == sent[: len(have)]
            if act == "turn":
                assert not waits
            if act == "publish" and waits:
                assert house.clock.now - STEP - waits[0] < LONGEST
    house.turn()
    for reader, have in zip(readers, got, strict=True):
        assert have + reader.payloads() == sent


def test_a_house_without_turns_holds_nothing_back(house: House) -> None:
    house.core.call_soon = lambda call: call()
    device, reader = house.client("device"), subscriber(house)
    house.clock.advance(-1.0)
    for number in range(3):
        publish(device, b"%d" % number)
        assert reader.payloads() == [b"%d" % number]
