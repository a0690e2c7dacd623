"""What strangers may have a broker keep: packets that never end, deep topics, ids that are never released.

What counts is the memory that the system says the process has.
"""

import random
import re
import selectors
import socket
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.attacks.size import size
from tests.conftest import BrokerFactory
from tests.support import wire as mqtt
from tests.support.metrics import figure
from tests.support.present import present
from vmq.testing.process import BrokerProcess

KIB, MIB = 1 << 10, 1 << 20


def memory(broker: BrokerProcess, field: str = "VmRSS") -> int:
    """Bytes of a broker in RAM, now or (VmHWM) at most until now."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    found = present(re.search(rf"^{field}:\s+(\d+) kB$", status, re.M))
    return int(found[1]) * KIB


@contextmanager
def sockets(broker: BrokerProcess, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(socket.create_connection(broker.tcp))) for _ in range(count)
        ]


def push(flows: Mapping[socket.socket, Sequence[bytes]], patience: float = 2.0) -> int:
    """Sends what each socket has to send, as far as the broker takes it; returns how many bytes it took.

    Returns when all is sent, or nothing was taken for so many seconds; who is cut off sends no more.
    """
    sent = 0
    # Not joined: hundreds of MB would be copied before the first byte is sent, and CONNECT has a time limit.
    left = {sock: [memoryview(piece) for piece in data] for sock, data in flows.items()}
    with selectors.DefaultSelector() as selector:
        for sock in flows:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_WRITE, sock)
        while selector.get_map():
            ready = selector.select(patience)
            if not ready:
                break
            for key, _ in ready:
                sock = key.data
                try:
                    count = sock.send(left[sock][0][:MIB])
                except ConnectionError:
                    selector.unregister(sock)
                    continue
                sent += count
                left[sock][0] = left[sock][0][count:]
                if not left[sock][0]:
                    del left[sock][0]
                if not left[sock]:
                    selector.unregister(sock)
    return sent


def is_cut_off(sock: socket.socket) -> bool:
    """Waits for the end of a connection on which nothing comes."""
    sock.settimeout(30)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def wait_until_read(broker: BrokerProcess) -> None:
    """The broker is at rest: an answer to a client of now comes after all that it had read."""
    with mqtt.Wire.connected(broker.tcp, "probe") as wire:
        wire.ping()


def is_served(broker: BrokerProcess) -> bool:
    """Whether a new client is let in."""
    with mqtt.Wire.connect_tcp(broker.tcp) as wire:
        wire.send(mqtt.connect_packet("later"))
        return wire.expect(mqtt.CONNACK).return_code == 0


def test_cut_publishes_stay_within_max_memory(fresh_broker: BrokerFactory) -> None:
    """60 of 15 MB made 923 MB of 200 MiB. Their senders wait, then the largest go, and others are served again."""
    limit = 200 * MIB
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_MEMORY": str(limit)})
    body = bytes(14_900_000)
    cut = mqtt.packet(0x30, b"\0\x01t" + bytes(15_000_000))[:10]
    with sockets(broker, size(20, 60)) as senders:
        flows = {sock: (mqtt.connect_packet(f"c{n}"), cut, body) for n, sock in enumerate(senders)}
        push(flows)
        broker.wait_log("memory is high")
        broker.wait_log(r'closed client=c\d+ .*reason="memory is above max_memory, and \d+ bytes')
    assert memory(broker, "VmHWM") < 1.2 * limit
    while not is_served(broker):
        pass


def test_cut_connects_have_the_broker_keep_little(fresh_broker: BrokerFactory) -> None:
    """500 took 173 MB: as much of each was kept as the largest CONNECT has that there can be."""
    count = size(100, 500)
    broker = fresh_broker(env={"VMQ_SESSION__MQTT_CONNECT_TIMEOUT": "60"})
    wait_until_read(broker)
    before = memory(broker)
    longest = mqtt.packet(0x10, bytes(16_000))[:-1]
    largest = mqtt.packet(0x10, bytes(327_000))[:-1]
    with sockets(broker, count) as senders:
        push({sock: (longest if number % 2 else largest,) for number, sock in enumerate(senders)})
        broker.wait_log("CONNECT of 327004 bytes is above session.max_connect_size")
        for sock in senders[::2]:
            assert is_cut_off(sock)
        wait_until_read(broker)
        assert memory(broker) - before < count * 32 * KIB + 8 * MIB


def deep_topics(count: int) -> list[str]:
    """Topics of 127 levels and 258 bytes that part at many places."""
    choose = random.Random(7)
    letters = [*string.ascii_lowercase, *string.ascii_uppercase]
    return [
        "/".join([*(choose.choice(letters) for _ in range(125)), f"{number:06d}", "x"])
        for number in range(count)
    ]


def publish_retained(wire: mqtt.Wire, topics: Sequence[str]) -> None:
    for start in range(0, len(topics), 500):
        wire.send(
            *(mqtt.publish_packet(each, b"x", retain=True) for each in topics[start : start + 500])
        )
        wire.ask(mqtt.PINGREQ_BYTES, mqtt.PINGRESP_BYTES)


def subscribe_to(wire: mqtt.Wire, filters: Sequence[str]) -> list[int]:
    """Subscribes to all of these; returns the codes."""
    codes: list[int] = []
    for start in range(0, len(filters), 500):
        pairs = ((each, 0) for each in filters[start : start + 500])
        codes += wire.ask(mqtt.subscribe_packet(1 + start, *pairs), mqtt.SUBACK).codes
    return codes


@pytest.mark.parametrize("deep", (False, True))
def test_what_budgets_count_is_what_memory_grows_by(
    fresh_broker: BrokerFactory, deep: bool
) -> None:
    """Of short topics and of deep ones. A third at least, since the objects of an interpreted broker are larger."""
    count = size(10_000, 50_000)
    topics = deep_topics(count) if deep else [f"a/{number}" for number in range(count)]
    broker = fresh_broker(
        listen=("tcp://127.0.0.1:0", "http://127.0.0.1:0"),
        env={"VMQ_STORE__WRITE_BUFFER_SIZE": "65536", "VMQ_STORE__CACHE_SIZE": "65536"},
    )
    with mqtt.Wire.connected(broker.tcp, "c") as wire:
        publish_retained(wire, topics[:10])
        figure(broker, "retain_memory")
        before = memory(broker)
        publish_retained(wire, topics)
        grown, counted = memory(broker) - before, figure(broker, "retain_memory")
        assert grown / 3 < counted < 2 * grown, (grown, counted)
        before = memory(broker)
        subscribe_to(wire, [each + "/s" for each in topics])
        grown, counted = memory(broker) - before, figure(broker, "router_memory")
        assert grown / 3 < counted < 2 * grown, (grown, counted)


def test_clients_that_read_nothing_cost_no_more_memory_than_there_is(
    fresh_broker: BrokerFactory,
) -> None:
    """Their queues lose, and nobody else has to wait: all of them together would be larger than the broker may be."""
    limit = 200 * MIB
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_MEMORY": str(limit)})
    deaf, rounds = size(20, 40), 170
    with ExitStack() as stack:
        for index in range(deaf):
            wire = stack.enter_context(mqtt.Wire.connected(broker.tcp, f"deaf{index}"))
            wire.subscribe((f"t/{index}", 1))
        reader = stack.enter_context(mqtt.Wire.connected(broker.tcp, "reader"))
        reader.subscribe(("read", 1))
        publisher = stack.enter_context(mqtt.Wire.connected(broker.tcp, "publisher"))
        for turn in range(rounds):
            for index in range(deaf):
                payload = bytes(100_000)
                publisher.ask(
                    mqtt.publish_packet(f"t/{index}", payload, qos=1, packet_id=1), mqtt.PUBACK
                )
            publisher.publish("read", b"%d" % turn, qos=1)
            reader.acknowledge(reader.expect_publish("read", b"%d" % turn, qos=1))
        broker.wait_log("dropped client=deaf.* reason=memory_full messages=")
    assert memory(broker, "VmHWM") < limit
    assert "memory is high" not in broker.stderr_text(), "publishers did not have to wait"
