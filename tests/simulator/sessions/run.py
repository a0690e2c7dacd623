"""Runs of the world with faults, by seed: `python -m tests.simulator.sessions.run SEEDS [--fault KIND ...]`."""

import argparse
import multiprocessing
from collections import Counter
from contextlib import nullcontext

from tests.simulator.sessions.ablations import ABLATIONS
from tests.simulator.sessions.client import Client
from tests.simulator.sessions.faults import ALL_KINDS, KINDS, TOGETHER, Faults
from tests.simulator.sessions.judge import rest, results
from tests.simulator.sessions.row_log import RowLog
from tests.simulator.sessions.world import SessionWorld

STEPS = 700
#: What may be in no run, and what in none that is strict.
NEVER = ("lost", "stuck", "silent", "unlimited", "kept", "held", "claimed", "unwritten")
STRICT = (*NEVER, "twice", "out of order", "again", "stray", "denied")


def run(
    seed: int,
    kinds: tuple[str, ...] = KINDS,
    strict: bool = True,
    replicas: int = 2,
    steps: int = STEPS,
    most: int = 1,
    hosts: str = "",
    narrow: bool = False,
    mounted: bool = False,
    logged: bool = False,
) -> Counter[str]:
    """One run: faults, then rest, then whether it still works. `hosts`: as many nodes, and where each of them is.

    `narrow`: a client has a window of one to three messages; `mounted`: all are in a mountpoint but one, who wants all;
    `logged`: what is published at QoS 2 goes into a log, too.
    """
    world = SessionWorld(seed, "abcdefgh"[: len(hosts)], replicas, hosts)
    if narrow:
        world.clients["e"].window = 1
    if mounted:
        for client in world.clients.values():
            client.scope = "\0m\0"
        world.clients["n"] = Client("n", 0, "#")
    if logged:
        world.log = RowLog(seed)
    while not world.are_subscribed():
        world.step()
    rest(world)
    faults = Faults(world, kinds, strict, most)
    for _ in range(steps):
        faults.step()
        world.step()
    faults.end_all()
    rest(world)
    sent = {name: each.sent for name, each in world.clients.items() if each.qos}
    for _ in range(300):
        world.step()
        if all(world.clients[name].sent > count for name, count in sent.items()):
            break
    rest(world)
    found = results(world)
    found["silent"] = sum(world.clients[name].sent == count for name, count in sent.items())
    found["faults"] = len(faults.begun)
    return found


def faulty(found: Counter[str], strict: bool) -> list[str]:
    return [each for each in (STRICT if strict else NEVER) if found[each]]


def _one(task: tuple[int, tuple[str, ...], bool, int, int, bool, bool]) -> tuple[int, Counter[str]]:
    seed, kinds, strict, replicas, most, narrow, mounted = task
    return seed, run(seed, kinds, strict, replicas, most=most, narrow=narrow, mounted=mounted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fault", action="append", choices=ALL_KINDS)
    parser.add_argument(
        "--many", action="store_true", help="three at once, whatever promises it costs"
    )
    parser.add_argument("--most", type=int, help="so many at once")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--narrow", action="store_true", help="a client with a small window")
    parser.add_argument("--mounted", action="store_true", help="clients are in a mountpoint")
    parser.add_argument("--without", choices=sorted(ABLATIONS))
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    ablation = ABLATIONS[options.without] if options.without else None
    kinds = tuple(
        options.fault
        or (ablation.shown_by[0] if ablation else ALL_KINDS if options.many else KINDS)
    )
    options.many = options.many or (ablation is not None and not ablation.strict)
    most = options.most or (3 if options.many else 1)
    if most > 1 and not options.many and not options.fault:
        kinds = TOGETHER
    narrow = options.narrow or (ablation is not None and ablation.narrow)
    tasks = [
        (seed, kinds, not options.many, options.replicas, most, narrow, options.mounted)
        for seed in range(options.first, options.first + options.seeds)
    ]
    total: Counter[str] = Counter()
    longest = 0
    bad = []
    with (
        ablation.off() if ablation else nullcontext(),
        multiprocessing.Pool(options.processes) as pool,
    ):
        for seed, found in pool.imap(_one, tasks, 4):
            longest = max(longest, found["longest wait"])
            total.update(found)
            if faulty(found, not options.many):
                bad.append((seed, faulty(found, not options.many)))
    total["longest wait"] = longest
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    print(f"{len(bad)} seeds show it: {bad[:12]}")


if __name__ == "__main__":
    main()
