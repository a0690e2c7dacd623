"""What goes wrong: kinds of faults, one at a time or several at once.

A *strict* run keeps to what every promise holds for: a fault begins when the cluster is whole, a split leaves each
client on a side with a current copy of its session, and clients change sides only when nodes know that a split is
over. Else anything may overlap, and nothing acknowledged may be lost all the same: only a disk is lost no sooner than
the copies of what it held are whole elsewhere."""

from dataclasses import dataclass, field

from tests.simulator.sessions.client import NEVER
from tests.simulator.sessions.node import STEP, TIMEOUT
from tests.simulator.sessions.ownership import holders_of, is_whole, note_apart, owner_of
from tests.simulator.sessions.world import SLOTS, SessionWorld, pair
from vmq.clustering.slots.words import slot_of

#: Every kind of which one at a time costs no promise.
KINDS = (
    "kill",
    "silent",
    "split",
    "pause",
    "hang",
    "slow",
    "oneway",
    "pair",
    "deaf",
    "wipe",
    "tail",
    "disk",
    "handover",
    "drain",
    "skew",
    "halfopen",
    "forever",
)
#: Several of the others at once cost no promise either, as long as each slot keeps a current copy that is left alone.
ALONE = ("split", "deaf", "wipe", "tail", "drain", "forever")
TOGETHER = tuple(kind for kind in KINDS if kind not in ALONE)
#: In no strict run: all nodes with current copies are down at once.
ALL_KINDS = (*KINDS, "rack")
LENGTHS = (3, 10, 30, 60, 120)
#: Steps after a split in which who changes sides still crosses it.
HEAL = 40


@dataclass
class Episode:
    kind: str
    ends: int
    names: list[str] = field(default_factory=list)


