"""What durable sessions cost: python -m tests.bench.durable [--seconds 1.5] [--inflight 20] ...

For each durability a broker of its own, with pairs of a publisher and a subscriber at QoS 1:

    to online sessions      clean sessions that are there: nothing is stored
    to durable sessions     durable sessions that are there: each message is stored and taken out again
    to offline sessions     durable sessions that are away; a message is done with its PUBACK
    drained                 the same sessions come back and take what waits
    one by one, offline     each message waits for the PUBACK of the one before it

CPU is the broker's: of the event loop, and of its other threads (LevelDB's, which compacts; the one
that waits for an fsync). The store's share is what a message costs more on its way through a queue
on the disk than straight through: (offline + drained) - online. The client sends frames that are
encoded beforehand and reads in batches, so that it is never what is measured.
"""

from __future__ import annotations

import argparse
import selectors
import socket
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tests.support.wire import connect_packet, publish_packet, subscribe_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

TIMEOUT = 30.0
CONNACK = b"\x20\x02\x00"


class Cpu(NamedTuple):
    """Seconds that a process has run, to the nanosecond."""

    loop: float
    others: float

    @classmethod
    def of(cls, pid: int) -> Cpu:
        loop = others = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran = int((task / "schedstat").read_text().split()[0])
            if task.name == str(pid):
                loop = ran
            else:
                others += ran
        return cls(loop / 1e9, others / 1e9)


