"""Wills of clients that come and go, and whose nodes end: each is published unless its connection ended in order."""

from collections import Counter
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from tests.simulator.device import Device, Wire
from tests.simulator.seeds import over_seeds
from tests.simulator.world import CLUSTER, World
from tests.support.present import present
from tests.support.wire import DISCONNECT_BYTES, Will
from vmq.clustering.messages.wills import KeepWill
from vmq.clustering.node.left_wills import LeftWills
from vmq.clustering.node.wills import ClusterWills
from vmq.persistence.wills import StoredWills

#: Seconds within which a node that has ended is missed, and its clients' wills are published.
MISSED = 3 * CLUSTER["heartbeat_timeout"]
#: Within which what is said here is known there.
HEARD = 1.5


@dataclass
class Life:
    """One connection of a client, whose will no other has."""

    client: str
    node: str
    wire: Wire | None
    will: str
    begun: float
    accepted: float = 0.0
    #: left, dropped or died; nothing while it is there.
    end: str = ""
    ended: float = 0.0


class WillsWalk:
    """Clients with wills that connect, drop out and leave at random, and nodes that die, one or all at a time."""

    def __init__(self, world: World, most_dead: int) -> None:
        self.world = world
        self.random = world.random
        world.choose_lags()
        self.watcher = world.subscriber("watcher", "a", "wills")
        self.devices = [world.device(f"w{at}", clean=at % 2 == 1) for at in range(5)]
        self.lives: list[Life] = []
        self.present: dict[str, Life] = {}
        self.deaths: list[float] = [0.0]
        self.most_dead = most_dead
        #: When each that is dead is to start again, and when nodes did.
        self.dead: dict[str, float] = {}
        self.starts: list[tuple[str, float]] = []

    def begin(self, device: Device) -> None:
        self.end(device.client_id, "dropped")
        name = self.random.choice(sorted(self.world.nodes))
        text = f"{device.client_id}-{len(self.lives)}"
        device.will = Will("wills", text.encode(), qos=self.random.choice((1, 2)))
        if device.begin(name):
            life = Life(device.client_id, name, device.wire, text, self.world.now)
            self.lives.append(life)
            self.present[device.client_id] = life

    def end(self, client: str, how: str) -> None:
        life = self.present.pop(client, None)
        if life is not None:
            life.end, life.ended = how, self.world.now

    def notice(self) -> None:
        """Which connections are accepted, or over."""
        for device in self.devices:
            life = self.present.get(device.client_id)
            if life is not None and life.wire is not device.wire:
                self.end(device.client_id, "dropped")
            elif life is not None and device.is_connected:
                life.accepted = life.accepted or self.world.now

    def kill(self) -> None:
        names = sorted(self.world.nodes)
        count = self.random.choice((1, self.most_dead))
        self.notice()
        for name in self.random.sample(names, count):
            self.dead[name] = self.world.now + self.random.choice((0.1, 1.0, 4.0, 8.0, 16.0))
            for client in [each for each, life in self.present.items() if life.node == name]:
                self.end(client, "died")
        self.deaths.append(self.world.now)
        self.world.kill(*self.dead)

    def revive(self) -> None:
        name = min(self.dead, key=self.dead.__getitem__)
        del self.dead[name]
        self.world[name].start()
        self.starts.append((name, self.world.now))

    def step(self) -> None:
        world, drawn, device = self.world, self.random.random(), self.random.choice(self.devices)
        is_present = device.client_id in self.present
        if self.dead and world.now > min(self.dead.values()):
            self.revive()
        elif not self.dead and drawn < 0.03:
            if world.now > self.deaths[-1] + 2 * MISSED and world.is_quiet():
                self.kill()
        elif not world.alive():
            return
        elif device.wire is not None and not is_present:
            return  # its DISCONNECT is under way
        elif drawn < 0.4:
            self.begin(device)
        elif drawn < 0.5:
            self.end(device.client_id, "dropped")
            device.drop()
        elif drawn < 0.6 and device.is_connected:
            self.end(device.client_id, "left")
            device.send(DISCONNECT_BYTES)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.notice()
            if self.watcher.wire is None and self.world.alive():
                self.watcher.begin(self.random.choice(self.world.alive()))
            self.world.run(self.random.choice((0.0, 0.002, 0.02, 0.1, 0.5, 0.5)))
            self.notice()
        while self.dead:
            self.revive()
        self.world.network.lags.clear()
        self.world.settle()
        self.world.run(2 * MISSED)
        self.notice()
        self.world.finish()

    def check(self) -> None:
        came = Counter(self.watcher.texts)
        wrong = [(life, came[life.will]) for life in self.lives if not self.is_right(life, came)]
        assert not wrong

    def is_right(self, life: Life, came: Counter[str]) -> bool:
        count = came[life.will]
        own_end = any(life.ended - 0.01 <= at <= life.ended + HEARD for at in self.deaths)
        if life.end == "died":  # who comes back before its node is missed is not gone
            starts = [each for each in self.starts if each[1] >= life.ended]
            again = min((at for name, at in starts if name == life.node), default=life.ended)
            # Who starts while it waits may keep the will, and is asked first.
            missed = MISSED + max([at for _, at in starts if at < again + MISSED] or [again])
            is_back = any(
                other.client == life.client and life.ended <= other.begun < missed
                for other in self.lives
                if other is not life
            )
            return count == 1 or (count == 0 and (is_back or not life.accepted))
        if own_end:
            return count < 3  # its node may have died before others knew how it ended
        if life.end == "dropped":
            return count == 1 or (count == 0 and not life.accepted)
        return count == 0 or (count == 1 and self.is_contested(life))

    def is_contested(self, life: Life) -> bool:
        """Whether an earlier attempt of its client may have come behind it, and have taken its session over."""
        return any(
            other.client == life.client and 0 < life.begun - other.begun < HEARD
            for other in self.lives
        )


