"""What happens to a cluster in an episode: each fault begins at once, and is over when it is healed."""

import signal
from collections.abc import Callable
from random import Random
from time import sleep, strftime
from typing import Final

from tests.cluster_processes.chaos.cast import Cast
from tests.cluster_processes.cluster import LinkedCluster, Node
from tests.cluster_processes.links import Fault
from tests.vmq.cli.program import run

#: Seconds for a node to leave.
LEAVE: Final = 40


class Faults:
    """Draws faults, and remembers what they were."""

    def __init__(self, cluster: LinkedCluster, random: Random, say: Callable[[str], None]) -> None:
        self.counts: dict[str, int] = {}
        self.cluster = cluster
        self._random = random
        self._say = say
        self._stopped: set[str] = set()
        self._has_cuts = False

    def note(self, kind: str, what: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._say(f"{strftime('%H:%M:%S')} {kind} {what}")

    @property
    def well(self) -> list[str]:
        """Nodes whose clients are served."""
        return sorted(each.name for each in self.cluster.running if each.name not in self._stopped)

    def step(self) -> None:
        """One fault more, or one less."""
        choices: list[Callable[[], None]] = [
            self.cut,
            self.cut,
            self.silence,
            self.flap,
            self.heal_links,
        ]
        choices += [self.delay, self.start_dead, self.continue_stopped]
        if len(self.well) > 1:
            choices += [self.kill, self.kill, self.terminate, self.stop, self.stop]
        self._random.choice(choices)()

    def rest(self, low: float = 0.1, high: float = 6.0) -> None:
        """A while, short ones being as frequent as long ones."""
        sleep(low * (high / low) ** self._random.random())

    # --- nodes

    def _one(self) -> Node:
        return self.cluster[self._random.choice(self.well)]

    def kill(self) -> None:
        node = self._one()
        self.note("kill", node.name)
        node.kill()

    def kill_all(self) -> None:
        self.note("kill_all", "")
        self.cluster.each(lambda node: node.kill())

    def terminate(self) -> None:
        node = self._one()
        self.note("terminate", node.name)
        code = node.terminate()
        assert code == 0, f"{node.name} ended with {code}"

    def stop(self) -> None:
        node = self._one()
        self.note("stop", node.name)
        node.signal(signal.SIGSTOP)
        self._stopped.add(node.name)

    def continue_stopped(self) -> None:
        for name in sorted(self._stopped):
            self.note("continue", name)
            self.cluster[name].signal(signal.SIGCONT)
        self._stopped.clear()

    def start_dead(self) -> None:
        dead = [name for name, node in self.cluster.nodes.items() if not node.is_running]
        if dead:
            self.note("start", " ".join(dead))
            self.cluster.start_only(*dead)

    def start(self, name: str) -> None:
        """Starts a node that is dead, and waits until all see each other."""
        self.note("start", name)
        self.cluster.start(name)

    def restart(self, name: str) -> None:
        """As for an upgrade."""
        self.note("restart", name)
        code = self.cluster[name].terminate()
        assert code == 0, f"{name} ended with {code}"
        self.rest(0.1, 5)
        self.cluster.start(name)

    def kill_and_wipe(self) -> str:
        node = self._one()
        self.note("wipe", node.name)
        node.kill()
        node.wipe()
        return node.name

    def leave_and_come_new(self) -> None:
        """A node leaves in order; one of the same name with nothing on its disk joins."""
        node = self._one()
        self.note("leave", node.name)
        done = run("cluster", "leave", "--timeout", str(LEAVE), "--data-dir", str(node.data_dir))
        assert done.code == 0, f"leave: {done}"
        node.ended()
        node.wipe()
        self.rest()
        self.note("join", node.name)
        self.cluster.start_only(node.name)

    def remove_and_join(self) -> str:
        """A dead node is removed; it comes back with its disk or without, and is let in again.

        Returns its name, if it was a broker of its own meanwhile.
        """
        node = self._one()
        self.note("kill", node.name)
        node.kill()
        self.cluster.wait_down(node.name)
        self.rest()
        other = self._one()
        self.note("remove", f"{node.name} at {other.name}")
        done = run("cluster", "remove", node.name, "--data-dir", str(other.data_dir))
        assert done.code == 0, f"remove: {done}"
        self.rest()
        wiped = self._random.random() < 0.5
        if wiped:
            node.wipe()
        self.note("join", f"{node.name} {'without' if wiped else 'with'} its disk")
        self.cluster.start_only(node.name)
        if not wiped:
            done = run("cluster", "join", other.address, "--data-dir", str(node.data_dir))
            assert done.code == 0, f"join: {done}"
        return "" if wiped else node.name

    # --- links

    def _sides(self) -> tuple[list[str], list[str]]:
        names = sorted(self.cluster.nodes)
        self._random.shuffle(names)
        at = self._random.randrange(1, len(names))
        return names[:at], names[at:]

    def cut(self) -> None:
        one, others = self._sides()
        fault = self._random.choice(list(Fault))
        self.note(fault.name.lower(), f"{one} {others}")
        self.cluster.links.part(fault, one, others)

    def silence(self) -> None:
        one, others = self._sides()
        self.note("silence", f"{others} do not hear {one[0]}")
        self.cluster.links.silence(one[0], others)

    def flap(self) -> None:
        one, others = self._sides()
        fault = self._random.choice(list(Fault))
        self.note("flap", f"{fault.name.lower()} {one} {others}")
        for _ in range(self._random.randrange(3, 9)):
            self.cluster.links.part(fault, one, others)
            self.rest(0.02, 1.0)
            self.cluster.links.heal()
            self.rest(0.02, 1.0)

    def delay(self) -> None:
        seconds = self._random.choice((0.0, 0.01, 0.05, 0.2))
        self.note("delay", f"{seconds}")
        self.cluster.links.delay(seconds)

    def heal_links(self) -> None:
        self.note("heal", "")
        self.cluster.links.heal()
        self.cluster.links.delay(0)

    def heal(self) -> None:
        """All is well again."""
        self.continue_stopped()
        self.heal_links()
        self.start_dead()
        self.cluster.wait_whole()


def disturb(cast: Cast, random: Random, well: list[str]) -> None:
    """Something that clients do, while nodes do what they do."""
    turn = random.randrange(5)
    device = random.choice((*cast.roam, *cast.roving))
    if turn == 0 and not device.is_paused:
        device.lose()
    elif turn == 1:
        for each in (*cast.roam, *cast.roving):  # a storm
            if not each.is_paused:
                each.lose()
    elif turn == 2:
        sleeper = random.choice(cast.away)
        if sleeper.is_paused:
            sleeper.wake()
        else:
            sleeper.sleep()
    elif turn == 3 and well:
        cast.retain(random.choice(well))
    elif turn == 4 and well:
        cast.leave_a_will(random.choice(well))
