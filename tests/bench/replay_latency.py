"""Pub/sub while history is read by plain MQTT: python -m tests.bench.replay_latency [--rounds 5] [--messages 1000000]

The time from publishing a message at QoS 0 to its arrival at a subscriber, one message each millisecond, of a topic
that no stream keeps:

    idle           nothing else happens
    replay 0, 1    a client reads all of a stream by $replay/earliest/#, as fast as it can, again and again, at that QoS
    elsewhere 0, 1 it does so of another broker on this machine: what its processors alone cost

The bar: p99 beside a replay at most 1.5 times that of idle. Phases take turns; each figure is the median of the rounds.
The client that reads is a process of its own that stands back (SCHED_IDLE), as if it ran on another machine, as far as
that can be had on one; with --beside it does not. With --apart the broker has the first processor for itself, and
everything else shares the second, where the clients that measure go first: then what the broker does to others is seen
apart from what the client that reads does to them.
"""

import argparse
import os
import select
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter
from typing import Final

import psutil
import pyarrow as pa

from tests.bench.putting import put
from tests.bench.streams_latency import LISTEN, go_first, pings, running, table_of
from tests.support.wire import connect_packet, publish_packet, subscribe_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

BAR: Final = 1.5
FIRST: Final = {0}
OTHERS: Final = set(range(1, os.cpu_count() or 2))
TOPICS: Final = "$replay/earliest/sensors/#"
DEVICES: Final = 100
PARTITIONS: Final = 4
#: Rows of one put.
PUT: Final = 100_000
CONNACK_BYTES: Final = 4
SUBACK_BYTES: Final = 5
#: Bytes before the packet id of a PUBLISH.
ID_AT: Final = 15
SECONDS: Final = 300.0


def topic_of(number: int) -> str:
    return f"sensors/d{number % DEVICES:02}"


def payload_of(number: int) -> bytes:
    """Always as long."""
    text = b'{"seq": %d, "n": %d, "temp": 20.5, "unit": "C", "ok": true}'
    return text % (1_000_000 + number, 10 + number % 50)


class Receiver:
    """A client that counts what comes, all of one size, and acknowledges it at QoS 1."""

    def __init__(self, address: tuple[str, int], name: str, topic_filter: str, qos: int) -> None:
        self.sock = socket.create_connection(address)
        self.size = len(
            publish_packet(topic_of(0), payload_of(0), qos=qos, packet_id=1 if qos else None)
        )
        self.qos = qos
        self.left = b""
        self.count = 0
        self.sock.sendall(connect_packet(name) + subscribe_packet(1, (topic_filter, qos)))
        head = self.sock.recv(CONNACK_BYTES + SUBACK_BYTES, socket.MSG_WAITALL)
        assert head[-1] == qos, f"{topic_filter}: {head.hex()}"
        self.sock.setblocking(False)

    def receive(self) -> None:
        """Takes what is there."""
        data = self.left + self.sock.recv(1 << 20)
        whole = len(data) // self.size * self.size
        self.left = data[whole:]
        self.count += whole // self.size
        if self.qos:
            ids = range(ID_AT, whole, self.size)
            acks = b"".join(b"\x40\x02" + data[at : at + 2] for at in ids)
            self.sock.setblocking(True)
            self.sock.sendall(acks)
            self.sock.setblocking(False)


def receive(receivers: list[Receiver], count: int) -> None:
    """Takes what comes until there are so many."""
    until = perf_counter() + SECONDS
    while sum(each.count for each in receivers) < count:
        if perf_counter() > until:
            raise TimeoutError(f"{[each.count for each in receivers]} came")
        ready, _, _ = select.select([each.sock for each in receivers], [], [], 1.0)
        for each in receivers:
            if each.sock in ready:
                each.receive()


def fill(broker: BrokerProcess, messages: int) -> None:
    """Puts the messages into the stream."""
    topics = pa.array([topic_of(number) for number in range(PUT)])
    payloads = pa.array([payload_of(number) for number in range(PUT)], pa.binary())
    rows = pa.record_batch({"topic": topics, "payload": payloads})
    put(broker._url("grpc"), "sensors", rows, messages)


def read_forever(port: int, qos: int, messages: int) -> None:
    """All of it, over and over; says so when it has begun."""
    said = False
    while True:
        reader = Receiver(("127.0.0.1", port), "history", TOPICS, qos)
        if not said:
            receive([reader], 1)
            print("begun", flush=True)
            said = True
        receive([reader], messages)
        reader.sock.close()


def go_ahead(pid: int) -> None:
    """Has the session of a process go before others that the machine has, where that is allowed."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-19")


def pin(pid: int, processors: set[int]) -> None:
    """Has a process, and what it starts, run there from now on."""
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        for thread in process.threads():
            os.sched_setaffinity(thread.id, processors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="a multiple of 100,000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pings", type=int, default=2000)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--read", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--qos", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        if not options.beside:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        go_ahead(os.getpid())
        read_forever(options.read, options.qos, options.messages)
        return
    print(
        f"core {'compiled' if is_compiled() else 'INTERPRETED'}; {options.rounds} rounds of "
        f"{options.pings} messages; load {os.getloadavg()[0]:.1f}; clients "
        + ("go first" if go_first() else "have no priority")
    )
    env = {
        "VMQ_STREAMS__SENSORS__FILTERS": '["sensors/#"]',
        "VMQ_STREAMS__SENSORS__PARTITIONS": str(PARTITIONS),
        "VMQ_STREAMS__SENSORS__KEY": "topic",
        "VMQ_LOG__LEVEL": "warning",
    }
    with ExitStack() as stack:
        broker, other = (
            stack.enter_context(BrokerProcess.start(LISTEN, env=env)) for _ in range(2)
        )
        for each in (broker, other):
            fill(each, options.messages)
        at = ["--messages", str(options.messages)]
        phases: dict[str, list[list[str]]] = {
            "idle": [],
            "replay 0": [["--read", str(broker.tcp[1]), "--qos", "0", *at]],
            "replay 1": [["--read", str(broker.tcp[1]), "--qos", "1", *at]],
            "elsewhere 0": [["--read", str(other.tcp[1]), "--qos", "0", *at]],
            "elsewhere 1": [["--read", str(other.tcp[1]), "--qos", "1", *at]],
        }
        for process in (broker.pid, other.pid, os.getpid()):
            go_ahead(process)
        if options.apart:
            pin(broker.pid, FIRST)
            pin(other.pid, OTHERS)
            pin(os.getpid(), OTHERS)
        runs: dict[str, list[list[float]]] = {name: [] for name in phases}
        for _ in range(options.rounds + 1):
            for name, loads in phases.items():
                with running(loads, beside=options.beside, module=__spec__.name):
                    runs[name].append(pings(broker, options.pings))
    p99 = table_of(runs)
    for name in ("replay 0", "replay 1"):
        ratio = p99[name] / p99["idle"]
        alone = p99[name.replace("replay", "elsewhere")] / p99["idle"]
        met = "met" if ratio <= BAR else "MISSED"
        print(f"p99, {name} to idle: {ratio:.2f}, elsewhere {alone:.2f}, at most {BAR}: {met}")


if __name__ == "__main__":
    main()