@pytest.mark.parametrize("most_dead", [1, 2, 3])
@over_seeds(3)
def test_each_will_is_published_that_is_due_and_no_other(most_dead: int, seed: int) -> None:
    with World(seed, *"abc", replicas=2) as world:
        walk = WillsWalk(world, most_dead)
        walk.go(250)
        walk.check()


def scripted() -> World:
    return World(1, *"abc", replicas=3)


def test_a_node_that_is_back_before_it_is_missed_keeps_wills_as_before() -> None:
    """It publishes none of who is there; and all, when their node ends."""
    with scripted() as world:
        watcher = world.subscriber("watcher", "a", "wills")
        for at in range(9):
            world.device(f"w{at}", will=Will("wills", b"gone", qos=1)).connect("c")
        world.until(world.is_quiet)
        world.kill("b")
        world.start("b")
        world.until(world.is_quiet)
        world.run(2 * MISSED)
        assert watcher.texts == []
        world.kill("c")
        world.run(2 * MISSED)
        assert watcher.texts == 9 * ["gone"]


def test_the_will_of_who_goes_elsewhere_waits_for_the_next_owner_of_a_slot() -> None:
    """Another owner hears of the new connection before it hears that the old one is over."""
    with scripted() as world:
        watcher = world.subscriber("watcher", "a", "wills", qos=1)
        owner = world.owner("watcher")
        client = next(each for each in "defghijklm" if world.owner(each) not in ("", owner))
        other = world.owner(client)
        [node] = set(world.nodes) - {owner, other}
        watcher.connect(other)
        device = world.device(client, will=Will("wills", b"gone", qos=1)).connect(node)
        world.until(world.is_quiet)
        world.kill(owner)
        world.network.cuts.add((node, other))
        device.begin(other)
        world.run(0.5)
        world.network.heal()
        world.until(lambda: watcher.texts == ["gone"])


def watched(steps: str) -> list[str]:
    """The wills of six clients of c that are heard of, after some steps of the world."""
    with scripted() as world:
        watcher = world.subscriber("watcher", "a", "wills", qos=1)
        for at in range(6):
            will = Will("wills", b"%d" % at, qos=1)
            world.device(f"w{at}", clean=at % 2 == 1, will=will).connect("c")
        world.until(world.is_quiet)
        world.run(MISSED)
        for how, *what in (each.split() for each in steps.split(", ")):
            place = world.network if how in ("split", "heal") else world  # nobody notices that yet
            getattr(place, how)(*(map(float, what) if how == "run" else what))
        world.run(2 * MISSED)
        watcher.connect(world.alive()[0])
        world.run(MISSED)
        return sorted(watcher.texts)


