"""What a stream costs a burst: python -m tests.bench.streams_burst [--rounds 5] [--messages 200000]

A publisher at QoS 0 and a subscriber; the same burst goes to topics that no stream keeps and to topics
that one keeps, in turn, through one broker. What counts is the broker's CPU for a message: of the event
loop, and of the stream's writer. A burst is done when the subscriber has it, and a last message at QoS 1
is acknowledged, which says that the stream has it; then the next one begins.

The bar: a stream costs at most 1.5 us above plain routing, all threads counted.
"""

import argparse
import os
from contextlib import closing
from statistics import median
from typing import NamedTuple

from tests.bench.durable import Cpu
from tests.bench.tls_cpu import Client
from tests.support.wire import PUBACK, publish_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

BAR = 1.5
#: Bytes of a payload.
SIZE = 64
#: Streams by the first level of their topics, and their partitions. Nothing keeps the last one.
STREAMS = {"one": 1, "four": 4}
PLAIN = "none"
#: Messages that are sent before the subscriber is read.
WINDOW = 1000

ENVIRONMENT = {
    "VMQ_LOG__LEVEL": "warning",
    "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
    **{f"VMQ_STREAMS__{name.upper()}__FILTERS": f'["{name}/#"]' for name in STREAMS},
    **{f"VMQ_STREAMS__{name.upper()}__PARTITIONS": str(n) for name, n in STREAMS.items()},
    **{f"VMQ_STREAMS__{name.upper()}__KEY": "topic" for name in STREAMS},
}


class Case(NamedTuple):
    """A stream, messages in a burst, and topics that take turns, a run of messages each."""

    stream: str
    burst: int
    topics: int
    run: int

    def __str__(self) -> str:
        return (
            f"bursts of {self.burst:,}, {self.topics} topics, runs of {self.run}, "
            f"{STREAMS[self.stream]} partitions"
        )


CASES = (
    Case("one", 1000, 1, 1000),
    Case("one", 1000, 100, 10),
    Case("one", 1000, 100, 1),
    Case("one", 20_000, 100, 1),
    Case("four", 20_000, 100, 1),
)


def window_of(stream: str, case: Case) -> bytes:
    """The packets of a window."""
    topics = [f"{stream}/line/{number:03}/temp" for number in range(case.topics)]
    payload = b"x" * SIZE
    return b"".join(
        publish_packet(topics[number // case.run % case.topics], payload)
        for number in range(WINDOW)
    )


def send(publisher: Client, reader: Client, stream: str, case: Case, messages: int) -> None:
    """Bursts, one after the other."""
    window = window_of(stream, case)
    topic, payload = f"{stream}/line/000/temp", b"x" * SIZE
    last = publish_packet(topic, payload, qos=1, packet_id=1)
    arriving = len(publish_packet(topic, payload))
    for _ in range(messages // case.burst):
        for _ in range(case.burst // WINDOW):
            publisher.socket.sendall(window)
            reader.read(len(window))
        publisher.socket.sendall(last)
        reader.read(arriving)
        publisher.wire.expect(PUBACK)


def measure(broker: BrokerProcess, case: Case, messages: int, rounds: int) -> dict[str, list[Cpu]]:
    """Microseconds of CPU a message, plain and into the stream."""
    spent: dict[str, list[Cpu]] = {PLAIN: [], case.stream: []}
    port = broker.tcp[1]
    publisher, reader = Client(port, None, "publisher", ""), Client(port, None, "reader", "#")
    with closing(publisher.socket), closing(reader.socket):
        for _ in range(rounds + 1):
            for stream, runs in spent.items():
                before = Cpu.of(broker.pid)
                send(publisher, reader, stream, case, messages)
                after = Cpu.of(broker.pid)
                scale = 1e6 / messages
                runs.append(
                    Cpu(
                        (after.loop - before.loop) * scale,
                        (after.others - before.others) * scale,
                    )
                )
    return {stream: runs[1:] for stream, runs in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a stream costs a burst.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"core {'compiled' if is_compiled() else 'INTERPRETED'}; {options.messages:,} messages of "
        f"{SIZE} bytes a round, medians of {options.rounds} rounds; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'us of CPU a message':50} {'plain':>7} {'loop':>7} {'writer':>7} {'above':>7}")
    met = True
    with BrokerProcess.start(env=ENVIRONMENT, args=("--allow-anonymous",)) as broker:
        for case in CASES:
            found = measure(broker, case, options.messages, options.rounds)
            plain = median(each.loop + each.others for each in found[PLAIN])
            loop = median(each.loop for each in found[case.stream])
            writer = median(each.others for each in found[case.stream])
            above = loop + writer - plain
            met = met and above <= BAR
            print(f"{case!s:50} {plain:7.2f} {loop:7.2f} {writer:7.2f} {above:7.2f}", flush=True)
    print(f"at most {BAR} above plain: {'met' if met else 'MISSED'}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
