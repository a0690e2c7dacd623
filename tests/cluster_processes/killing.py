"""`python -m tests.cluster_processes.killing --kills 30 --seed 1`: streams with copies while node after node fails.

Each time one of three or five nodes, drawn by the seed, is killed, stopped for a while, cut off from the others,
killed and wiped, or a bit of its segments is flipped, while it is down or while it runs; publishers at each node go
on, at QoS 1 and 2. In the end every node has the same rows, and all that was acknowledged is among them; with
`--spark` each of these rows is once in the table that a Spark query has filled meanwhile. The suite kills each node
once (`test_replicas`); this is for longer runs by hand: `--seconds 60` ends it after a minute.
"""

import argparse
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic

from tests.cluster_processes.cluster import LinkedCluster, say
from tests.cluster_processes.devices import Traffic, traffic
from tests.cluster_processes.links import Fault
from tests.cluster_processes.test_replicas import FLIGHT, check, options_of, wait_led, wait_whole
from tests.cluster_processes.test_streams import read
from tests.vmq.cli.program import run

#: Seconds until every node has to give all rows: tens of thousands, and damage that readers meet is mended first.
PATIENCE = 300.0
#: What happens to a node, and how often.
FAULTS = {"kill": 6, "stop": 2, "split": 2, "wipe": 1, "flip": 2, "flip live": 2}
#: Those in which the node goes on running, and is down for the others.
LIVING = ("stop", "split")


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
        wait_whole(*cluster.running, names=tuple(devices))
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
    wait_whole(*cluster.running, names=tuple(devices))
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


def main() -> int:
    """Runs it; raises AssertionError if something was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster_processes.killing", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=30, help="how often a node fails")
    parser.add_argument("--seed", type=int, default=1, help="of which, and how")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3, help="each has a copy")
    parser.add_argument("--seconds", type=float, default=86_400, help="no node fails after these")
    parser.add_argument(
        "--spark",
        action="store_true",
        help="a query of Spark goes on meanwhile; a, whom it asks, stays",
    )
    parser.add_argument("--faults", default=",".join(FAULTS), help="what may befall a node")
    options = parser.parse_args()
    faults = {each: FAULTS[each] for each in options.faults.split(",")}
    names = "abcde"[: options.nodes]
    random = Random(options.seed)
    streams = {"log": "os", "synced": "fsync"}
    env = {
        k: v for each in streams.items() for k, v in options_of(*each, 1 << 17, len(names)).items()
    }
    with LinkedCluster(names, env, FLIGHT) as cluster, ExitStack() as stack:
        wait_led(*cluster.running, names=tuple(streams))
        devices = {each: stack.enter_context(traffic(cluster, each, names, [])) for each in streams}
        flow(devices, [*names])
        table = None
        if options.spark:
            from tests.spark.table import table_of  # Spark is needed by nobody else here

            folder = Path(stack.enter_context(TemporaryDirectory()))
            table = stack.enter_context(table_of(cluster["a"].flight, "log", folder))
        until = monotonic() + options.seconds
        for number in range(options.kills):
            if monotonic() >= until:
                break
            [fault] = random.choices([*faults], [*faults.values()])
            name = random.choice(names[1:] if options.spark else names)
            say(f"{number + 1}: {fault} {name}")
            with telling(cluster):
                took = fail(cluster, devices, name, fault, random)
            say(f"{number + 1}: {fault} {name}: the others led everything after {took:.1f} s")
        for topic, each in devices.items():
            for publisher in each.publishers:
                publisher.finish()
            with telling(cluster):
                check(cluster, each.sent(), topic, PATIENCE)
            say(f"{topic}: {len(each.sent())} acknowledged messages are on all nodes, in order")
        if table is not None:
            rows = [[each.payload for each in rows] for rows in read(cluster["a"], "log")]
            say(f"log: {table.check(rows)} rows are in Spark's table, each once")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
