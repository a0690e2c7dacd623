"""Random work of clients on a simulated cluster, and faults among it."""

from collections.abc import Callable
from typing import Any

from tests.simulator.world import World

NAMES = "abcdef"

#: What may happen to a network or a node, by name, and how often against the work of clients.
Faults = dict[str, float]


class Walk:
    """A session whose client goes about, publishers that stay, and with `others` sessions at every node.

    All messages are of QoS 2, on one topic. The session is `s`, a publisher `p-NODE`, another session `o-NODE`.
    """

    def __init__(self, world: World, *, others: bool) -> None:
        self.world = world
        self.random = world.random
        self.number = 0
        names = sorted(world.nodes)
        world.choose_lags()
        self.roamer = world.subscriber("s", names[0])
        self.publishers = {name: world.client(f"p-{name}", name) for name in names}
        for name in names if others else ():
            world.subscriber(f"o-{name}", name)

    # --- clients

    def publish(self) -> None:
        name = self.random.choice(sorted(self.publishers))
        self.number += 1
        self.publishers[name].publish("t", f"{name}{self.number}", 2)

    def move(self) -> None:
        """The client goes to some node, or to none, at once or when it has gone."""
        alive = self.world.alive()
        if alive and not self.roamer.begin(self.random.choice(alive)):
            self.roamer.drop()

    def hush(self) -> None:
        """It stops answering, or answers again what it gets from then on."""
        self.roamer.hush() if self.roamer.answers else self.roamer.answer()

    def return_home(self) -> None:
        """Who stays at a node connects to it again."""
        for client_id, device in self.world.devices.items():
            home = client_id[2:]
            if not home or device.wire is not None or home not in self.world.alive():
                continue
            device.begin(home)

    # --- faults

    def split(self) -> None:
        names = sorted(self.world.nodes)
        side = self.random.sample(names, self.random.randint(1, len(names) - 1))
        self.world.network.cuts.clear()
        self.world.network.split(side, [each for each in names if each not in side])

    def mend(self) -> None:
        self.world.network.cuts.clear()

    def kill(self) -> None:
        running = [each.name for each in self.world.running()]
        if len(running) > 1:
            self.world.kill(self.random.choice(running))

    def revive(self) -> None:
        dead = self.dead()
        if dead:
            self.world[self.random.choice(dead)].start()

    def lose(self, count: int, among: str = NAMES) -> None:
        """So many nodes are killed, and lose their disks; they are back, empty, when they were missed."""
        running = [each.name for each in self.world.running() if each.name in among]
        for name in self.random.sample(running, count):
            self.world.lose(name)
        self.world.until(self.world.has_noticed)
        self.world.run(self.random.choice((0.0, 1.0, 4.0)))
        for name in self.dead():
            if among == NAMES or name in among:
                self.world[name].start()

    def join(self) -> None:
        """A node that was never there; its clients may come at once."""
        name = f"n{len(self.world.nodes)}"
        self.world.add(name)
        self.publishers[name] = self.world.device(f"p-{name}")

    def dead(self) -> list[str]:
        nodes = self.world.nodes.values()
        return [each.name for each in nodes if each.broker is None and not each.has_left]

    # --- steps

    def go(self, steps: int, moves: float = 0.08, **faults: float) -> None:
        """So many steps, in each of which something happens and a moment passes."""
        work: dict[Callable[[], Any], float] = {
            self.publish: 0.4,
            self.move: moves,
            self.hush: moves / 2,
            **{getattr(self, name): often for name, often in faults.items()},
        }
        for _ in range(steps):
            if self.random.random() < 0.6:
                [act] = self.random.choices(list(work), list(work.values()))
                act()
            self.return_home()
            self.world.run(self.random.choice((0.0, 0.002, 0.02, 0.1, 0.5)))

    def end(self) -> None:
        self.world.network.lags.clear()
        self.world.finish()
        self.world.until(lambda: self.world.owners("s") == [self.world.owner("s")])
