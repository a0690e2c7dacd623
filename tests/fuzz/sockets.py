"""The raw-socket fuzzer: attacks on a live broker over TCP and WebSocket, each made from its number.

`python -m tests.fuzz.sockets --seconds 600` runs for that long; `--first N --count M` replays.
"""

import argparse
import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator
from random import Random
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from tests.conformance.websocket_wire import open_websocket
from tests.support import wire as mqtt
from tests.vmq.http.conftest import get
from vmq.bench.load.usage import resident
from vmq.testing.process import BrokerProcess

LISTEN: Final = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")
#: Small limits, so that they are met; a log in which nothing is summed up.
ENV: Final = {
    "VMQ_SESSION__MAX_PACKET_SIZE": "65536",
    "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "20",
    "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "100",
    "VMQ_LIMITS__MAX_RETAINED_MESSAGES": "200",
    "VMQ_LIMITS__MAX_SUBSCRIPTIONS_PER_CLIENT": "50",
    "VMQ_STORE__WRITE_BUFFER_SIZE": "65536",
    "VMQ_LOG__FLOOD_LIMIT": "0",
    "VMQ_LOG__LEVEL": "warning",
}
#: What the broker may grow by in a campaign: sessions and retained messages that attacks leave, the
#: store's buffers, and what the allocator keeps.
GROWTH: Final = 48 * 1024 * 1024


TOPICS: Final = ("a", "a/b", "a/b/c", "b", "$SYS/x", "é/日本")
FILTERS: Final = ("a", "#", "+/b", "a/#", "$share/g/a", "$SYS/#", "a/+/c")


class Failed(AssertionError):  # noqa: N818 - what the fuzzer reports
    """The broker broke its promise; the text says how to see it again."""


# --- one attack


def conversation(random: Random) -> list[bytes]:
    """Packets that a client might send, the first one a CONNECT."""
    will = mqtt.Will("a/will", b"gone", random.randrange(3), random.random() < 0.5)
    name = f"attacker-{random.randrange(8)}"
    packets = [
        mqtt.connect_packet(
            name,
            clean=random.random() < 0.6,
            keep_alive=random.choice((0, 1, 60)),
            will=will if random.random() < 0.3 else None,
        )
    ]
    builders: tuple[Callable[[], bytes], ...] = (
        lambda: mqtt.subscribe_packet(pid(), (random.choice(FILTERS), random.randrange(3))),
        lambda: mqtt.unsubscribe_packet(pid(), random.choice(FILTERS)),
        lambda: _publish(random, pid()),
        lambda: _publish(random, pid()) * random.randrange(1, 40),
        lambda: mqtt.puback_packet(pid()) + mqtt.pubrec_packet(pid()) + mqtt.pubcomp_packet(pid()),
        lambda: mqtt.pubrel_packet(pid()),
        lambda: mqtt.PINGREQ_BYTES,
        lambda: mqtt.DISCONNECT_BYTES,
    )

    def pid() -> int:
        return random.choice((1, 2, 3, 20, 65535))

    for _ in range(random.randrange(12)):
        packets.append(random.choice(builders)())
    return packets


def _publish(random: Random, packet_id: int) -> bytes:
    qos = random.randrange(3)
    payload = random.randbytes(random.choice((0, 1, 40, 300, 5000)))
    number = packet_id if qos else None
    retain = random.random() < 0.2
    return mqtt.publish_packet(
        random.choice(TOPICS), payload, qos=qos, packet_id=number, retain=retain
    )


def mutated(random: Random, packets: list[bytes]) -> bytes:
    """The packets as one stream, damaged in one of the ways that networks and foes know."""
    how = random.randrange(7)
    if how == 0:
        random.shuffle(packets)
    elif how == 1 and len(packets) > 1:
        del packets[random.randrange(len(packets))]
    elif how == 2:
        packets.insert(random.randrange(len(packets) + 1), random.choice(packets))
    elif how == 3:
        body = random.randbytes(random.randrange(20))
        packets.insert(random.randrange(len(packets) + 1), mqtt.packet(random.randrange(256), body))
    stream = bytearray(b"".join(packets))
    if how == 4:
        del stream[random.randrange(len(stream)) :]
    elif how == 5:
        for _ in range(random.randrange(1, 6)):
            stream[random.randrange(len(stream))] = random.randrange(256)
    elif how == 6:
        place = random.randrange(len(stream) + 1)
        stream[place:place] = random.randbytes(random.randrange(1, 200))
    return bytes(stream)


def upgrade_request(random: Random) -> bytes:
    """The upgrade to WebSocket, which may be damaged."""
    path = "/mqtt"
    if random.random() < 0.05:
        path = "/" + random.randbytes(3).hex()
    head = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    ).encode()
    if random.random() < 0.1:
        place = random.randrange(len(head))
        head = head[:place] + random.randbytes(random.randrange(1, 30)) + head[place:]
    return head


