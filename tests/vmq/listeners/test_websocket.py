"""The WebSocket listener's pieces, against the sans-I/O client of the `websockets` library."""

import logging
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.wire import (
    PINGREQ_BYTES,
    PINGRESP_BYTES,
    connect_packet,
    publish_packet,
    subscribe_packet,
)
from tests.vmq.listeners.web_client import MAX_SIZE, WebClient
from tests.vmq.memory_transport import MemoryTransport
from tests.vmq.mqtt.strategies import cut
from tests.vmq.support import House
from vmq.core.cork import CLOSE
from vmq.listeners.websocket import FRAME_SIZE, FRAMES_A_PASS, WebSocket
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext
from vmq.protocol.session import PACKETS_A_PASS


@pytest.fixture
def client(house: House) -> WebClient:
    return WebClient(house)


# --- the upgrade


@pytest.mark.parametrize("url", ("ws://broker/", "ws://broker/other", "ws://broker/mqtt/"))
def test_another_path_is_not_found(house: House, url: str) -> None:
    client = WebClient(house, url=url)
    assert client.status == HTTPStatus.NOT_FOUND
    assert client.transport.closed


def test_a_query_behind_the_path_is_ignored(house: House) -> None:
    assert WebClient(house, url="ws://broker/mqtt?x=1").status == 101