class Measured(NamedTuple):
    """One flow: messages, seconds of wall clock, the broker's CPU for a message in microseconds."""

    messages: int
    seconds: float
    loop: float
    others: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Watch:
    """Runs from its making on."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.cpu = Cpu.of(pid)
        self.start = perf_counter()

    @property
    def seconds(self) -> float:
        return perf_counter() - self.start

    def stop(self, messages: int) -> Measured:
        seconds, cpu = self.seconds, Cpu.of(self.pid)
        micros = 1e6 / max(messages, 1)
        loop, others = cpu.loop - self.cpu.loop, cpu.others - self.cpu.others
        return Measured(messages, seconds, loop * micros, others * micros)


class Peer:
    def __init__(self, address: tuple[str, int], client_id: str, clean: bool) -> None:
        self.socket = socket.create_connection(address, TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(connect_packet(client_id, clean=clean, keep_alive=0))
        #: What came and is no whole frame yet.
        self.rest = self.read_past(4)
        self.received = 0

    def read_past(self, length: int) -> bytes:
        """Waits for so many bytes; returns what came behind them."""
        data = b""
        while len(data) < length:
            data += self.recv()
        return data[length:]

    def recv(self) -> bytes:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionAbortedError("closed by the broker")
        return data

    def subscribe(self, topic: str) -> None:
        self.socket.sendall(subscribe_packet(1, (topic, 1)))
        self.rest = self.read_past(5)

    def take_acks(self) -> int:
        """Reads what is there, which is PUBACKs; returns how many."""
        data = self.rest + self.recv()
        count, over = divmod(len(data), 4)
        self.rest = data[len(data) - over :] if over else b""
        return count

    def take_frames(self, frame: bytes, data: bytes) -> int:
        """Takes what was read, which is frames of one length, and acknowledges them."""
        length = len(frame)
        id_at = 4 + frame[3]
        data = self.rest + data
        count, over = divmod(len(data), length)
        self.rest = data[len(data) - over :] if over else b""
        if count:
            acks = bytearray(b"\x40\x02\0\0" * count)
            end = count * length
            acks[2::4] = data[id_at:end:length]
            acks[3::4] = data[id_at + 1 : end : length]
            self.socket.sendall(acks)
            self.received += count
        return count

    def close(self) -> None:
        self.socket.close()


class Bench:
    """The flows on one broker."""

    def __init__(self, broker: BrokerProcess, pairs: int, payload: int, burst: int) -> None:
        self.broker = broker
        self.pairs = range(pairs)
        self.burst = burst
        frames = [
            publish_packet(f"bench/{index:04}", bytes(payload), qos=1, packet_id=1)
            for index in self.pairs
        ]
        assert len(frames[0]) < 130, "the remaining length is one byte"
        self.frames = frames
        self.bursts = [b"".join(self.numbered(frame)) for frame in frames]

    def numbered(self, frame: bytes) -> list[bytes]:
        """A burst of the frame with its packet ids."""
        at = 4 + frame[3]
        return [
            frame[:at] + (number + 1).to_bytes(2, "big") + frame[at + 2 :]
            for number in range(self.burst)
        ]

    def publishers(self) -> list[Peer]:
        return [Peer(self.broker.tcp, f"publisher-{index}", True) for index in self.pairs]

    def subscribers(self, clean: bool) -> list[Peer]:
        kind = "online" if clean else "durable"
        return [Peer(self.broker.tcp, f"{kind}-{index}", clean) for index in self.pairs]

    def subscribe(self, peers: list[Peer]) -> None:
        for index, peer in zip(self.pairs, peers, strict=True):
            peer.subscribe(f"bench/{index:04}")

    def to_offline(self, seconds: float) -> Measured:
        """Durable sessions subscribe and leave; then publishers send."""
        subscribers = self.subscribers(clean=False)
        self.subscribe(subscribers)
        for each in subscribers:
            each.close()
        return self.publish(seconds, [])

    def to_online(self, seconds: float, clean: bool) -> Measured:
        subscribers = self.subscribers(clean)
        self.subscribe(subscribers)
        measured = self.publish(seconds, subscribers)
        for each in subscribers:
            each.close()
        return measured

    def publish(self, seconds: float, subscribers: list[Peer]) -> Measured:
        """Burst after burst from all publishers, each after the PUBACKs of the last."""
        publishers = self.publishers()
        watch = Watch(self.broker.pid)
        sent = 0
        with selectors.DefaultSelector() as ready:
            for each in publishers:
                ready.register(each.socket, selectors.EVENT_READ, (each, False, 0))
            for index, each in enumerate(subscribers):
                ready.register(each.socket, selectors.EVENT_READ, (each, True, index))
            while watch.seconds < seconds:
                for publisher, burst in zip(publishers, self.bursts, strict=True):
                    publisher.socket.sendall(burst)
                sent += self.burst * len(publishers)
                acks = self.burst * len(publishers)
                while acks or (subscribers and sum(each.received for each in subscribers) < sent):
                    for key, _ in ready.select(TIMEOUT):
                        peer, is_subscriber, index = key.data
                        if is_subscriber:
                            peer.take_frames(self.frames[index], peer.recv())
                        else:
                            acks -= peer.take_acks()
        measured = watch.stop(sent)
        for each in publishers:
            each.close()
        return measured

    def drain(self, count: int, seconds: float) -> Measured:
        """The durable sessions come back and take what waits, but for so long only."""
        watch = Watch(self.broker.pid)
        subscribers = self.subscribers(clean=False)
        with selectors.DefaultSelector() as ready:
            taken = 0
            for index, each in enumerate(subscribers):
                ready.register(each.socket, selectors.EVENT_READ, (each, index))
                # Some may have come together with the CONNACK.
                taken += each.take_frames(self.frames[index], b"")
            while taken < count and watch.seconds < seconds:
                for key, _ in ready.select(TIMEOUT):
                    peer, index = key.data
                    taken += peer.take_frames(self.frames[index], peer.recv())
        measured = watch.stop(taken)
        for each in subscribers:
            each.close()
        return measured

    def one_by_one(self, seconds: float) -> Measured:
        """Each message waits for the PUBACK of the one before it; the sessions are away again."""
        publisher = Peer(self.broker.tcp, "publisher-0", True)
        watch = Watch(self.broker.pid)
        count = 0
        while watch.seconds < seconds:
            publisher.socket.sendall(self.frames[0])
            while not publisher.take_acks():
                pass
            count += 1
        measured = watch.stop(count)
        publisher.close()
        return measured


def show(durability: str, flow: str, measured: Measured) -> None:
    print(
        f"{durability:<8}{flow:<24}{measured.messages:>10,}{measured.rate:>12,.0f}"
        f"{measured.loop:>12.2f}{measured.others:>12.2f}"
    )


def measure(durability: str, options: argparse.Namespace) -> None:
    env = {
        "VMQ_STORE__DURABILITY": durability,
        "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
        "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
        "VMQ_QUEUE__MAX_INFLIGHT_MESSAGES": str(options.inflight),
    }
    with BrokerProcess.start(env=env, args=("--allow-anonymous",)) as broker:
        bench = Bench(broker, options.pairs, options.payload, options.burst)
        # First, while there are no durable sessions that would get the same messages.
        online = bench.to_online(options.seconds, clean=True)
        durable = bench.to_online(options.seconds, clean=False)
        offline = bench.to_offline(options.seconds)
        drained = bench.drain(offline.messages, 2 * options.seconds)
        single = bench.one_by_one(options.seconds / 3)
    show(durability, "to online sessions", online)
    show("", "to durable sessions", durable)
    show("", "to offline sessions", offline)
    show("", "drained", drained)
    show("", "one by one, offline", single)
    loop = offline.loop + drained.loop - online.loop
    others = offline.others + drained.others - online.others
    print(f"{'':<8}{'share of the store':<24}{'':>22}{loop:>12.2f}{others:>12.2f}")
    times = (durable.loop + durable.others) / (online.loop + online.others)
    print(
        f"{'':<8}durable sessions that are there cost {times:.2f} times what clean ones do",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=1.2, help="of each flow")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--payload", type=int, default=64, help="bytes")
    parser.add_argument("--burst", type=int, default=500, help="messages of a publisher at once")
    parser.add_argument("--inflight", type=int, default=20, help="max_inflight_messages")
    parser.add_argument("--durability", nargs="+", default=["memory", "os", "fsync"], metavar="HOW")
    options = parser.parse_args()
    print(
        f"{'compiled' if is_compiled() else 'interpreted'}, {options.pairs} pairs, payload "
        f"{options.payload} B, bursts of {options.burst}, window {options.inflight}\n"
        f"{'':<8}{'flow':<24}{'messages':>10}{'a second':>12}{'loop µs':>12}{'others µs':>12}"
    )
    for durability in options.durability:
        measure(durability, options)


if __name__ == "__main__":
    main()