def framed(random: Random, stream: bytes) -> bytes:
    """The stream in WebSocket frames, some of which are damaged as well."""
    data = bytearray()
    while stream:
        size = random.randrange(1, 2000)
        opcode = 0x82 if random.random() < 0.97 else random.randrange(256)
        data += _frame(opcode, stream[:size])
        stream = stream[size:]
    if random.random() < 0.2:
        data += _frame(random.choice((0x88, 0x89, 0x8A)), random.randbytes(random.randrange(126)))
    if data and random.random() < 0.15:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _frame(first: int, payload: bytes) -> bytes:
    """A frame whose mask is 0: the payload as it is."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes([first]) + length + bytes(4) + payload


class Attack:
    """One connection's worth of bytes, and the pieces in which they come."""

    def __init__(self, number: int) -> None:
        random = Random(number)
        self.websocket = random.random() < 0.3
        if random.random() < 0.1:
            stream = random.randbytes(random.randrange(1, 3000))
        else:
            stream = mutated(random, conversation(random))
        if self.websocket:
            stream = upgrade_request(random) + framed(random, stream)
        cuts = sorted(
            random.randrange(len(stream) + 1) for _ in range(random.choice((0, 1, 5, 30)))
        )
        ends = [*cuts, len(stream)]
        self.pieces = [stream[a:b] for a, b in zip([0, *cuts], ends, strict=True) if a < b]
        #: Cut off without reading, or half closed and read to the end.
        self.rude = random.random() < 0.2

    def launch(self, address: tuple[str, int]) -> None:
        """Sends it all; returns when the broker has closed the connection.

        Raises:
            TimeoutError: it has not.
        """
        with socket.create_connection(address, mqtt.TIMEOUT) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for piece in self.pieces:
                    sock.sendall(piece)
                if self.rude:
                    return
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            except OSError as error:
                # It may close at any of these, and what it had not read makes a reset of that.
                if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                    raise


# --- a campaign


class Pair:
    """A healthy publisher and subscriber, whose every message arrives whatever others do."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.publisher = mqtt.Wire.connect_tcp(broker.tcp)
        self.publisher.connect("healthy-publisher", keep_alive=0)
        self.subscriber, _ = open_websocket(broker.ws)
        self.subscriber.connect("healthy-subscriber", keep_alive=0)
        self.subscriber.subscribe(("healthy/pair", 1))
        self.sent = 0

    def exchange(self) -> None:
        """One message there, and the acknowledgements back."""
        self.sent += 1
        payload = b"%d" % self.sent
        self.publisher.publish("healthy/pair", payload, qos=1)
        self.subscriber.acknowledge(
            self.subscriber.expect_publish("healthy/pair", payload, qos=1, dup=False)
        )

    def close(self) -> None:
        self.publisher.disconnect()
        self.subscriber.disconnect()


class Campaign:
    """Attacks on one broker, one after the other."""

    def __init__(self, broker: BrokerProcess, first: int) -> None:
        self.broker = broker
        self.first = first
        self.next = first
        self.pair = Pair(broker)
        parts = urlsplit(broker.ws)
        assert parts.hostname is not None
        assert parts.port is not None
        self.ws = (parts.hostname, parts.port)
        self.before = resident(broker.pid)

    def attack(self) -> None:
        """The next one. Raises Failed if anybody but the attacker notices."""
        attack = Attack(self.next)
        try:
            attack.launch(self.ws if attack.websocket else self.broker.tcp)
            self.pair.exchange()
        except (AssertionError, OSError) as error:
            raise Failed(f"attack {self.next}: {error!r}; {self.recipe()}") from error
        self.next += 1

    def recipe(self) -> str:
        """How to see it again."""
        count = self.next - self.first + 1
        return (
            f"python -m tests.fuzz.sockets --first {self.next} --count 1 replays it alone, "
            f"--first {self.first} --count {count} with all before it"
        )

    def judge(self) -> None:
        """What must hold in the end. Raises Failed."""
        for text in ("internal error", "Traceback", " ERROR "):
            if text in (log := self.broker.stderr_text()):
                place = log.index(text)
                raise Failed(f"the log says: {log[max(0, place - 300) : place + 2000]}")
        grown = resident(self.broker.pid) - self.before
        if grown > GROWTH:
            raise Failed(f"the broker grew by {grown} bytes; {self.recipe()}")
        deadline = monotonic() + mqtt.TIMEOUT
        while (open_ := self.connections()) != 2:
            # Those who were rude may be on their way out still: the pair goes on meanwhile.
            self.pair.exchange()
            if monotonic() > deadline:
                raise Failed(f"{open_} connections are open, and two clients; {self.recipe()}")

    def connections(self) -> int:
        """Open connections, as the broker counts them."""
        status = get(self.broker.http, "/status.json").json()
        return int(status["connections"]["total"])


@contextlib.contextmanager
def campaign(first: int) -> Iterator[Campaign]:
    """A broker and a campaign against it, whose broker stops cleanly."""
    with BrokerProcess.start(LISTEN, env=ENV, args=("--allow-anonymous",)) as broker:
        found = Campaign(broker, first)
        yield found
        found.judge()
        found.pair.close()
        if (code := broker.terminate()) != 0:
            raise Failed(f"the broker ended with exit code {code}")


def main() -> None:
    """The fuzzer by hand."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sockets", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="number of the first attack")
    parser.add_argument("--count", type=int, default=1 << 60, help="attacks at most")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    end = monotonic() + options.seconds
    with campaign(options.first) as found:
        while found.next < options.first + options.count and monotonic() < end:
            found.attack()
    print(
        f"{found.next - options.first} attacks, {found.pair.sent} messages beside them, all there"
    )


if __name__ == "__main__":
    main()
