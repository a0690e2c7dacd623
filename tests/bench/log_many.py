"""Many partitions with copies: python -m tests.bench.log_many [--partitions 2000] [--synced 200] [--seconds 5]

Three nodes on this machine with so many partitions, idle for a round of their janitor: the CPU of each node as a share
of a core, and its memory. Then a node is killed: the time until all that it led is led elsewhere. And a stream of
`--synced` partitions whose rows are on the disk itself, published to one message after the other, each to another
partition: the time from PUBLISH to PUBACK. The bars: 1 % of a core (2 % with 10,000, `--partitions 9800`), 5 s, p99
50 ms.
"""

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.bench.durable import Cpu, Peer
from tests.bench.log_copies import nodes
from tests.support.until import reach
from tests.support.wire import publish_packet
from tests.vmq.cli.program import here
from vmq import is_compiled
from vmq.bench.load.usage import resident
from vmq.clustering.raft.groups.upkeep import LOOK
from vmq.streams.tidying.janitor import EVERY
from vmq.testing.process import BrokerProcess

NAMES = "abc"
MOST = 1024
TIMEOUT = 1200.0
#: Of the CPU that nodes took a while before: they have not settled while what they take differs by more.
NOISE = 0.1
#: What `vmq stream list` counts of that which is not as it is to stay.
UNDER_WAY = ("leaderless", "under_replicated", "moving", "abstaining")
#: A node is not asked for so many times as long as it took to answer.
REST = 4


def sections(partitions: int, synced: int) -> tuple[str, list[str]]:
    """Streams with so many partitions in all, and their names."""
    names: list[str] = []
    text = ""
    while partitions > 0:
        names.append(f"idle{len(names)}")
        text += f'[streams.{names[-1]}]\nfilters = ["{names[-1]}/#"]\nreplicas = 3\n'
        text += f"partitions = {min(partitions, MOST)}\n"
        partitions -= MOST
    text += '[streams.synced]\nfilters = ["synced/#"]\nkey = "topic"\ndurability = "fsync"\n'
    return text + f"replicas = 3\npartitions = {synced}\n", [*names, "synced"]


def asked(folder: Path, node: str, *words: str) -> Any:
    """What a node answers to `vmq stream`."""
    return json.loads(
        here("stream", *words, "--json", "--data-dir", str(folder / f"{node}.data")).out
    )


def wait_led(folder: Path, node: str, names: list[str], without: str = "") -> float:
    """Seconds until a node knows the leaders of all partitions, none of which is gone.

    To show a thousand partitions takes a node longer than to count them: so it is asked for the number again and again,
    and for each partition, without the clock, when that is none. Even that is work of the node: it is left alone for
    `REST` times as long as the answer took.
    """
    begin = time.monotonic()

    def are_all() -> float | None:
        if any(row["leaderless"] != 0 for row in asked(folder, node, "list")):
            return None
        found = time.monotonic() - begin
        rows = [row for name in names for row in asked(folder, node, "show", name)["partitions"]]
        return None if any(row["leader"] in ("", without) for row in rows) else found

    seconds: float = reach(are_all, "not all partitions have a leader", TIMEOUT, REST)
    return seconds


def shares(brokers: list[BrokerProcess], seconds: float) -> list[float]:
    """What share of a core each node takes."""
    before = [sum(Cpu.of(each.pid)) for each in brokers]
    time.sleep(seconds)  # what is measured
    return [
        (sum(Cpu.of(each.pid)) - cpu) / seconds for each, cpu in zip(brokers, before, strict=True)
    ]


def settle(folder: Path, brokers: list[BrokerProcess]) -> None:
    """Returns when no node knows of a copy that is on its way, and they take as much CPU as before.

    Groups to which something has happened are looked at once more after `LOOK`; disks now and then.
    """

    def is_done() -> bool:
        rows = [row for node in NAMES for row in asked(folder, node, "list")]
        return not any(row[each] for row in rows for each in UNDER_WAY)

    reach(is_done, "copies are under way", TIMEOUT, REST)
    before = sum(shares(brokers, LOOK))
    while abs((now := sum(shares(brokers, LOOK))) - before) > NOISE * before:
        before = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--synced", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    print(f"compiled: {is_compiled()}")
    text, names = sections(arguments.partitions, arguments.synced)
    with tempfile.TemporaryDirectory() as raw, ExitStack() as stack:
        folder = Path(raw)
        brokers = stack.enter_context(nodes(folder, NAMES, text))
        took = wait_led(folder, "a", names)
        spent = sum(sum(Cpu.of(each.pid)) for each in brokers)
        print(f"all are led after {took:.1f} s, {spent:.1f} s of CPU on all nodes", flush=True)
        settle(folder, brokers)
        found = shares(brokers, EVERY)
        for name, broker, share in zip(NAMES, brokers, found, strict=True):
            print(
                f"node {name}: {share:.2%} of a core, {resident(broker.pid) >> 20} MiB", flush=True
            )
        peer = Peer(brokers[0].tcp, "bench", clean=True)
        times, end, number = [], time.perf_counter() + arguments.seconds, 0
        while time.perf_counter() < end:
            number += 1
            sent = time.perf_counter()
            topic = f"synced/{number % arguments.synced}"
            peer.socket.sendall(
                publish_packet(topic, b"x" * 64, qos=1, packet_id=number % 60_000 + 1)
            )
            assert peer.take_acks() == 1
            times.append((time.perf_counter() - sent) * 1e3)
        peer.close()
        p99 = quantiles(times, n=100)[98]
        print(f"fsync, {arguments.synced} partitions: p50 {median(times):.1f} ms, p99 {p99:.1f} ms")
        brokers[2].kill()
        print(f"killed: all are led elsewhere after {wait_led(folder, 'a', names, 'c'):.1f} s")


if __name__ == "__main__":
    main()