def test_the_path_is_configured(house: House) -> None:
    assert WebClient(house, url="ws://broker/", path="/").status == 101


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    (
        (b"GET /mqtt HTTP/1.1\r\nHost: broker\r\n\r\n", "WebSocket failed: "),
        (b"POST /mqtt HTTP/1.1\r\nHost: broker\r\n\r\n", "WebSocket failed: "),
        (b"\xff" * 200 + b"\r\n", "WebSocket failed: "),
        (connect_packet("c"), "WebSocket failed: MQTT instead of HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "WebSocket failed: TLS instead of HTTP"),
    ),
)
def test_what_is_no_upgrade_ends_the_connection(
    house: House, request_bytes: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vmq.session")
    transport = MemoryTransport()
    connection = Connection(house.registry, True, "id", ListenerContext(print, print))
    socket = WebSocket(connection, "/mqtt", MAX_SIZE)
    socket.connection_made(transport)
    socket.data_received(request_bytes)
    house.settle()
    assert transport.closed
    assert connection.closing
    socket.connection_lost(None)
    assert house.registry.subscribers == {}
    assert f'reason="{reason}' in caplog.text


# --- packets in frames


@given(st.lists(st.integers(0, 100), max_size=6), st.lists(st.integers(0, 200), max_size=6))
def test_packets_and_frames_and_chunks_need_not_line_up(
    frame_ends: list[int], chunk_ends: list[int]
) -> None:
    client = WebClient(House())
    stream = connect_packet("c") + subscribe_packet(1, ("a", 0)) + publish_packet("a", b"x") * 3
    for frame in cut(stream, frame_ends):
        client.protocol.send_binary(frame)
    client.push(chunk_ends)
    assert [each.raw for each in client.take()][2:] == [publish_packet("a", b"x")] * 3


def test_a_large_write_goes_out_in_frames_that_clients_accept(
    house: House, client: WebClient
) -> None:
    client.send(connect_packet("c"), subscribe_packet(1, ("a", 0)))
    client.take()
    house.publish("a", b"x" * (2 * FRAME_SIZE))
    client.pull()
    assert max(len(each.data) for each in client.frames) == FRAME_SIZE
    assert [len(each.payload) for each in client.take()] == [2 * FRAME_SIZE]


def test_a_message_of_one_frame_passes_the_library_by(
    house: House, client: WebClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes ten times as long."""
    client.send(connect_packet("c"), subscribe_packet(1, ("a", 0)))
    client.take()
    for name in ("receive_data", "send_binary"):
        monkeypatch.setattr(client.socket.protocol, name, None)
    packets = [publish_packet("a", b"x" * size) for size in (1, 200)]
    client.send(*packets)
    assert [each.raw for each in client.take()] == packets


# --- passes


def test_a_pass_reads_so_many_frames_and_answers_the_last_ping(house: House) -> None:
    client = WebClient(house)
    for number in range(2 * FRAMES_A_PASS + 5):
        client.protocol.send_ping(b"%d" % number)
    client.socket.data_received(b"".join(client.protocol.data_to_send()))
    writes = [client.transport.writes]
    while house.turn():
        writes.append(client.transport.writes)
    client.pull()
    assert [bytes(each.data) for each in client.frames] == [
        b"%d" % number
        for number in (FRAMES_A_PASS - 1, 2 * FRAMES_A_PASS - 1, 2 * FRAMES_A_PASS + 4)
    ]
    assert writes == [2, 3, 4]  # the first was the answer to the upgrade


def test_a_peer_that_takes_nothing_has_its_pings_answered_when_it_does(client: WebClient) -> None:
    client.socket.pause_writing()
    for payload in (b"1", b"2"):
        client.protocol.send_ping(payload)
        client.push()
    assert client.frames == []
    client.socket.resume_writing()
    client.pull()
    assert [bytes(each.data) for each in client.frames] == [b"2"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_frames_with_nothing_in_them_are_no_sign_of_life(
    house: House, client: WebClient, is_whole: bool
) -> None:
    client.send(connect_packet("c"))
    before = client.connection.seen
    house.clock.advance(1)
    client.protocol.send_binary(b"", fin=is_whole)
    client.push()
    assert client.connection.seen == before
    assert not client.transport.closed


@pytest.mark.parametrize("accepted", [True, False])
def test_empty_continuations_count_as_frames_and_order_is_kept(
    house: House, accepted: bool
) -> None:
    client = WebClient(house)
    if accepted:
        client.send(connect_packet("c"))
        client.take()
    client.protocol.send_binary(b"", fin=False)
    for _ in range(3 * FRAMES_A_PASS):
        client.protocol.send_continuation(b"", fin=False)
    client.protocol.send_continuation(PINGREQ_BYTES if accepted else connect_packet("c"), fin=True)
    client.socket.data_received(b"".join(client.protocol.data_to_send()))
    assert client.transport.is_reading()
    client.protocol.send_binary(publish_packet("t", b"behind", retain=True))
    client.socket.data_received(b"".join(client.protocol.data_to_send()))
    assert not client.transport.is_reading()
    turns = 0
    while house.turn():
        turns += 1
    client.pull()
    assert turns >= 3
    assert [each.raw for each in client.take()] == [PINGRESP_BYTES if accepted else b"\x20\x02\0\0"]
    assert house.retained() == {"t": b"behind"}
    assert client.transport.is_reading()


def test_the_end_comes_behind_what_came_before_it(house: House) -> None:
    client = WebClient(house)
    client.send(connect_packet("c"))
    for number in range(3 * FRAMES_A_PASS):
        client.protocol.send_binary(publish_packet(f"t/{number % 2}", b"%d" % number, retain=True))
    client.socket.data_received(b"".join(client.protocol.data_to_send()))
    assert client.socket.eof_received() is True
    house.settle()
    assert sorted(house.retained().values()) == [
        b"%d" % number for number in (3 * FRAMES_A_PASS - 2, 3 * FRAMES_A_PASS - 1)
    ]
    assert client.transport.closed


def test_packets_of_one_frame_that_a_pass_leaves_come_before_the_close(house: House) -> None:
    client = WebClient(house)
    client.send(connect_packet("c"))
    packets = [publish_packet(f"t/{each % 2}", b"%d" % each, retain=True) for each in range(300)]
    packets.append(PINGREQ_BYTES * PACKETS_A_PASS)
    packets.append(publish_packet("last", b"x", retain=True))
    client.protocol.send_binary(b"".join(packets))
    client.protocol.send_close(1000)
    client.socket.data_received(b"".join(client.protocol.data_to_send()))
    assert client.transport.closed
    client.socket.connection_lost(None)
    house.settle()
    assert "last" in house.retained()
    assert client.ended == [client.connection]


def test_no_frame_before_connect_is_larger_than_a_connect_may_be(house: House) -> None:
    client = WebClient(house)
    client.connection.session.decoder.max_packet_size = 1000
    client.protocol.send_binary(b"x" * 1001)
    client.socket.data_received(
        b"".join(client.protocol.data_to_send())[:20]
    )  # the header is enough
    house.settle()
    client.pull()
    assert client.close_codes == [1009]
    assert client.connection.closing
    assert house.core.counters.ws_frame_too_large == 1


def test_the_first_frame_behind_connect_may_be_large(house: House) -> None:
    client = WebClient(house)
    client.connection.session.decoder.max_packet_size = 1000
    client.protocol.send_binary(connect_packet("c"))
    client.protocol.send_binary(publish_packet("t", b"x" * 5000, retain=True))
    client.push()
    assert house.retained() == {"t": b"x" * 5000}


# --- violations


# --- what is held back within a turn


def test_what_is_held_back_together_is_one_frame(house: House, client: WebClient) -> None:
    held_back(house, client)
    house.turn()
    client.pull()
    assert len(client.frames) == 1
    assert [each.payload for each in client.take()] == [b"2", b"3"]


def test_what_is_held_back_goes_before_the_answer_to_a_close(
    house: House, client: WebClient
) -> None:
    held_back(house, client)
    client.protocol.send_close(1000)
    client.push()
    assert [each.payload for each in client.take()] == [b"2", b"3"]
    assert client.close_codes == [1000]


def test_a_peer_that_sends_no_more_has_what_is_held_back(house: House, client: WebClient) -> None:
    held_back(house, client)
    client.socket.eof_received()
    client.pull()
    assert [each.payload for each in client.take()] == [b"2", b"3"]


def held_back(house: House, client: WebClient) -> None:
    """Three messages within a turn, of which the client has the first."""
    client.send(connect_packet("c"), subscribe_packet(1, ("a", 0)))
    client.take()
    house.clock.advance(1.0)
    house.core.cork.close = CLOSE
    house.patient = True
    for payload in (b"1", b"2", b"3"):
        house.publish("a", payload)
        house.core.outbox.flush()
    client.pull()
    assert [each.payload for each in client.take()] == [b"1"]


# --- the transport in between


def test_what_the_transport_says_reaches_the_connection(house: House, client: WebClient) -> None:
    client.send(connect_packet("c"), subscribe_packet(1, ("a", 0)))
    client.take()
    client.socket.pause_writing()
    house.publish("a", b"x")
    client.pull()
    assert client.frames == []
    client.socket.resume_writing()
    client.pull()
    assert [each.payload for each in client.take()] == [b"x"]


def test_what_the_connection_asks_reaches_the_transport(client: WebClient) -> None:
    socket, transport = client.socket, client.transport
    transport.buffered = 77
    assert socket.get_write_buffer_size() == 77
    assert socket.get_extra_info("peername") == ("192.0.2.1", 4711)
    socket.set_write_buffer_limits(high=5)
    assert transport.high_water == 5
    socket.pause_reading()
    assert not transport.is_reading()
    socket.resume_reading()
    assert transport.is_reading()
    socket.abort()
    assert transport.aborted


def test_frames_count_into_the_rate_of_bytes_once_and_before_they_are_whole(house: House) -> None:
    house.options.max_byte_rate = 1000.0
    house.core.call_later = lambda _seconds, _call: None
    client = WebClient(house)
    rate = present(client.connection.byte_rate)
    house.clock.advance(1)
    client.send(connect_packet("c"))
    before = rate.tokens
    client.protocol.send_binary(b"\xc0\x00" * 50)
    data = b"".join(client.protocol.data_to_send())
    client.socket.data_received(data[:60])
    assert rate.tokens == before - 60
    client.socket.data_received(data[60:])
    assert rate.tokens == before - len(data)


def test_a_request_that_does_not_end_has_the_limit_of_connect(house: House) -> None:
    """The library alone would keep a MiB of headers."""
    transport = MemoryTransport()
    connection = Connection(house.registry, True, "auto-1", ListenerContext(print, print))
    socket = WebSocket(connection, "/mqtt", MAX_SIZE)
    socket.connection_made(transport)
    limit = house.options.max_connect_size
    line = b"X-%d: " + b"x" * 4000 + b"\r\n"
    socket.data_received(b"GET /mqtt HTTP/1.1\r\n")
    for number in range(limit // 4100):
        socket.data_received(line % number)
    assert not transport.closed
    assert socket.kept_bytes() > limit - 5000
    for number in range(3):
        socket.data_received(line % (100 + number))
    assert transport.closed


def test_a_frame_that_is_not_whole_counts_as_kept_and_as_life_while_it_grows(house: House) -> None:
    client = WebClient(house)
    client.send(connect_packet("c"))
    for _ in range(2):
        client.protocol.send_binary(publish_packet("a", bytes(9_000)))
        data = b"".join(client.protocol.data_to_send())
        for start in (0, 4_000):
            house.clock.advance(1)
            client.socket.data_received(data[start : start + 4_000])
            assert client.connection.seen == house.clock()
        assert 7_900 <= client.connection.kept_bytes() <= 8_000
        house.clock.advance(1)
        client.socket.data_received(data[8_000:8_900])
        assert client.connection.seen == house.clock() - 1, "a drip could go on for years"
        client.socket.data_received(data[8_900:])
