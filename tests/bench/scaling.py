"""What grows with what, counted: python -m tests.bench.scaling [--nodes 3 10 30 100] [--write docs/scaling.md]

Nodes run on the simulator's clock and network, so messages and bytes are the same in each run, whatever the machine is
at. Frames are what a link carries at once; bytes are those of encoded frames. Memory is what Python's allocator gave
brokers of this process (tracemalloc): LevelDB's caches, sockets and the kernel are beside it.

What happens is measured against a cluster that is left alone for as long. With `--write` the tables of a page, between
its two marks, are made anew.
"""

import argparse
import asyncio
import gc
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Final

from tests.simulator.device import Device
from tests.simulator.machines import Sim
from tests.simulator.world import World
from tests.support.until import until
from tests.vmq.clustering.nodes import config, pair
from vmq.broker import Broker
from vmq_cluster.messages import Frame, Heartbeat, SyncBatch, SyncRequest, encode
from vmq_cluster.options import Options

MARKS: Final = ("<!-- measured -->", "<!-- end of what was measured -->")
#: Times that one thing is done, and seconds between two of them.
TIMES: Final = 20
PAUSE: Final = 1.0
#: Seconds after which what brokers heard last is in no comparison of clocks any more, and what they send is all alike.
REST: Final = 240.0
VALUE: Final = b"v" * 100


@dataclass
class Count:
    """What went over the links."""

    frames: int = 0
    bytes: int = 0

    def __sub__(self, other: "Count") -> "Count":
        return Count(self.frames - other.frames, self.bytes - other.bytes)


class CountingSim(Sim):
    """Nodes of `vmq_cluster` with the options of a real one, each of whose frames is counted."""

    def __init__(self) -> None:
        super().__init__(0, Options())
        self.restart_counts()

    def restart_counts(self) -> None:
        """Counts from now on."""
        self.all = Count()
        self.heartbeats = Count()
        self.exchange = Count()
        self.to: dict[str, Count] = {}

    def _send(self, sender: str, receiver: str, frame: Frame) -> None:
        size = len(encode(frame))
        kinds = {type(each) for each in frame.messages}
        counts = [self.all, self.to.setdefault(receiver, Count())]
        if kinds <= {Heartbeat}:
            counts.append(self.heartbeats)
        elif kinds & {SyncRequest, SyncBatch}:
            counts.append(self.exchange)
        for each in counts:
            each.frames += 1
            each.bytes += size
        super()._send(sender, receiver, frame)

    def beyond_heartbeats(self) -> Count:
        return self.all - self.heartbeats

    def fill(self, name: str, keys: int) -> None:
        for number in range(keys):
            self[name].metadata.put("bench", b"%08d" % number, VALUE)
            if number % 100 == 99:
                self.ask(name, lambda: None)
        self.ask(name, lambda: None)


Row = tuple[str, ...]


@dataclass
class Table:
    """One of the page, with a sentence above."""

    text: str
    head: Row
    rows: list[Row]

    def markdown(self) -> str:
        lines = [self.head, tuple("---" if not at else "---:" for at in range(len(self.head)))]
        cells = [f"| {' | '.join(row)} |" for row in [*lines, *self.rows]]
        return f"{self.text}\n\n" + "\n".join(cells)


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# --- nodes without brokers


