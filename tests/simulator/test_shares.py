"""A share group with durable and clean members that come and go at nodes that die: what is acknowledged, one has."""

from tests.simulator.device import Device
from tests.simulator.seeds import over_seeds
from tests.simulator.world import World
from tests.support.wire import subscribe_packet

GROUP = "$share/g/t"
#: Nodes take each other's clean members, who have all gone, for present.
SHOWN = (4, 159)


class SharesWalk:
    """One durable member, five clean ones of which some answer nothing, and a publisher at each node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random = world.random
        world.choose_lags()
        self.durable = world.client("d", random.choice("abc")).subscribe((GROUP, 2))
        world.until(world.is_quiet)
        self.clean = [world.device(f"c{at}", clean=True) for at in range(5)]
        self.publishers = {name: world.client(f"p-{name}", name) for name in world.nodes}
        self.number = 0
        #: Who has subscribed on this connection.
        self.members: dict[str, object] = {}
        self.dead = ""
        self.died, self.revive_at = 0.0, 0.0

    def begin(self, device: Device) -> None:
        alive = self.world.alive()
        if not alive or not device.begin(self.random.choice(alive)):
            device.drop()

    def subscribe(self) -> None:
        for device in self.clean:
            if device.is_connected and self.members.get(device.client_id) is not device.wire:
                self.members[device.client_id] = device.wire
                device.send(subscribe_packet(1, (GROUP, self.random.choice((1, 2)))))

    def kill(self) -> None:
        """A node ends whose clean members have acknowledged all: what they have not is in memory and goes with it."""
        self.dead = self.random.choice("abc")
        for device in self.clean:
            device.answer()
        self.world.run(2.0)
        self.died = self.world.now
        self.revive_at = self.died + self.random.choice((0.1, 1.0, 4.0, 8.0))
        self.world.kill(self.dead)

    def step(self) -> None:
        world, random, drawn = self.world, self.random, self.random.random()
        if self.dead and world.now > self.revive_at:
            world[self.dead].start()
            self.dead = ""
        elif not self.dead and drawn < 0.02 and world.now > self.died + 12 and world.is_quiet():
            self.kill()
        elif drawn < 0.5:
            publisher = random.choice(list(self.publishers.values()))
            if publisher.is_connected and len(publisher.unfinished) < 20:
                self.number += 1
                publisher.publish("t", str(self.number), random.choice((1, 2)))
        elif drawn < 0.7:
            device = random.choice(self.clean)
            if device.wire is None or random.random() < 0.3:
                self.begin(device)
            else:
                random.choice((device.drop, device.hush, device.answer))()
        elif drawn < 0.8:
            self.begin(self.durable) if random.random() < 0.5 else self.durable.drop()

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            for name, publisher in self.publishers.items():
                if publisher.wire is None and name in self.world.alive():
                    publisher.begin(name)
            self.world.run(self.random.choice((0.0, 0.002, 0.02, 0.1, 0.5)))
            self.subscribe()

    def end(self) -> None:
        """All clean members leave at once: what they had is for the durable one."""
        self.world.network.lags.clear()
        for device in self.clean:
            device.drop()
        self.world.settle()
        for device in (self.durable, *self.publishers.values()):
            if not device.is_connected:
                device.connect(self.random.choice(self.world.alive()))
        self.world.until(lambda: not any(each.unfinished for each in self.publishers.values()))
        self.world.until(self.world.is_quiet)
        self.world.run(5.0)
        came = {text for each in (self.durable, *self.clean) for text in each.texts}
        assert [text for text in self.world.oracle.acked("t") if text not in came] == []


@over_seeds(1, *SHOWN)
def test_what_clean_members_leave_a_durable_one_gets(seed: int) -> None:
    with World(seed, *"abc", replicas=2) as world:
        walk = SharesWalk(world)
        walk.go(250)
        walk.end()
