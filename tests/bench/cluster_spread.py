"""How soon subscriptions are everywhere: python -m tests.bench.cluster_spread [--clients 1000] [--filters 100]

Three nodes of one cluster, each a process of its own. Clients at node a subscribe to 100,000 filters, all different;
time runs from the first SUBSCRIBE, until the last SUBACK, and until what is published at nodes b and c arrives for the
last filter of every client. Then one message is published at b and one at c to each of the filters: all have to arrive.
Bytes are those that the three nodes sent each other meanwhile.
"""

import argparse
import re
import selectors
import socket
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from urllib.request import urlopen

from tests.support.wire import connect_packet, publish_packet, subscribe_packet
from vmq.testing.process import BrokerProcess

TIMEOUT = 120.0
#: Filters of one SUBSCRIBE packet, and messages under way when all filters are tried.
PACKET = 10
CHUNK = 500
CONNACK, SUBACK_BYTES = 4, 4 + PACKET
LAST = "!"
#: So much of a payload, at most, may have come when the rest has not.
_PAYLOAD = 3


@dataclass(frozen=True)
class Spread:
    subscriptions: int
    acknowledged: float
    routed: float
    sent: int


class Client:
    """A connection to node a, and what has come on it in bytes and from whom."""

    def __init__(self, number: int, filters: int, address: tuple[str, int]) -> None:
        self.topics = [f"spread/{number:04}/{each:04}" for each in range(filters)]
        self.received = 0
        self.origins: set[bytes] = set()
        self._tail = b""
        self.socket = socket.create_connection(address, TIMEOUT)
        self.socket.sendall(connect_packet(f"spread-{number}", keep_alive=0))

    def subscribe(self) -> None:
        for first in range(0, len(self.topics), PACKET):
            pairs = [(each, 0) for each in self.topics[first : first + PACKET]]
            self.socket.sendall(subscribe_packet(1 + first // PACKET, *pairs))

    def take(self) -> int:
        """Takes what is there; returns its bytes."""
        data = self.socket.recv(1 << 16)
        assert data, "node a has ended a connection"
        # Every payload is the name of the node where it was published, in angles; LAST marks the last of a kind.
        text = self._tail + data
        self.origins.update(re.findall(rb"<(.!?)>", text))
        self._tail = text[-_PAYLOAD:]
        return len(data)


class Bench:
    def __init__(self, nodes: list[BrokerProcess], clients: int, filters: int) -> None:
        self._ready = selectors.DefaultSelector()
        self._nodes = nodes
        self.clients = [Client(number, filters, nodes[0].tcp) for number in range(clients)]
        for client in self.clients:
            self._ready.register(client.socket, selectors.EVENT_READ, client)
        self._publishers = {}
        for name, node in zip("bc", nodes[1:], strict=True):
            self._publishers[name] = socket.create_connection(node.tcp, TIMEOUT)
            self._publishers[name].sendall(connect_packet(f"publisher-{name}", keep_alive=0))
        self._take(CONNACK * clients)

    def run(self) -> Spread:
        before = self._sent()
        begun = perf_counter()
        for client in self.clients:
            client.subscribe()
        subscriptions = sum(len(client.topics) for client in self.clients)
        self._take(SUBACK_BYTES * subscriptions // PACKET)
        acknowledged = perf_counter() - begun
        self._wait_routed(begun)
        routed = perf_counter() - begun
        sent = self._sent() - before
        self._try_all()
        return Spread(subscriptions, acknowledged, routed, sent)

    def _wait_routed(self, begun: float) -> None:
        while waiting := [each for each in self.clients if len(each.origins) < 2]:
            assert perf_counter() < begun + TIMEOUT, f"{len(waiting)} clients are not routed to"
            for client in waiting:
                for name in "bc":
                    if name.encode() not in client.origins:
                        self._publish(name, client.topics[-1])
            self._take_for(0.05)
        # What was published too often is not to be taken for what comes next: it comes before what is published last.
        for client in self.clients:
            for name in "bc":
                self._publish(name, client.topics[-1], LAST)
        while any(len(each.origins) < 4 for each in self.clients):
            assert self._take_for(TIMEOUT), "what was published last does not come"

    def _try_all(self) -> None:
        topics = [topic for client in self.clients for topic in client.topics]
        for name in "bc":
            for first in range(0, len(topics), CHUNK):
                expected = 0
                for topic in topics[first : first + CHUNK]:
                    expected += self._publish(name, topic)
                self._take(expected)

    def _publish(self, name: str, topic: str, mark: str = "") -> int:
        frame = publish_packet(topic, f"<{name}{mark}>".encode())
        self._publishers[name].sendall(frame)
        return len(frame)

    def _take(self, count: int) -> None:
        """Takes so many bytes, no more and no less."""
        while count > 0:
            found = self._ready.select(TIMEOUT)
            assert found, f"{count} bytes are lost"
            count -= sum(key.data.take() for key, _ in found)
        assert count == 0, "more came than was asked for"

    def _take_for(self, seconds: float) -> int:
        """Takes what is there, or comes within so many seconds; returns its bytes."""
        return sum(key.data.take() for key, _ in self._ready.select(seconds))

    def _sent(self) -> int:
        total = 0.0
        for node in self._nodes:
            with urlopen(f"{node.http}/metrics", timeout=TIMEOUT) as response:
                text = response.read().decode()
            found = re.findall(r"^(?:vmq_)?cluster_bytes_sent\S* (\S+)$", text, re.MULTILINE)
            assert found, "no such figure"
            total += sum(map(float, found))
        return int(total)

    def close(self) -> None:
        self._ready.close()
        for each in [*(client.socket for client in self.clients), *self._publishers.values()]:
            each.close()


def measure(clients: int, filters: int) -> Spread:
    """Starts the nodes and measures once."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vmq-bench-")))
        nodes: list[BrokerProcess] = []
        for name in "abc":
            args = ["--allow-anonymous", "--node-name", name]
            args += ["--cluster-listen", f"ipc://{folder}/{name}"]
            if nodes:
                args += ["--join", f"ipc://{folder}/a"]
            listen = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
            nodes.append(stack.enter_context(BrokerProcess.start(listen, args=args)))
        for name in "bc":
            nodes[0].wait_log(rf"node up name={name}", TIMEOUT)
        bench = Bench(nodes, clients, filters)
        stack.callback(bench.close)
        return bench.run()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--filters", type=int, default=100, help="of each client")
    options = parser.parse_args()
    found = measure(options.clients, options.filters)
    print(
        f"{found.subscriptions:,} subscriptions: acknowledged after {found.acknowledged:.1f} s, routed on two other "
        f"nodes after {found.routed:.1f} s, {found.sent:,} bytes between the nodes "
        f"({found.sent / found.subscriptions:.0f} each)"
    )


if __name__ == "__main__":
    main()