class Faults:
    def __init__(
        self,
        world: SessionWorld,
        kinds: tuple[str, ...] = KINDS,
        strict: bool = True,
        most: int = 1,
        rate: float = 0.03,
    ) -> None:
        self.world = world
        self.kinds = kinds
        self.strict = strict
        self.most = most
        self.rate = rate
        self.episodes: list[Episode] = []
        self.healed = -HEAL
        self.begun: list[tuple[int, str]] = []
        if "skew" in kinds:
            for node in world.nodes.values():
                node.skew = world.random.randint(-20_000, 20_000)

    def step(self) -> None:
        """Before a step of the world."""
        world, r = self.world, self.world.random
        note_apart(world)
        for client in world.clients.values():
            held_up = client.node in world.paused
            if client.number and r.random() < (0.03 if held_up else 0.008):
                half = held_up or ("halfopen" in self.kinds and r.random() < 0.5)
                world.disconnect(client, half)
        for episode in [each for each in self.episodes if each.ends <= world.now]:
            self.end(episode)
        if world.bound and not self._is_split() and world.now > self.healed + HEAL:
            world.bound = {}
        if len(self.episodes) < self.most and r.random() < self.rate:
            if not self.strict or self.most > 1 or (is_whole(world) and not world.bound):
                self.begin(r.choice(self.kinds))

    def _is_split(self) -> bool:
        return any(each.kind in ("split", "deaf") for each in self.episodes)

    def _alive(self) -> list[str]:
        return [name for name, node in self.world.nodes.items() if node.is_up]

    def begin(self, kind: str) -> None:
        world, r = self.world, self.world.random
        alive = self._alive()
        if len(alive) < 2:
            return
        x, y = r.sample(alive, 2)
        if self.strict and self.most > 1 and not self._leaves_copies({x, y}):
            return
        ends = world.now + r.choice(LENGTHS)
        begin = getattr(self, "_begin_" + kind, None)
        names = [x, y]
        if begin is not None:
            names = begin(x, y)
        if names:
            self.begun.append((world.now, kind))
            if names != ["at once"]:
                self.episodes.append(Episode(kind, ends, names))

    def _leaves_copies(self, names: set[str]) -> bool:
        """Whether each slot has a current copy on a node to which nothing happens."""
        held_up = names.union(*[each.names for each in self.episodes])
        return all(set(holders_of(self.world, slot)) - held_up for slot in range(SLOTS))

    def end(self, episode: Episode) -> None:
        self.episodes.remove(episode)
        end = getattr(self, "_end_" + episode.kind, None)
        if end is not None:
            end(*episode.names)

    def end_all(self) -> None:
        """Ends what goes wrong; clients keep to their sides until forks may be merged, as after each split."""
        while self.episodes:
            self.end(self.episodes[0])
        while self.world.bound and self.world.now <= self.healed + HEAL:
            self.world.step(publish=False)
        self.world.bound = {}

    # Nodes that die

    def _begin_kill(self, x: str, y: str) -> list[str]:
        self.world.kill(x)
        return [x]

    def _begin_silent(self, x: str, y: str) -> list[str]:
        self.world.kill(x, is_silent=True)
        return [x]

    def _revive(self, x: str) -> None:
        if not self.world.nodes[x].is_up and x not in self.world.gone:
            self.world.start(x)

    _end_kill = _end_silent = _revive

    def _may_lose_a_disk(self) -> bool:
        return is_whole(self.world) and not self.episodes

    def _begin_wipe(self, x: str, y: str) -> list[str]:
        if not self._may_lose_a_disk():
            return []
        self.world.kill(x)
        return [x]

    def _end_wipe(self, x: str) -> None:
        self.world.wipe(x)
        self.world.start(x)

    def _begin_forever(self, x: str, y: str) -> list[str]:
        if len(self.world.nodes) < 5 or self.world.gone or not self._may_lose_a_disk():
            return []
        self.world.kill(x, is_silent=True)
        self.world.gone.append(x)
        return ["at once"]

    def _begin_tail(self, x: str, y: str) -> list[str]:
        if not self._may_lose_a_disk():
            return []
        return self._begin_kill(x, y)

    def _end_tail(self, x: str) -> None:
        self.world.nodes[x].disk.lose_tail(self.world.random)
        self._revive(x)

    def _begin_rack(self, x: str, y: str) -> list[str]:
        """All lose their power, one the tail of its disk; they come back one after the other."""
        if not self._may_lose_a_disk():
            return []
        names = self._alive()
        for name in names:
            self.world.kill(name)
        self.world.nodes[x].disk.lose_tail(self.world.random)
        r = self.world.random
        for name in names[1:]:
            self.episodes.append(Episode("kill", self.world.now + r.choice(LENGTHS), [name]))
        self.episodes.append(Episode("kill", self.world.now + 5, names[:1]))
        return ["at once"]

    # Nodes that are held up

    def _begin_pause(self, x: str, y: str) -> list[str]:
        self.world.paused[x] = None
        return [x]

    def _end_pause(self, x: str) -> None:
        self.world.paused.pop(x, None)

    def _begin_hang(self, x: str, y: str) -> list[str]:
        """Held up, until the others end their links to it: it wakes with old frames in its sockets."""
        self.episodes.append(Episode("missed", self.world.now + TIMEOUT // STEP, [x]))
        return self._begin_pause(x, y)

    _end_hang = _end_pause

    def _end_missed(self, x: str) -> None:
        if x in self.world.paused:
            for other in self.world.nodes:
                if other != x:
                    self.world.break_link(x, other)

    def _begin_slow(self, x: str, y: str) -> list[str]:
        self.world.slow[x] = None
        return [x]

    def _end_slow(self, x: str) -> None:
        self.world.slow.pop(x, None)

    def _begin_disk(self, x: str, y: str) -> list[str]:
        self.world.nodes[x].slowness = 25
        return [x]

    def _end_disk(self, x: str) -> None:
        self.world.nodes[x].slowness = 1

    def _begin_skew(self, x: str, y: str) -> list[str]:
        self.world.nodes[x].skew += self.world.random.randint(-20_000, 20_000)
        return ["at once"]

    # The network

    def _bind(self, side: list[str]) -> bool:
        """Clients stay on their sides, if each has a current copy there."""
        world = self.world
        rest = [name for name in world.nodes if name not in side]
        bound = {}
        for client in world.clients.values():
            near = side if client.node in side else rest
            if not set(holders_of(world, slot_of(client.id, SLOTS))) & set(near):
                return False
            bound[client.name] = near
        world.bound = bound
        return True

    def _begin_split(self, x: str, y: str) -> list[str]:
        world = self.world
        names = list(world.nodes)
        if world.cut or world.stalled or (self.strict and world.gone):
            return []
        side = world.random.sample(names, world.random.randint(1, len(names) - 1))
        if self.strict and not self._bind(side):
            return []
        world.cut_off(side, world.random.random() < 0.5)
        world.splits.append([world.now, NEVER])
        return [x]

    def _heal(self, *names: str) -> None:
        self.world.heal()
        self.healed = self.world.now

    def _end_split(self, x: str) -> None:
        self.world.heal()
        self._end_sides()

    def _end_sides(self) -> None:
        self.healed = self.world.now
        self.world.splits[-1][1] = self.world.now + HEAL

    def _begin_pair(self, x: str, y: str) -> list[str]:
        if self.world.cut or self.world.stalled:
            return []
        self.world.cut[pair(x, y)] = None
        if self.world.random.random() < 0.5:
            self.world.break_link(x, y)
        return [x, y]

    _end_pair = _heal

    def _begin_oneway(self, x: str, y: str) -> list[str]:
        if self.world.cut or self.world.stalled:
            return []
        self.world.stalled[x, y] = None
        return [x, y]

    def _end_oneway(self, x: str, y: str) -> None:
        self.world.stalled = {}
        if self.world.random.random() < 0.5:
            self.world.break_link(x, y)
            self.world.link(x, y)

    def _begin_deaf(self, x: str, y: str) -> list[str]:
        """A node hears nobody: a side of its own."""
        world = self.world
        if world.cut or world.stalled or (self.strict and not self._bind([x])):
            return []
        world.stalled = {(name, x): None for name in world.nodes if name != x}
        world.splits.append([world.now, NEVER])
        return [x]

    def _end_deaf(self, x: str) -> None:
        self.world.stalled = {}
        self._end_sides()

    # By plan

    def _begin_handover(self, x: str, y: str) -> list[str]:
        world = self.world
        node = owner_of(world, world.random.randrange(SLOTS))
        if node is None:
            return []
        slot = world.random.choice(sorted(node.machines.slots.owners))
        owner = node.machines.slots.owners[slot]
        others = [each.store for each in world.nodes.values() if each is not node]
        owner.wish = world.random.choice(others)
        return ["at once"]

    def _begin_drain(self, x: str, y: str) -> list[str]:
        """A node hands over, leaves when it has nothing left, and comes back."""
        world = self.world
        if len(self._alive()) < 3:
            return []
        world.nodes[x].is_leaving = world.nodes[x].machines.here.is_leaving = True
        return [x]

    def _end_drain(self, x: str) -> None:
        node = self.world.nodes[x]
        node.is_leaving = node.machines.here.is_leaving = False
        if node.is_up and not node.machines.slots.owners:
            self.world.kill(x)
            self.world.start(x)
