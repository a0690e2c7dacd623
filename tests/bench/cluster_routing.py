"""What a publish to another node costs: python -m tests.bench.cluster_routing [--seconds 1.5] [--pairs 4] ...

Two nodes of a cluster, each a process of its own, at Unix sockets or (--tcp) over TCP, as between machines, with pairs
of a publisher at node a and a subscriber:

    local       the subscribers are at node a, too
    remote      they are at node b

CPU is that of both nodes, with all their threads, for a message. The two flows take turns in the same run, and the
ratio of their medians is what counts: it holds where times drift. A publisher sends a burst, and the next when
everything has arrived: in bursts of one nearly each message goes by itself, as it does where little is published.

At QoS 1 each message has crossed node a's store, and node b has confirmed it out of its own; with --ack-after remote
the publisher's acknowledgement waits for that.
"""

import argparse
import selectors
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.bench.durable import TIMEOUT, Cpu, Peer
from tests.bench.settled import wait_settled
from tests.support.wire import publish_packet
from vmq import is_compiled
from vmq.testing.ports import lasting_ports
from vmq.testing.process import BrokerProcess


class Frames:
    """What one publisher sends: so many PUBLISH packets of one length, with packet ids where they need them."""

    def __init__(self, topic: str, payload: int, qos: int, burst: int) -> None:
        self.one = publish_packet(topic, bytes(payload), qos=qos, packet_id=1 if qos else None)
        assert len(self.one) < 130, "the remaining length is one byte"
        at = 4 + self.one[3]
        numbered = (
            self.one[:at] + (number + 1).to_bytes(2, "big") + self.one[at + 2 :]
            for number in range(burst)
        )
        self.burst = b"".join(numbered) if qos else self.one * burst


class Reader(Peer):
    """A subscriber, and how much it has got."""

    def take(self, frame: bytes, qos: int) -> int:
        """Takes what is there, and acknowledges it at QoS 1; returns how many messages that is."""
        data = self.recv()
        if qos:
            return self.take_frames(frame, data)
        data = self.rest + data
        count, over = divmod(len(data), len(frame))
        self.rest = data[len(data) - over :] if over else b""
        self.received += count
        return count


class Flow:
    """Publishers at one node and subscribers at another, or the same."""

    def __init__(
        self,
        name: str,
        source: BrokerProcess,
        target: BrokerProcess,
        qos: int,
        burst: int,
        options: argparse.Namespace,
    ) -> None:
        self.qos = qos
        self.burst = burst
        self.samples: list[float] = []
        topics = [f"{name}/{qos}/{index:03}" for index in range(options.pairs)]
        self.frames = [Frames(topic, options.payload, qos, burst) for topic in topics]
        self.publishers = [Peer(source.tcp, f"publisher/{topic}", True) for topic in topics]
        self.readers = [Reader(target.tcp, f"reader/{topic}", True) for topic in topics]
        self.ready = selectors.DefaultSelector()
        for index, topic in enumerate(topics):
            self.readers[index].subscribe(topic)
            self.ready.register(self.publishers[index].socket, selectors.EVENT_READ, (index, False))
            self.ready.register(self.readers[index].socket, selectors.EVENT_READ, (index, True))
            self.until_routed(index)

    def until_routed(self, index: int) -> None:
        """The route is known when a message comes through; those in front of it went nowhere."""
        frame, reader = self.frames[index].one, self.readers[index]
        begun = perf_counter()
        reader.socket.settimeout(0.05)
        while not reader.received:
            assert perf_counter() < begun + TIMEOUT, "nothing comes through"
            self.publishers[index].socket.sendall(frame)
            if self.qos:
                self.publishers[index].take_acks()
            try:
                reader.take(frame, self.qos)
            except TimeoutError:
                continue
        reader.socket.settimeout(TIMEOUT)
        reader.received = 0

    def round(self) -> int:
        """One burst of every publisher, until all of it has arrived and is acknowledged; how many messages."""
        for publisher, frames in zip(self.publishers, self.frames, strict=True):
            publisher.socket.sendall(frames.burst)
        count = self.burst * len(self.publishers)
        wanted, acks = count, count if self.qos else 0
        while wanted > 0 or acks > 0:
            found = self.ready.select(TIMEOUT)
            assert found, "a message is lost"
            for key, _ in found:
                index, is_reader = key.data
                if is_reader:
                    wanted -= self.readers[index].take(self.frames[index].one, self.qos)
                else:
                    acks -= self.publishers[index].take_acks()
        return count

    def measure(self, nodes: list[BrokerProcess], seconds: float) -> None:
        """Rounds for so long: CPU of all nodes for a message, in microseconds."""
        before = [Cpu.of(node.pid) for node in nodes]
        begun, count = perf_counter(), 0
        while perf_counter() < begun + seconds:
            count += self.round()
        after = [Cpu.of(node.pid) for node in nodes]
        self.samples.append((sum(map(sum, after)) - sum(map(sum, before))) / count * 1e6)

    def close(self) -> None:
        self.ready.close()
        for peer in [*self.publishers, *self.readers]:
            peer.close()


