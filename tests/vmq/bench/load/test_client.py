"""One connection: who it says it is, and what ends it."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.vmq.bench.bad_broker import BadBroker
from tests.vmq.bench.support import HERE, flow_options
from vmq.bench.load.client import ClientState, LoadClient
from vmq.bench.load.loop import Loop
from vmq.bench.load.options import BenchError, Scenario
from vmq.bench.load.transport import LoadEndpoint
from vmq.bench.scenarios import run
from vmq.mqtt import encoder


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(buffer_size=1000)
    yield loop
    loop.close()


def fed(loop: Loop, data: bytes, state: ClientState = ClientState.UP) -> tuple[LoadClient, int]:
    client = LoadClient(loop, LoadEndpoint(HERE), "me")
    client.state = state
    loop.buffer[: len(data)] = data
    return client, client.take(loop.buffer, len(data))


def test_credentials_come_from_the_url() -> None:
    with BadBroker() as bad:
        url = bad.url.replace("mqtt://", "mqtt://me:s%20cret@")
        run(flow_options(url, Scenario.CONNECT, clients=2, hold=0))
        run(flow_options(bad.url, Scenario.CONNECT, clients=1, hold=0))
    who = [(each.username, each.password) for each in bad.connects]
    assert who == [("me", b"s cret"), ("me", b"s cret"), (None, None)]
    ids = [each.client_id for each in bad.connects]
    assert len(set(ids)) == 3
    assert all(len(each) <= 23 for each in ids)
    assert all(each.clean_session for each in bad.connects)


def test_whole_packets_are_taken_and_the_rest_is_kept(loop: Loop) -> None:
    data = encoder.suback(1, b"\1\2") + encoder.PINGRESP + encoder.suback(2, b"\0")[:3]
    client, taken = fed(loop, data)
    assert taken == len(data) - 3
    assert client.granted == b"\1\2"


@pytest.mark.parametrize("data", [b"\x30\xff\xff\xff\xff\x01", b"\x20\x02\x00\x05"])
def test_what_is_no_mqtt_or_a_refusal_ends_the_connection(loop: Loop, data: bytes) -> None:
    client, _ = fed(loop, data, ClientState.GREETING)
    assert client.is_over
    assert loop.ended == 1
    assert loop.first_problem


def test_a_packet_larger_than_the_buffer_ends_the_connection(loop: Loop) -> None:
    client, taken = fed(loop, b"\x30\xff\x7f" + bytes(997))
    assert taken == 0
    client._take_all(1000)
    assert client.is_over
    assert "larger" in loop.first_problem


def test_a_server_that_speaks_something_else_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" + bytes(100))
                sock.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(BenchError, match="does not speak MQTT"):
                run(flow_options(f"mqtt://127.0.0.1:{listener.getsockname()[1]}", pubs=1, count=1))
        finally:
            thread.join(20)
