"""`python -m tests.cluster_processes.killing --kills 30 --seed 1`: streams with copies while node after node fails.

Each time one of three or five nodes, drawn by the seed, is killed, stopped for a while, cut off from the others,
killed and wiped, or a bit of its segments is flipped, while it is down or while it runs; publishers at each node go
on, at QoS 1 and 2. In the end every node has the same rows, and all that was acknowledged is among them, at QoS 2 once;
with `--spark` each of these rows is once in the table that a Spark query has filled meanwhile, and once in the stream
to which another query has published them, though Spark is killed, too. The suite kills each node once
(`test_replicas`); this is for longer runs by hand: `--seconds 60` ends it after a minute.
"""

import argparse
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

from tests.cluster_processes.cluster import LinkedCluster, say
from tests.cluster_processes.devices import Traffic, message_of, traffic
from tests.cluster_processes.links import Fault
from tests.cluster_processes.test_replicas import (
    FLIGHT,
    check,
    check_once,
    options_of,
    wait_led,
    wait_whole,
)
from tests.cluster_processes.test_streams import read
from tests.vmq.cli.program import run

if TYPE_CHECKING:
    from tests.spark.table import Tables

#: Seconds until every node has to have, and give, all rows: tens of thousands, and damage that readers meet is mended
#: first.
PATIENCE = 300.0
#: What happens to a node, and how often.
FAULTS = {"kill": 6, "stop": 2, "split": 2, "wipe": 1, "flip": 2, "flip live": 2}
#: Those in which the node goes on running, and is down for the others; and those in which it is killed.
LIVING = ("stop", "split")
KILLING = ("kill", "wipe", "flip")
#: How often Spark is killed, too, when a node fails.
SPARK_DIES = 0.2


def flow(devices: dict[str, Traffic], nodes: list[str]) -> None:
    """Each publisher at these nodes is acknowledged 20 more messages."""
    for topic, each in devices.items():
        each.flow(20, *(f"{topic}-pub-{node}" for node in nodes))


def flip(folder: Path, random: Random) -> str:
    """Flips a bit in one of the segments of a node; returns where."""
    segments = sorted(each for each in folder.glob("streams/*/*/*.arrows") if each.stat().st_size)
    path = random.choice(segments)
    bit = random.randrange(path.stat().st_size * 8)
    with path.open("r+b") as file:  # it may grow meanwhile
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes((byte ^ 1 << bit % 8,)))
    return f"bit {bit} of {path.relative_to(folder)}"


def fail(
    cluster: LinkedCluster, devices: dict[str, Traffic], name: str, fault: str, random: Random
) -> float:
    """Has one node fail, and come back; returns after how many seconds the others had leaders for everything."""
    names = [*cluster.nodes]
    rest = [each for each in names if each != name]
    begin = monotonic()
    if fault == "flip live":
        say(f"flipped {flip(cluster[name].data_dir, random)}")
        run("stream", "verify", "--local", "--data-dir", str(cluster[name].data_dir))  # it is found
        flow(devices, names)
        wait_whole(*cluster.running, names=tuple(devices), timeout=PATIENCE)
        return 0.0
    if fault == "split":
        cluster.links.part(random.choice([*Fault]), [name], rest)
    if fault == "stop":
        cluster[name].signal(signal.SIGSTOP)
    if fault in LIVING:
        for each in rest:
            cluster[each].wait_seen(name, "down")
    else:
        cluster[name].kill()
        cluster.wait_down(name)
    wait_led(*(cluster[each] for each in rest), without=name, names=tuple(devices))
    took = monotonic() - begin
    if fault == "wipe":
        cluster[name].wipe()
    if fault == "flip":
        say(f"flipped {flip(cluster[name].data_dir, random)}")
    flow(devices, rest)
    if fault == "stop":
        cluster[name].signal(signal.SIGCONT)
    if fault == "split":
        cluster.links.heal()
    if fault not in LIVING:
        cluster.start(name)
    flow(devices, names)
    wait_whole(*cluster.running, names=tuple(devices), timeout=PATIENCE)
    return took


