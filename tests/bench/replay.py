"""History over MQTT beside what is live: python -m tests.bench.replay [--messages 1000000] [--rounds 3]

A stream of four partitions has messages of 100 devices that took turns. Each line is a median: microseconds of the
broker's CPU a message (all its processes), and messages a second.

    live fan-in      ten publishers, one subscriber, QoS 0; at most 10,000 messages are under way
    replay QoS 0, 1  one client reads it all by $replay/earliest/#
    where            the same at QoS 0, of one message in fifty: a second and core, of those looked at
    live shared      ten publishers, four members of $share/GROUP/#, QoS 0, as above
    group            four members of a consumer group read it all, QoS 0
"""

import argparse
import select
import socket
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple, Protocol

import psutil

from tests.bench.putting import put
from tests.bench.sql import PUT
from tests.support.wire import connect_packet, publish_packet, subscribe_packet
from vmq.testing.process import BrokerProcess

DEVICES: Final = 100
MEMBERS: Final = 4
PUBLISHERS: Final = 10
#: One message in so many is looked for.
SOME: Final = 50
#: Messages of a publisher's turn, and those that are under way at most.
BLOCK: Final = 1000
UNDER_WAY: Final = 10_000
CONNACK_BYTES: Final = 4
SUBACK_BYTES: Final = 5
#: Bytes before the packet id of a PUBLISH.
ID_AT: Final = 15
SECONDS: Final = 300.0


class Figure(NamedTuple):
    """Seconds of CPU and by the clock, and messages."""

    cpu: float
    took: float
    messages: int


def topic_of(number: int) -> str:
    return f"sensors/d{number % DEVICES:02}"


def payload_of(number: int) -> bytes:
    """Always as long."""
    text = b'{"seq": %d, "n": %d, "temp": 20.5, "unit": "C", "ok": true}'
    return text % (1_000_000 + number, 10 + number % SOME)


class HasAddress(Protocol):
    """A broker that clients of MQTT come to."""

    @property
    def tcp(self) -> tuple[str, int]: ...


class Receiver:
    """A client that counts what comes, all of one size, and acknowledges it at QoS 1."""

    def __init__(self, broker: HasAddress, name: str, topic_filter: str, qos: int) -> None:
        self.sock = socket.create_connection(broker.tcp)
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


def cpu_of(broker: BrokerProcess) -> float:
    """Seconds of all its processes."""
    process = psutil.Process(broker.pid)
    found = 0.0
    for each in (process, *process.children(recursive=True)):
        times = each.cpu_times()
        found += times.user + times.system
    own = process.cpu_times()
    return found + float(own.children_user + own.children_system)


def measured(broker: BrokerProcess, work: Callable[[], int]) -> Figure:
    cpu, began = cpu_of(broker), perf_counter()
    messages = work()
    return Figure(cpu_of(broker) - cpu, perf_counter() - began, messages)


def live(broker: BrokerProcess, filters: list[str], messages: int) -> Figure:
    """Publishers and subscribers at the same time."""
    receivers = [Receiver(broker, f"live-{at}", each, 0) for at, each in enumerate(filters)]
    publishers = [socket.create_connection(broker.tcp) for _ in range(PUBLISHERS)]
    for number, each in enumerate(publishers):
        each.sendall(connect_packet(f"p{number}"))
        assert each.recv(CONNACK_BYTES, socket.MSG_WAITALL)[-1] == 0
    block = b"".join(publish_packet(f"live/d{at % 100:05}", payload_of(at)) for at in range(BLOCK))

    def work() -> int:
        for sent in range(0, messages, BLOCK):
            publishers[sent // BLOCK % PUBLISHERS].sendall(block)
            receive(receivers, sent - UNDER_WAY)
        receive(receivers, messages)
        return messages

    found = measured(broker, work)
    for sock in (*publishers, *(each.sock for each in receivers)):
        sock.close()
    return found


def history(broker: BrokerProcess, filters: list[str], qos: int, count: int) -> Figure:
    """Clients that read what is there."""
    receivers: list[Receiver] = []

    def work() -> int:
        receivers.extend(
            Receiver(broker, f"reader-{at}", each, qos) for at, each in enumerate(filters)
        )
        receive(receivers, count)
        return count

    found = measured(broker, work)
    for each in receivers:
        each.sock.close()
    return found


def fill(broker: BrokerProcess, messages: int) -> None:
    """Puts the messages into the stream."""
    import pyarrow as pa

    topics = pa.array([topic_of(number) for number in range(PUT)])
    payloads = pa.array([payload_of(number) for number in range(PUT)], pa.binary())
    rows = pa.record_batch({"topic": topics, "payload": payloads})
    put(broker._url("grpc"), "sensors", rows, messages)


def rounds_of(broker: BrokerProcess, messages: int, number: int) -> dict[str, Figure]:
    """Each load once."""
    shared = [f"$share/g{number}/live/#"] * MEMBERS
    group = [f"$share/g{number}/$stream/sensors;from=earliest/#"] * MEMBERS
    where = "$replay/earliest;where=payload.n%20==%2011/sensors/#"
    looked = history(broker, [where], 0, messages // SOME)
    return {
        "live fan-in": live(broker, ["live/#"], messages),
        "replay QoS 0": history(broker, ["$replay/earliest/sensors/#"], 0, messages),
        "replay QoS 1": history(broker, ["$replay/earliest/sensors/#"], 1, messages),
        "where": looked._replace(messages=messages),
        "live shared": live(broker, shared, messages),
        "group": history(broker, group, 0, messages),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="a multiple of 100,000")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    env = {
        "VMQ_STREAMS__SENSORS__FILTERS": '["sensors/#"]',
        "VMQ_STREAMS__SENSORS__PARTITIONS": str(MEMBERS),
        "VMQ_STREAMS__SENSORS__KEY": "topic",
    }
    with BrokerProcess.start(("tcp://127.0.0.1:0", "grpc://127.0.0.1:0"), env=env) as broker:
        fill(broker, options.messages)
        found = [rounds_of(broker, options.messages, number) for number in range(options.rounds)]
    for name in found[0]:
        figures = [each[name] for each in found]
        cpu = median(each.cpu / each.messages for each in figures)
        rate = median(each.messages / each.took for each in figures)
        print(f"{name:14}{cpu * 1e6:8.2f} us of CPU{rate:12,.0f} messages/s")


if __name__ == "__main__":
    main()
