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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.bench.replay import MEMBERS, Receiver, fill, receive
from tests.bench.streams_latency import LISTEN, go_first, pings, running, table_of
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

BAR: Final = 1.5
FIRST: Final = {0}
OTHERS: Final = set(range(1, os.cpu_count() or 2))
TOPICS: Final = "$replay/earliest/sensors/#"


class Address(NamedTuple):
    """What a reader needs of a broker that is another process's."""

    tcp: tuple[str, int]


def read_forever(port: int, qos: int, messages: int) -> None:
    """All of it, over and over; says so when it has begun."""
    said = False
    while True:
        reader = Receiver(Address(("127.0.0.1", port)), "history", TOPICS, qos)
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
        "VMQ_STREAMS__SENSORS__PARTITIONS": str(MEMBERS),
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
