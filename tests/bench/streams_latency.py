"""Pub/sub while a backlog is read: python -m tests.bench.streams_latency [--rounds 5] [--messages 1000000]

The time from publishing a message at QoS 0 to its arrival at a subscriber, one message after the other, of
topics that no stream keeps:

    idle        nothing else happens
    reading     programs read a stream of the same broker as a worker of Spark does, all of it, again and again
    sent        they read it by Flight, not from the broker's files (`localReads` = false)
    elsewhere   they do so from another broker on this machine: what its processors alone cost
    burning     as many programs only compute

The bar: p99 while reading at most twice that of idle. Phases take turns; each figure is the median of the
rounds. A reader is a process of its own, as a worker of Spark is, and in a session of its own, as in another
container. They stand back (SCHED_IDLE), as if they ran on another machine, as far as that can be had on
one; with --beside they do not. The publisher and subscriber go first where that is allowed: their own
waits are not the broker's.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from random import Random
from statistics import median, quantiles

from tests.bench.tls_cpu import Client
from tests.spark.support import executors_environment, stream_environment
from tests.support.wire import PUBACK, Wire, publish_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

BAR = 2.0
LISTEN = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
PARTITIONS = 4
DEVICES = 100
#: Seconds between two messages.
PAUSE = 0.001


def fill(broker: BrokerProcess, messages: int) -> None:
    """Has many devices publish at QoS 1, each its next message once the one before it is acknowledged."""
    random = Random(1)
    with ExitStack() as stack:
        wires = [
            stack.enter_context(Wire.connected(broker.tcp, f"s-{at}")) for at in range(DEVICES)
        ]
        for number in range(messages // DEVICES):
            for device, wire in enumerate(wires):
                payload = b'{"seq": %d, "temp": %.2f, "ok": true}' % (
                    number,
                    random.uniform(10, 30),
                )
                topic = f"bulk/site-{device % 10}/sensor-{device:03}/data"
                wire.send(publish_packet(topic, payload.ljust(100), qos=1, packet_id=1))
            for wire in wires:
                wire.expect(PUBACK)


def burn_forever() -> None:
    """A program that has nothing to do with any broker; it ends with who started it."""
    print("begun", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(100_000):
            pass


def read_forever(url: str, part: int, *, sent: bool) -> None:
    """A reader: every other partition, over and over; says so when it has begun."""
    from pyspark_vmq.client import client_of
    from pyspark_vmq.options import source_options
    from pyspark_vmq.planning import ranges_between
    from pyspark_vmq.reading import Task, read_task
    from pyspark_vmq.schema import COLUMNS

    given = {"server": url, "stream": "bulk", "localReads": "false" if sent else "true"}
    options = source_options(given, "batch")
    ends = client_of(options.connection).latest("bulk")
    task = Task(ranges_between({}, {"bulk": ends})[part::2])
    said = False
    while True:
        for _ in read_task(task, options, dict.fromkeys(COLUMNS, True)):
            if not said:
                print("begun", flush=True)
                said = True


def reading(broker: BrokerProcess, count: int, *, sent: bool) -> list[list[str]]:
    """What reads a broker's stream; as many as the tasks of a local Spark."""
    url = next(url for url in broker.urls if url.startswith("grpc"))
    more = ["--sent"] if sent else []
    return [["--read", url, "--part", str(number), *more] for number in range(count)]


@contextmanager
def running(loads: list[list[str]], *, beside: bool) -> Iterator[None]:
    """Processes of this module that load the machine, all the while."""
    processes = []
    command = [sys.executable, "-m", __spec__.name, *(["--beside"] if beside else [])]
    with ExitStack() as stack:
        for load in loads:
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, *load],
                    stdout=subprocess.PIPE,
                    env={**os.environ, **executors_environment()},
                    start_new_session=True,
                )
            )
            stack.callback(process.kill)
            processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
        yield
        ended = [each.args for each in processes if each.poll() is not None]
        assert not ended, f"no load any more: {ended}"


def go_first() -> bool:
    """Whether this process, and none that it starts, goes before all others from now on."""
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except PermissionError:
        return False
    return True


def pings(broker: BrokerProcess, count: int) -> list[float]:
    """Milliseconds of each message on its way."""
    port = broker.tcp[1]
    found: list[float] = []
    publisher, reader = Client(port, None, "publisher", ""), Client(port, None, "reader", "ping")
    with closing(publisher.socket), closing(reader.socket):
        packet = publish_packet("ping", b"x" * 64)
        for _ in range(count):
            time.sleep(PAUSE)
            start = time.perf_counter()
            publisher.socket.sendall(packet)
            reader.read(len(packet))
            found.append((time.perf_counter() - start) * 1000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Pub/sub while a backlog is read.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pings", type=int, default=2000)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--burn", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read or options.burn:
        if not options.beside:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        if options.burn:
            burn_forever()
        else:
            read_forever(options.read, options.part, sent=options.sent)
        return
    print(
        f"core {'compiled' if is_compiled() else 'INTERPRETED'}; {options.rounds} rounds of "
        f"{options.pings} messages; load {os.getloadavg()[0]:.1f}; clients "
        + ("go first" if go_first() else "have no priority")
    )
    with ExitStack() as stack:
        env = {**stream_environment({"bulk": PARTITIONS}), "VMQ_LOG__LEVEL": "warning"}
        broker, other = (
            stack.enter_context(BrokerProcess.start(LISTEN, env=env, args=("--allow-anonymous",)))
            for _ in range(2)
        )
        fill(broker, options.messages)
        fill(other, options.messages)
        count = options.readers
        phases: dict[str, list[list[str]]] = {
            "idle": [],
            "reading": reading(broker, count, sent=False),
            "sent": reading(broker, count, sent=True),
            "elsewhere": reading(other, count, sent=True),
            "burning": [["--burn"]] * count,
        }
        runs: dict[str, list[list[float]]] = {name: [] for name in phases}
        for _ in range(options.rounds + 1):
            for name, loads in phases.items():
                with running(loads, beside=options.beside):
                    runs[name].append(pings(broker, options.pings))
    show(runs)


def show(runs: dict[str, list[list[float]]]) -> None:
    """The figures of each phase, and how they compare."""
    p99 = table_of(runs)
    ratio = p99["reading"] / p99["idle"]
    met = "met" if ratio <= BAR else "MISSED"
    print(f"p99, reading to idle: {ratio:.2f}, at most {BAR}: {met}; load {os.getloadavg()[0]:.1f}")
    for name in ("sent", "elsewhere", "burning"):
        print(f"p99, reading to {name}: {p99['reading'] / p99[name]:.2f}")


def table_of(runs: dict[str, list[list[float]]]) -> dict[str, float]:
    """Prints the figures of each phase, without its first round; returns each one's p99."""
    print(f"{'ms':12} {'p50':>8} {'p90':>8} {'p99':>8} {'largest':>8} {'to idle':>8}")
    p99 = {}
    for name, found in runs.items():
        cuts = [quantiles(each, n=100) for each in found[1:]]
        p50, p90, p99[name] = (median(each[at] for each in cuts) for at in (49, 89, 98))
        largest = max(max(each) for each in found[1:])
        ratio = p99[name] / p99["idle"]
        print(f"{name:12} {p50:8.3f} {p90:8.3f} {p99[name]:8.3f} {largest:8.2f} {ratio:8.2f}")
    return p99


if __name__ == "__main__":
    main()