def measure(nodes: list[BrokerProcess], qos: int, burst: int, options: argparse.Namespace) -> float:
    """Both flows in turn; returns the ratio."""
    local = Flow("local", nodes[0], nodes[0], qos, burst, options)
    remote = Flow("remote", nodes[0], nodes[1], qos, burst, options)
    for _ in range(options.turns):
        for flow in (local, remote):
            flow.measure(nodes, options.seconds / options.turns)
    here, there = median(local.samples), median(remote.samples)
    print(f"QoS {qos}, {burst:<6}{here:>12.2f}{there:>12.2f}{there / here:>10.2f}", flush=True)
    local.close()
    remote.close()
    return there / here


def pair(stack: ExitStack, options: argparse.Namespace) -> list[BrokerProcess]:
    """Two nodes of one cluster."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vmq-bench-")))
    env = {
        "VMQ_STORE__DURABILITY": options.durability,
        "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
        "VMQ_QUEUE__MAX_INFLIGHT_MESSAGES": str(options.inflight),
        "VMQ_CLUSTER__ACK_AFTER": options.ack_after,
    }
    addresses = [f"ipc://{folder}/{name}" for name in "ab"]
    if options.tcp:
        addresses = [f"tcp://127.0.0.1:{port}" for port in lasting_ports(2)]
    nodes: list[BrokerProcess] = []
    for name, address in zip("ab", addresses, strict=True):
        args = ["--allow-anonymous", "--node-name", name, "--cluster-listen", address]
        if nodes:
            args += ["--join", addresses[0]]
        nodes.append(stack.enter_context(BrokerProcess.start(env=env, args=args)))
    wait_settled(nodes[0], len(nodes))
    return nodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each flow")
    parser.add_argument("--turns", type=int, default=5, help="in which a flow is measured")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--payload", type=int, default=64, help="bytes")
    parser.add_argument(
        "--burst", type=int, nargs="+", default=[500, 1], help="messages of a publisher at once"
    )
    parser.add_argument("--inflight", type=int, default=20, help="max_inflight_messages")
    parser.add_argument("--durability", default="os", choices=["memory", "os", "fsync"])
    parser.add_argument("--ack-after", default="local", choices=["local", "remote"])
    parser.add_argument("--tcp", action="store_true", help="as between machines")
    parser.add_argument("--qos", type=int, nargs="+", default=[0, 1], choices=[0, 1])
    options = parser.parse_args()
    with ExitStack() as stack:
        nodes = pair(stack, options)
        print(
            f"{'compiled' if is_compiled() else 'interpreted'}, {options.pairs} pairs, payload {options.payload} B\n"
            f"{'QoS, burst':<13}{'local µs':>12}{'remote µs':>12}{'ratio':>10}"
        )
        for qos, burst in product(options.qos, options.burst):
            measure(nodes, qos, burst, options)


if __name__ == "__main__":
    main()