def idle(nodes: int, keys: int) -> tuple[Count, Count]:
    """What one node sends in a minute in which nothing happens: heartbeats, and the rest."""
    sim = CountingSim()
    names = sim.ready(nodes)
    sim.fill(names[0], keys)
    sim.run(60)
    sim.restart_counts()
    sim.run(60)
    rest = sim.beyond_heartbeats()
    beats = sim.heartbeats
    return (
        Count(beats.frames // nodes, beats.bytes // nodes),
        Count(rest.frames // nodes, rest.bytes // nodes),
    )


def idle_table(sizes: Sequence[int], keys: Sequence[int]) -> Table:
    rows: list[Row] = []
    for nodes in sizes:
        for count in keys:
            beats, rest = idle(nodes, count)
            figures = (beats.frames, beats.bytes, rest.frames, rest.bytes)
            rows.append((str(nodes), f"{count:,}", *map(number, figures)))
    return Table(
        "**Gossip of a cluster in which nothing happens**, sent by one node in a minute: heartbeats grow with the "
        "nodes, the comparison of clocks with neither nodes nor keys.",
        ("nodes", "keys", "heartbeats", "bytes", "other frames", "bytes"),
        rows,
    )


def write(sim: CountingSim, name: str, at: int) -> None:
    sim.ask(name, lambda: sim[name].metadata.put("new", b"%d" % at, VALUE))


def write_table(sizes: Sequence[int]) -> Table:
    rows: list[Row] = []
    for nodes in sizes:
        sim = CountingSim()
        names = sim.ready(nodes)
        sim.fill(names[0], 200)  # the tree forms
        sim.run(60)
        sim.restart_counts()
        for at in range(TIMES):
            write(sim, names[0], at)
            sim.run(PAUSE)
        spent = sim.beyond_heartbeats() - sim.exchange
        each = TIMES * (nodes - 1)
        rows.append((str(nodes), number(spent.frames / each), number(spent.bytes / each)))
    return Table(
        f"**A write of {len(VALUE)} bytes** (a subscription, a retained message), to each other node: one payload "
        "along the tree, and its announcement to the rest of the neighbours.",
        ("nodes", "frames", "bytes"),
        rows,
    )


def join(sim: CountingSim, names: list[str]) -> None:
    """A node comes; returns when it has what the others have."""
    sim.add("new", join=names[0])
    clock = sim[names[0]].metadata.clock
    sim.until(lambda: sim.is_joined([*names, "new"]), 600)
    sim.until(lambda: sim["new"].metadata.clock.dominates(clock), 600)


def join_table(sizes: Sequence[int], keys: Sequence[int]) -> Table:
    rows: list[Row] = []
    for nodes in sizes:
        for count in keys:
            sim = CountingSim()
            names = sim.ready(nodes)
            sim.fill(names[0], count)
            sim.run(60)
            sim.restart_counts()
            join(sim, names)
            others = sum(sim.to.get(name, Count()).bytes for name in names) / nodes
            found = (sim.to["new"].bytes, sim.to["new"].bytes / max(count, 1), others)
            rows.append((str(nodes), f"{count:,}", *map(number, found)))
    return Table(
        "**A node joins**: bytes to it until it has what the others know, and to each of the others meanwhile, with "
        "their heartbeats.",
        ("nodes", "keys", "to it", "a key", "to each other"),
        rows,
    )


# --- brokers


@contextmanager
def world(nodes: int, **options: Any) -> Iterator[tuple[World, list[str], Count]]:
    """Brokers that are whole and at rest, and what they send from then on."""
    names = [f"n{at:03}" for at in range(nodes)]
    with World(0, *names, **options) as found:
        found.until(found.is_quiet, 600)
        count = Count()

        def sent(_sender: str, _receiver: str, raw: bytes) -> None:
            count.frames += 1
            count.bytes += len(raw)

        found.trace = sent
        yield found, names, count


def above_rest(here: World, count: Count, do: Callable[[int], object]) -> Count:
    """What doing something takes, TIMES times; without what is sent in any case."""
    here.run(REST)
    before = Count(count.frames, count.bytes)
    here.run(TIMES * PAUSE)
    rest = count - before
    before = Count(count.frames, count.bytes)
    for at in range(TIMES):
        end = here.now + PAUSE
        do(at)
        here.run(max(0.0, end - here.now))
    spent = count - before - rest
    return Count(max(0, spent.frames), max(0, spent.bytes))


def client_table(sizes: Sequence[int]) -> Table:
    rows: list[Row] = []
    for nodes in sizes:
        with world(nodes) as (here, names, count):

            def visit(at: int) -> None:
                here.client(f"clean-{at}", names[0], clean=True).leave()

            def subscribe(at: int) -> None:
                here.client(f"sub-{at}", names[0], clean=True).subscribe((f"f/{at}", 0))

            for what, do in (
                ("a clean session comes and goes", visit),
                ("and one that stays and subscribes", subscribe),
            ):
                spent = above_rest(here, count, do)
                each = TIMES * (nodes - 1)
                rows.append(
                    (what, str(nodes), number(spent.frames / each), number(spent.bytes / each))
                )
    return Table(
        "**Clients come and go**: sent for each of them, by the number of other nodes.",
        ("what", "nodes", "frames a node", "bytes a node"),
        rows,
    )


def publish(publisher: Device, topic: str, at: int) -> None:
    publisher.publish(topic, f"{topic} {at}", 1).finish()


def publish_table(sizes: Sequence[int]) -> Table:
    rows: list[Row] = []
    for nodes in sizes:
        with world(nodes) as (here, names, count):
            last = names[-1]
            here.client("there", last, clean=True).subscribe(("wanted", 1))
            here.until(partial(here.is_known, "there", last))
            publisher = here.client("p", names[0], clean=True)
            for what, topic in (("one subscriber elsewhere", "wanted"), ("none", "unwanted")):
                spent = above_rest(here, count, partial(publish, publisher, topic))
                figures = (spent.frames / TIMES, spent.bytes / TIMES)
                rows.append((what, str(nodes), *map(number, figures)))
    return Table(
        "**A message of QoS 1**, with its confirmation: nodes without a target are not spoken to.",
        ("targets", "nodes", "frames", "bytes"),
        rows,
    )


def failover(nodes: int, sessions: int, queued: int) -> Count:
    """What is sent from the death of a node until the durable sessions of its slots are served elsewhere."""
    with world(nodes) as (here, names, count):
        dead = here.owner("s-0")
        other = next(each for each in names if each != dead)
        named = (f"s-{at}" for at in range(100 * sessions))
        clients = list(islice((each for each in named if here.owner(each) == dead), sessions))
        assert len(clients) == sessions
        for client in clients:
            here.client(client, other).subscribe((f"t/{client}", 1))
            here.until(partial(here.is_routed, client, f"t/{client}", other))
        for client in clients:
            here.devices[client].drop()
        for client in clients:
            texts = [f"{client} {text}" for text in range(queued)]
            here.publish(other, *texts, topic=f"t/{client}", qos=1)
        here.until(here.is_quiet, 600)
        here.run(REST)
        before = Count(count.frames, count.bytes)
        begun = here.now
        here.kill(dead)
        here.until(here.is_served, 600)
        spent, seconds = count - before, here.now - begun
        here.run(REST)
        before = Count(count.frames, count.bytes)
        here.run(seconds)
        rest = count - before
        return Count(max(0, spent.frames - rest.frames), max(0, spent.bytes - rest.bytes))


def failover_table(sizes: Sequence[int], cases: Sequence[tuple[int, int]]) -> Table:
    rows: list[Row] = []
    for nodes in sizes:
        for sessions, queued in cases:
            spent = failover(nodes, sessions, queued)
            figures = (spent.frames, spent.bytes, spent.bytes / sessions)
            rows.append((str(nodes), str(sessions), str(queued), *map(number, figures)))
    return Table(
        "**A node dies for ever**: sent by all others until the slots that it had are served and copied elsewhere.",
        ("nodes", "its sessions", "messages in each", "frames", "bytes", "a session"),
        rows,
    )


# --- memory


async def traced(folder: Path, clients: int, topic: Callable[[int], str], nodes: int) -> int:
    """Bytes that so many clean sessions with one subscription each take, on all of the nodes together."""

    async def fill(a: Broker, b: Broker | None) -> int:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        registry = a.registry()
        for at in range(clients):
            registry.subscribe(registry.create(f"client-{at}", True), topic(at), 1)
            if not at % 100:
                await asyncio.sleep(0)
        last = topic(clients - 1).encode()
        if b is not None:
            await until(lambda: bool(b.registry().route(last).nodes))
            await until(lambda: len(list(_records(b))) >= clients)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        if nodes == 1:
            async with Broker(config(folder, "a")) as a:
                return await fill(a, None)
        async with pair(folder) as (a, b):
            return await fill(a, b)
    finally:
        tracemalloc.stop()


def _records(broker: Broker) -> Iterator[Any]:
    assert broker.clustering is not None
    return iter(broker.clustering.directory.records())


def memory_of(clients: int, *, shared: bool) -> tuple[float, float]:
    """Bytes a client at its own node, and at another one."""

    def topic(at: int) -> str:
        return "fleet/news" if shared else f"fleet/{at:08}/commands"

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        own = asyncio.run(traced(Path(one), clients, topic, 1))
        both = asyncio.run(traced(Path(two), clients, topic, 2))
    return own / clients, (both - own) / clients


def memory_table(sizes: Sequence[int]) -> tuple[Table, dict[bool, tuple[float, float]]]:
    rows: list[Row] = []
    found: dict[bool, tuple[float, float]] = {}
    for shared in (False, True):
        for clients in sizes:
            own, other = found[shared] = memory_of(clients, shared=shared)
            what = "the same for all" if shared else "one each"
            rows.append((what, f"{clients:,}", number(own), number(other)))
    text = "**Memory of a session with one subscription**, in bytes: at its node, and at each other node."
    return Table(text, ("filters", "sessions", "own node", "another node"), rows), found


# --- sums


def sums_table(memory: dict[bool, tuple[float, float]], beat: float) -> Table:
    """What the constants add up to."""
    rows: list[Row] = []
    for clients in (10**5, 10**6, 10**7):
        for hosts in (3, 10, 50):
            here, there = ceil(clients / hosts), clients - ceil(clients / hosts)
            sizes = [
                (here * memory[shared][0] + there * memory[shared][1]) / 2**30
                for shared in (False, True)
            ]
            gossip = beat * (hosts - 1) * hosts / 1024
            rows.append(
                (
                    f"{clients:,}",
                    str(hosts),
                    f"{here:,}",
                    *(f"{each:.2f}" for each in sizes),
                    f"{hosts * (hosts - 1):,}",
                    number(gossip),
                )
            )
    return Table(
        "**The sums**: memory of one node in GiB for sessions with one subscription each, to filters of their own and "
        "to one that all share; connections between nodes; heartbeats of all nodes in KiB a second.",
        ("clients", "hosts", "a host", "own filters", "one filter", "connections", "heartbeats"),
        rows,
    )


def measure(sizes: Sequence[int], keys: Sequence[int], clients: Sequence[int]) -> Iterator[Table]:
    """All tables, in the order of the page."""
    # Whole brokers take long by the dozen: the larger sizes are for the nodes alone.
    brokers = [each for each in sizes if each <= 10]
    yield idle_table(sizes, keys)
    yield write_table(sizes)
    yield join_table(sizes, keys)
    yield client_table(brokers)
    yield publish_table(brokers)
    yield failover_table(brokers[:2], [(10, 0), (40, 0), (10, 20), (40, 20)])
    table, memory = memory_table(clients)
    yield table
    beats, _ = idle(sizes[0], 0)
    yield sums_table(memory, beats.bytes / 60 / (sizes[0] - 1))


def written(page: str, tables: Sequence[Table]) -> str:
    """The page with these tables instead of those that it has.

    Raises:
        ValueError: it lacks the marks.
    """
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    middle = "\n\n".join(each.markdown() for each in tables)
    return f"{before}{MARKS[0]}\n\n{middle}\n\n{MARKS[1]}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 10, 30, 100])
    parser.add_argument("--keys", type=int, nargs="+", default=[0, 10_000])
    parser.add_argument("--clients", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    tables = []
    for table in measure(options.nodes, options.keys, options.clients):
        print(table.markdown(), end="\n\n", flush=True)
        tables.append(table)
    if options.write is not None:
        options.write.write_text(written(options.write.read_text(), tables))


if __name__ == "__main__":
    main()