def begin(wills: StoredWills, _left: object, _number: int) -> None:
    """Forgets what was left."""
    wills.begin()


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ("kill a b c, start a b c", (ClusterWills, "publish_from_before")),
        ("kill a b c, start c", (ClusterWills, "publish_from_before")),
        ("kill a b c, start a, run 20, start c", (ClusterWills, "publish_from_before")),
        ("kill a b c, start a b c, kill a b c, start c b a", (StoredWills, "resume")),
        ("kill c, run 20, start c", (ClusterWills, "_settle")),
        ("kill c, run 20, kill a b, start c b a", (ClusterWills, "_settle")),
        ("kill c, start c, run 1, split ab c, run 1.5, heal", (LeftWills, "on_up")),
        ("kill c, start c, kill a b", (LeftWills, "on_down")),
        ("kill c, start c, kill a b, run 1, start b a", (ClusterWills, "publish_from_before")),
        ("kill b c, start b c", (ClusterWills, "_answer")),
        ("kill b, run 20, kill c", (ClusterWills, "_entrust_again")),
        ("kill c, start c, stop c", (ClusterWills, "_wait_for")),
    ],
)
def test_wills_are_published_once_whatever_ends_and_not_so_without_a_rule(
    steps: str, rule: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watched(steps) == [*"012345"]
    instead = begin if rule[1] == "resume" else lambda *_: None
    monkeypatch.setattr(*rule, instead)
    assert watched(steps) != [*"012345"]


def test_who_has_come_back_after_all_ended_has_taken_the_will_along() -> None:
    with scripted() as world:
        watcher = world.subscriber("watcher", "a", "wills", qos=1)
        devices = [world.device(f"w{at}", will=Will("wills", b"", qos=1)) for at in range(6)]
        for each in devices:
            each.connect("c")
        world.until(world.is_quiet)
        world.kill(*"abc")
        world.start(*"abc")
        for at, each in enumerate(devices):
            each.connect("abc"[at % 3])
        world.run(0.5)
        for each in devices:
            each.send(DISCONNECT_BYTES)
        world.run(2 * MISSED)
        watcher.connect("a")
        world.run(MISSED)
        assert watcher.texts == []


keep = ClusterWills._on_keep


def keep_any(wills: ClusterWills, peer: str, will: KeepWill) -> None:
    """Also of an earlier life."""
    wills._lives[peer] = will.life
    keep(wills, peer, will)


def of_c(world: World) -> list[str]:
    """Clients whose slots c owns."""
    world.until(world.is_quiet)
    return [name for name in map(str, range(10, 40)) if world.owner(name) == "c"]


def come(world: World, clients: list[str]) -> None:
    """They connect to c with wills, some of which are to be kept by a."""
    for each in clients:
        world.device(each, clean=True, will=Will("wills", each.encode(), qos=1)).connect("c")
    assert "a" in keepers(world)


def keepers(world: World) -> set[str]:
    """Who is to keep wills of clients of c."""
    own = present(world["c"].running.clustering._wills)._own
    return {each.keeper for each in own.values()}


@pytest.mark.parametrize("has_rule", [True, False])
@pytest.mark.parametrize("dead", ["abc", "c"])
def test_what_is_under_way_to_two_keepers_when_its_node_ends_is_published_once(
    dead: str, has_rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_rule:
        monkeypatch.setattr(ClusterWills, "_on_keep", keep_any)
    with scripted() as world:
        watcher = world.subscriber("watcher", "a", "wills", qos=1)
        clients = of_c(world)
        world.network.split("a", "c")
        come(world, clients)
        world.run(0.5)
        world.network.split("b", "c")  # which comes to light later
        world.until(lambda: keepers(world) == {"b"})
        world.kill(*dead)
        world.network.heal()
        world.start(*dead)
        world.run(2 * MISSED)
        watcher.connect("b")
        world.run(MISSED)
        assert (sorted(watcher.texts) == clients) == has_rule


def six(world: World) -> Device:
    """Six clients of c with wills, and who hears of them at a."""
    watcher = world.subscriber("watcher", "a", "wills", qos=1)
    for at in range(6):
        world.device(f"w{at}", clean=True, will=Will("wills", b"gone", qos=1)).connect("c")
    world.until(world.is_quiet)
    return watcher


def sees(world: World, *ways: str) -> bool:
    """Whether the first of each two nodes takes the second for up."""
    return all(each[1] in world[each[0]].running.clustering.node.up for each in ways)


def test_who_heard_nothing_for_a_while_has_its_wills_kept_as_before() -> None:
    """Others have heard it all the time."""
    with scripted() as world:
        watcher = six(world)
        world.network.cuts |= {("a", "c"), ("b", "c")}
        world.until(lambda: not sees(world, "ca") and not sees(world, "cb"))
        world.network.heal()
        world.until(lambda: sees(world, "ca", "cb"))
        world.run(HEARD)
        world.kill("c")
        world.run(2 * MISSED)
        assert watcher.texts == 6 * ["gone"]


def test_a_keeper_that_comes_to_take_nothing_waits_until_it_has_heard_who_is_there() -> None:
    with scripted() as world:
        watcher = six(world)
        keepers = [world[each].running.clustering.outboxes.arrivals for each in "ab"]
        world.network.split("ab", "c")
        world.until(lambda: not sees(world, "ac") and not sees(world, "bc"))
        for each in keepers:
            each.close()
        world.network.heal()
        world.until(lambda: sees(world, "ac", "bc"))
        world.run(2 * MISSED)
        for each in keepers:
            each.open()
        world.run(MISSED)
        assert watcher.texts == []


def test_a_keeper_that_takes_wills_when_their_node_has_ended_publishes_them() -> None:
    with scripted() as world:
        arrivals = [world[each].running.clustering.outboxes.arrivals for each in "ab"]
        watcher = world.subscriber("watcher", "a", "wills", qos=1)
        clients = of_c(world)
        for each in arrivals:
            each.close()
        come(world, clients)
        world.run(HEARD)
        world.kill("c")
        world.until(lambda: not sees(world, "ac") and not sees(world, "bc"))
        for each in arrivals:
            each.open()
        world.run(2 * MISSED)
        assert sorted(watcher.texts) == clients


def test_a_keeper_whose_clients_have_all_come_back_elsewhere_says_that_it_keeps_nothing() -> None:
    with scripted() as world:
        watcher = six(world)
        with patch.object(ClusterWills, "_entrust", lambda *_: None):
            world.device("alone", clean=True, will=Will("wills", b"left", qos=1)).connect("c")
        world.kill("c")
        world.start("c")
        for at in range(6):
            world.devices[f"w{at}"].connect("b")
        world.run(2 * MISSED)
        assert watcher.texts == ["left"]


@patch.object(ClusterWills, "_answer", lambda *_: None)
def test_who_is_not_answered_publishes_what_is_left_in_the_end() -> None:
    assert watched("kill a b c, start a b c, run 25") == [*"012345"]


@pytest.mark.parametrize("has_ended", [True, False])
def test_what_was_under_way_to_a_keeper_that_went_is_not_for_it_when_it_is_back(
    has_ended: bool,
) -> None:
    """Another keeper has got it meanwhile, and published it."""
    with scripted() as world:
        watcher = world.subscriber("watcher", "b", "wills", qos=1)
        clients = of_c(world)
        keeper = world["a"].running.clustering.outboxes.arrivals
        keeper.close()
        world.split("a", "bc")
        world.heal()  # c says that it begins
        world.until(world.is_whole)
        come(world, clients)
        world.run(0.5)
        world.kill("a") if has_ended else world.split("a", "bc")
        world.until(lambda: not sees(world, "ca"))
        world.kill("c")
        world.run(2 * MISSED)
        assert sorted(watcher.texts) == clients
        world.network.heal()
        world.start("a", "c")
        keeper.open()
        world.run(2 * MISSED)
        assert sorted(watcher.texts) == clients
