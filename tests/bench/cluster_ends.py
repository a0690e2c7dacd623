"""How long clients wait when a node ends, and whom nodes take for dead that are not: python -m tests.bench.cluster_ends

Three nodes with the timeouts of the defaults, linked over TCP on loopback. A durable subscriber is at the node that
ends and goes to another one, a publisher (QoS 1 and 2 in turns) stays elsewhere. In each round one node ends and starts
again:

    TERM    as `systemctl stop` does it
    KILL    its process is killed

    gap     the longest time between two messages of the subscriber while the publisher goes on, in milliseconds; the
            client's own pause before it connects again (50 ms) is in it
    ack     the longest time that an acknowledgement of the publisher took
    alarms  nodes that were taken for down though they ran

`--load N` has N processes compute beside them. With `--seconds` nothing ends: the alarms of so long are counted.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic, sleep
from typing import Any, Final

import paho.mqtt.client as mqtt

from tests.cluster_processes.cluster import Cluster, Node
from tests.cluster_processes.devices import Publisher, Subscriber
from vmq import is_compiled
from vmq.testing.ports import lasting_port

NAMES: Final = ("a", "b", "c")
ENV: Final = {
    "VMQ_CLUSTER__HEARTBEAT_INTERVAL": "1",
    "VMQ_CLUSTER__HEARTBEAT_TIMEOUT": "3",
    "VMQ_CLUSTER__ADOPT_AFTER": "10",
}


class LoopbackCluster(Cluster):
    """Whose nodes reach each other over TCP, with nothing in between."""

    def prepare(self, names: Any) -> None:
        for name in names:
            address = f"tcp://127.0.0.1:{lasting_port()}"
            self.nodes[name] = Node(name, self.folder, address, address)

    def end_network(self) -> None:
        pass


class TimedSubscriber(Subscriber):
    """Knows when messages came."""

    def __init__(self, *args: Any) -> None:
        self.times: list[float] = []
        super().__init__(*args)

    def _on_message(self, client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        self.times.append(monotonic())
        super()._on_message(client, data, message)


class TimedPublisher(Publisher):
    """Knows how long its acknowledgements took."""

    def __init__(self, *args: Any) -> None:
        self._began: dict[int, float] = {}
        self.longest = 0.0
        super().__init__(*args)

    def _publish(self, message: Any) -> None:
        before = monotonic()
        super()._publish(message)
        mid = next(reversed(self._sent))
        self._began[mid] = before

    def _on_publish(self, client: Any, data: Any, mid: int, code: Any, more: Any) -> None:
        now = monotonic()
        self.longest = max(self.longest, now - self._began.pop(mid, now))
        super()._on_publish(client, data, mid, code, more)


def longest_gap(times: list[float]) -> float:
    return max((later - former for former, later in pairwise(times)), default=0)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that compute."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def alarms(cluster: Cluster) -> int:
    """How often the nodes that run took each other for down so far."""
    return sum(each.seen("down") for each in cluster.running)


def one_round(cluster: Cluster, number: int, kind: signal.Signals) -> tuple[float, float, int]:
    """The gap, the longest acknowledgement, and the false alarms of one end."""
    nodes = [cluster[name] for name in NAMES]
    topic = f"ends-{kind.name.lower()}-{number}"
    subscriber = TimedSubscriber(f"{topic}-sub", nodes, f"{topic}/#", 2)
    publisher = TimedPublisher(f"{topic}-pub", [cluster["c"]], topic)
    before = alarms(cluster)
    try:
        subscriber.open()
        publisher.open()
        sleep(1)  # the subscription is known everywhere
        publisher.start()
        publisher.wait_more(100)
        subscriber.times.clear()
        publisher.longest = 0.0
        os.kill(cluster["a"].process.pid, kind)
        publisher.wait_more(400)
        sent = publisher.finish()
        times = list(subscriber.times)
        subscriber.wait_for(sent)
        gap, ack = longest_gap(times), publisher.longest
    finally:
        subscriber.close()
        publisher.close()
    cluster["a"].ended()
    downs = alarms(cluster) - before - 2  # the two that are left miss it rightly
    cluster.start("a")
    return gap, ack, downs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kinds", nargs="+", choices=["TERM", "KILL"], default=["TERM", "KILL"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", type=int, default=0, help="processes that compute beside")
    parser.add_argument("--seconds", type=float, default=0, help="nothing ends for so long")
    options = parser.parse_args()
    print("compiled" if is_compiled() else "interpreted", f"load={options.load}")
    with LoopbackCluster(NAMES, ENV) as cluster, load(options.load):
        if options.seconds:
            before = alarms(cluster)
            sleep(options.seconds)
            print(f"{options.seconds:g} s: {alarms(cluster) - before} alarms")
            return
        print(f"{'':<8}{'round':>6}{'gap ms':>10}{'ack ms':>10}{'alarms':>8}")
        for kind in options.kinds:
            for number in range(options.rounds):
                gap, ack, downs = one_round(cluster, number, signal.Signals[f"SIG{kind}"])
                line = f"{kind:<8}{number:>6}{gap * 1000:>10.0f}{ack * 1000:>10.0f}{downs:>8}"
                print(line, flush=True)


if __name__ == "__main__":
    main()
