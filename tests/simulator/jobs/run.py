"""One run from one seed: faults come and go, then all is well again, and every promise is looked at.

python -m tests.simulator.jobs.run 300 [--fault KIND]... [--without RULE]
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.simulator.jobs.node import QUEUE, VOLATILE
from tests.simulator.jobs.publishers import Publisher
from tests.simulator.jobs.world import JobWorld

#: Each alone keeps every promise.
KINDS = ("kill", "wipe", "split", "pair", "pause", "slow", "clock", "remove", "stop", "deaf")
#: What may not be found.
FAULTY = ("lost", "twice", "leaked", "together", "returned", "unexplained", "stuck", "doubled")
#: What the nodes count by themselves (`SharingCounts`).
COUNTED = (
    *("copied_in", "copied_out", "mended", "federated", "taken_over"),
    *("not_copied", "fewer_copies", "doubles"),
)
HOSTS = ["a", "b", "c", "d", "d"]
#: Steps in which a node that stops has handed over what it has.
HANDS_OVER = 1000


class Faults:
    def __init__(self, world: JobWorld, kinds: tuple[str, ...]) -> None:
        self.world = world
        self.kinds = kinds
        self.ends: list[tuple[float, Callable[[], None]]] = []
        #: How likely one begins in a step in which there is none.
        self.chance = 0.2 if "soon" in kinds else 0.02

    def step(self) -> None:
        world = self.world
        for each in [each for each in self.ends if each[0] <= world.now]:
            self.ends.remove(each)
            each[1]()
        if self.kinds and not self.ends and world.random.random() < self.chance:
            getattr(self, "_" + world.random.choice(self.kinds))()

    def end_all(self) -> None:
        """All end; who hands over before it ends gets the time for it."""
        for _ in range(HANDS_OVER):
            ends, self.ends = self.ends, []
            for _, end in ends:
                end()
            if not self.ends:
                return
            self.world.step(adds=False)
        raise AssertionError("a node that stops hands over for ever")

    def _until(self, end: Callable[[], None]) -> None:
        self.ends.append((self.world.now + self.world.random.choice((1, 4, 15)), end))

    def _kill(self) -> None:
        """At once, or within a pass."""
        world = self.world
        name = world.random.choice(world.alive())
        if world.random.random() < 0.5:
            world.nodes[name].is_doomed = True
        else:
            world.crash(name)
        self._until(lambda: self._revive(name))

    def _revive(self, name: str) -> None:
        node = self.world.nodes[name]
        node.is_doomed = False
        if not node.is_up and name in self.world.members:
            self.world.start(name)

    def _stop(self) -> None:
        """In order: what it serves goes to others first."""
        world = self.world
        if not world.is_whole():
            return
        name = world.random.choice(world.members)

        def come_back() -> None:
            world.losses += world.queue == VOLATILE  # keys of what is done were in memory only
            self._until(lambda: world.start(name))

        self._hand_over(name, come_back)

    def _leave(self) -> None:
        """It leaves the cluster: what it has goes to others first."""
        world = self.world
        if not world.is_whole() or len(world.members) < 4:
            return
        name = world.random.choice(world.members)
        world.nodes[name].replicas.mender.is_for_good = True

        def remove() -> None:
            world.remove(name)
            world.left.add(name)
            world.losses += 1  # keys of what is done, if it alone had that

        self._hand_over(name, remove)

    def _hand_over(self, name: str, then: Callable[[], None]) -> None:
        """A node ends once others have what it has."""
        world, replicas = self.world, self.world.nodes[name].replicas
        replicas.set_leaving(True)
        mender = replicas.mender
        world._send(name)

        def end() -> None:
            if mender.is_handed_over() or mender.is_in_vain():
                world.crash(name)
                then()
            else:
                self.ends.append((world.now + 1, end))

        self.ends.append((world.now + 1, end))

    def _soon(self) -> None:
        """The same as soon as all copies are mended, however short the last trouble is over."""
        if self.world.is_mended():
            self._lose_host()

    def _wipe(self) -> None:
        """A host with its disk, and all nodes on it."""
        if self.world.is_whole():
            self._lose_host()

    def _lose_host(self) -> None:
        world = self.world
        host = world.random.choice(HOSTS)
        names = [name for name in world.members if world.nodes[name].host == host]
        world.lose_acknowledgements()
        for name in names:
            world.crash(name)
            world.nodes[name].wipe()
            world.lost_disks.add(name)

        def end() -> None:
            for name in names:
                world.start(name)

        self._until(end)

    def _remove(self) -> None:
        world = self.world
        if not world.is_whole() or len(world.members) < 5:
            return
        name = world.random.choice([each for each in world.members if HOSTS[int(each[1])] != "d"])
        world.lose_acknowledgements()
        world.crash(name)
        world.lost_disks.add(name)
        self.ends.append((world.now + 5, lambda: world.remove(name)))

    def _split(self) -> None:
        world = self.world
        names = world.random.sample(world.members, len(world.members))
        at = world.random.randint(1, len(names) - 1)
        for one in names[:at]:
            for other in names[at:]:
                self._part(one, other)
        self._until(world.cut.clear)

    def _pair(self) -> None:
        self._part(*self.world.random.sample(self.world.members, 2))
        self._until(self.world.cut.clear)

    def _part(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self.world.cut.add(pair)
        if pair in self.world.linked:
            self.world.break_link(one, other)

    def _pause(self) -> None:
        world = self.world
        name = world.random.choice(world.alive())
        node = world.nodes[name]
        world.hold_up(name)
        world.trouble()
        for other in world.alive():
            if other != name and frozenset((name, other)) in world.linked:
                world.break_link(name, other)

        def end() -> None:
            node.held_up = False
            world.trouble()

        self._until(end)

    def _deaf(self) -> None:
        """A node hears nothing of another, which hears it."""
        near, far = self.world.random.sample(self.world.members, 2)
        if frozenset((near, far)) in self.world.linked:
            self.world.lose_sight(near, far)
            self._until(self.world.find_again)

    def _slow(self) -> None:
        name = self.world.random.choice(self.world.alive())
        self.world.slow.add(name)

        def end() -> None:
            self.world.slow.clear()
            self.world.trouble()

        self._until(end)

    def _clock(self) -> None:
        """A clock is set, and its node starts again."""
        name = self.world.random.choice(self.world.alive())
        node = self.world.nodes[name]
        node.wall_offset = self.world.random.choice((-86_400, -60, 60, 86_400))
        node.is_clock_set = True
        self._kill()


def run(
    seed: int,
    kinds: tuple[str, ...] = KINDS,
    steps: int = 500,
    piles: bool = False,
    is_late: bool = False,
    deliveries: int = 0,
    publishers: int = 0,
) -> Counter[str]:
    """What was found; `piles`: nobody works as long as there are faults; the rest as of `JobWorld`."""
    queue = VOLATILE if kinds == ("stop",) else QUEUE
    with tempfile.TemporaryDirectory() as folder:
        world = JobWorld(seed, Path(folder), HOSTS, queue, deliveries)
        world.is_late = is_late
        world.publishers = [Publisher(world, f"{seed} {each}") for each in range(publishers)]
        try:
            live(world, kinds, steps, piles)
            return judge(world)
        finally:
            world.close()


def live(world: JobWorld, kinds: tuple[str, ...], steps: int, piles: bool) -> None:
    """Faults come and go, and end; all that is left is done."""
    faults = Faults(world, kinds)
    world.is_idle = piles
    if piles:
        world.rate /= 3
    for _ in range(30):
        world.step(adds=False)
    for _ in range(steps):
        faults.step()
        world.step()
    world.is_idle = False
    faults.end_all()
    world.cut.clear()
    world.slow.clear()
    for name in world.members:
        if not world.nodes[name].is_up:
            world.start(name)
    come_to_rest(world)
    world.ask_for_keys()
    come_to_rest(world)


def come_to_rest(world: JobWorld) -> None:
    """All is done, and nobody has anything of it any more."""
    patience = 800
    for _ in range(2500):
        world.step(adds=False)
        nodes = [world.nodes[each] for each in world.members]
        if world.is_settled() and not any(each.undone() for each in nodes):
            patience -= 1  # tombstones are collected
            if not patience or not any(each.left() for each in nodes):
                break


def judge(world: JobWorld) -> Counter[str]:
    found: Counter[str] = Counter()
    given = {each.key for each in world.promises.values() if each.deliveries}
    for job_id, promise in world.promises.items():
        found["added"] += promise.is_told
        found["deliveries"] += promise.deliveries
        if promise.is_once:
            found["twice"] += promise.deliveries > 1
        elif (
            promise.is_told
            and not promise.deliveries
            and (not promise.key or promise.key not in given)
        ):
            found["lost"] += not world.may_be_lost(job_id)
    for name in world.members:
        node = world.nodes[name]
        found["stuck"] += node.undone()
        if len(world.members) == len(world.nodes):
            found["leaked"] += node.left()
    found["together"] = world.together
    found["returned"] = world.returned
    found["unexplained"] = world.unexplained
    found["doubled"] = world.doubled
    found["paged"] = world.paged
    found["paged_copies"] = world.paged_copies
    found["revived"] = world.revived
    for name in world.members:
        counts = world.nodes[name].replicas.counts
        for key in COUNTED:
            found[key] += getattr(counts, key)
    return found


def faulty(found: Counter[str]) -> list[str]:
    return [each for each in FAULTY if found[each]]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fault", action="append")
    parser.add_argument("--without")
    parser.add_argument("--piles", action="store_true")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--deliveries", type=int, default=0, help="until a job is a dead letter")
    parser.add_argument("--publishers", type=int, default=0, help="at QoS 2 that change nodes")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    from contextlib import nullcontext

    from tests.simulator.jobs.ablations import ABLATIONS

    kinds = tuple(options.fault or KINDS)
    broken = 0
    for seed in range(options.first, options.first + options.seeds):
        off = ABLATIONS[options.without].off() if options.without else nullcontext()
        with off:
            faults = kinds if kinds != ("none",) else ()
            how = options.piles, options.late, options.deliveries, options.publishers
            found = run(seed, faults, options.steps, *how)
        if faulty(found):
            broken += 1
            print(seed, faulty(found), dict(found), flush=True)
    print(f"{broken} of {options.seeds} broken; the last: {dict(found)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