@contextmanager
def telling(cluster: LinkedCluster) -> Iterator[None]:
    """Should it not come to what is waited for: what the nodes said last."""
    try:
        yield
    except AssertionError:
        for node in cluster.running:
            say(f"{node.name} said last:\n{node.process.stderr_text()[-6000:]}")
        raise


def check_spark(cluster: LinkedCluster, tables: "Tables") -> None:
    """Spark's table has each row of the log once, at its offset, and so has the stream of its sink."""
    found, rows = tables.finish(), read(cluster["a"], "log")
    assert len({place[:2] for place in found}) == len(found), "an offset is in the table twice"
    for number, wanted in enumerate(rows):
        own = [message_of(payload) for partition, _, payload in found if partition == number]
        assert own == wanted, f"partition {number} has other rows"
    check(cluster, {row for part in rows for row in part}, "done", PATIENCE)
    once, again = (
        Counter(row for part in each for row in part) for each in (rows, read(cluster["a"], "done"))
    )
    assert again == once, f"published twice: {again - once}, not: {once - again}"
    say(f"log: {len(found)} rows are in Spark's table and in the stream of its sink, each once")
    say(f"Spark was killed {tables.kills} times, and ended by itself: {dict(tables.failures)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster_processes.killing", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=30, help="how often a node is killed")
    parser.add_argument("--seed", type=int, default=1, help="of which, and what befalls it")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3, help="each has a copy")
    parser.add_argument("--seconds", type=float, default=86_400, help="no node fails after these")
    parser.add_argument("--spark", action="store_true", help="queries of Spark go on meanwhile")
    parser.add_argument("--faults", default=",".join(FAULTS), help="what may befall a node")
    return parser.parse_args()


def draw(random: Random, faults: dict[str, int], names: str, *, has_sink: bool) -> tuple[str, str]:
    """Which node fails next, and how. The first one knows what Spark's sink has published: it is not wiped."""
    [fault] = random.choices([*faults], [*faults.values()])
    return random.choice(names[1:] if fault == "wipe" and has_sink else names), fault


def main() -> int:
    """Runs it; raises AssertionError if something was lost."""
    options = arguments()
    faults = {each: FAULTS[each] for each in options.faults.split(",")}
    names = "abcde"[: options.nodes]
    random = Random(options.seed)
    streams = {"log": "os", "synced": "fsync"}
    env = {
        k: v
        for each in ({**streams, "done": "os"} if options.spark else streams).items()
        for k, v in options_of(*each, 1 << 17, len(names)).items()
    }
    befallen: Counter[str] = Counter()
    with LinkedCluster(names, env, FLIGHT) as cluster, ExitStack() as stack:
        wait_led(*cluster.running, names=tuple(streams))
        devices = {each: stack.enter_context(traffic(cluster, each, names, [])) for each in streams}
        flow(devices, [*names])
        tables = None
        if options.spark:
            from tests.spark.table import Tables  # Spark is needed by nobody else here

            folder = Path(stack.enter_context(TemporaryDirectory()))
            servers = ",".join(cluster[each].flight for each in names)
            tables = stack.enter_context(closing(Tables(servers, folder)))
        until = monotonic() + options.seconds
        while sum(befallen[each] for each in KILLING) < options.kills and monotonic() < until:
            name, fault = draw(random, faults, names, has_sink=tables is not None)
            befallen[fault] += 1
            what = f"{befallen.total()}: {fault} {name}"
            say(what)
            if tables is not None:
                tables.kill() if random.random() < SPARK_DIES else tables.keep_up()
            with telling(cluster):
                # What it draws depends on what is there: the next fault is to be the seed's all the same.
                took = fail(cluster, devices, name, fault, Random(random.random()))
            say(f"{what}: the others led everything after {took:.1f} s")
        for topic, each in devices.items():
            for publisher in each.publishers:
                publisher.finish()
            with telling(cluster):
                check(cluster, each.sent(), topic, PATIENCE)
            check_once(read(cluster["a"], topic))
            say(f"{topic}: {len(each.sent())} acknowledged messages are on all nodes, in order")
        if tables is not None:
            check_spark(cluster, tables)
    say(f"what befell nodes: {dict(befallen)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
