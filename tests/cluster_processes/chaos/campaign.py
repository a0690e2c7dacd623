"""A cluster drawn from a seed, and its episodes: faults under traffic, then calm, then a look at what was promised."""

import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic, strftime
from typing import Final

from tests.cluster_processes.chaos.cast import Cast
from tests.cluster_processes.chaos.checks import logs_wrong, memory, sessions_wrong, wait_quiet
from tests.cluster_processes.chaos.faults import Faults, disturb
from tests.cluster_processes.chaos.workers import Workers, play
from tests.cluster_processes.cluster import LinkedCluster

#: Kinds of episodes. Some of them take what only one disk had: after them less is promised.
KINDS: Final = ("roam", "faults", "all", "rolling", "wipe", "leave", "remove")
_SOFT: Final = ("wipe", "leave", "remove")


class Campaign:
    """What happens to one cluster.

    Args:
        seed: decides how many nodes there are, their options, and all faults.
        kinds: of episodes that may be drawn.
        nodes: how many there are; 0 = drawn.
        output: a folder for logs, data and what clients got, where something went wrong.
        say: told what happens.
    """

    def __init__(
        self, seed: int, kinds: list[str], nodes: int, output: Path, say: Callable[[str], None]
    ) -> None:
        self.episodes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._seed = seed
        self._kinds = kinds
        self._folder = output / f"seed{seed}"
        self._say = say
        self._random = random = Random(seed)
        self._names = tuple("abcdefghi"[: nodes or random.choice((2, 3, 3, 5))])
        self._env = {
            "VMQ_CLUSTER__ACK_AFTER": random.choice(("local", "remote")),
            "VMQ_CLUSTER__REPLICAS": str(random.choice((2, 2, 3))),
            "VMQ_CLUSTER__SUBACK_AFTER": "cluster",
            "VMQ_SESSION__SHARED_SUBSCRIPTION_POLICY": random.choice(("random", "prefer_local")),
        }

    def run(self, until: float, most: int) -> list[str]:
        """Plays episodes until something is wrong, and returns what."""
        self._say(f"== seed {self._seed}: nodes {' '.join(self._names)} {self._env}")
        with LinkedCluster(self._names, self._env, urls=("http://127.0.0.1:0",)) as cluster:
            for number in range(1, most + 1):
                if monotonic() >= until:
                    break
                kind = self._random.choice(self._kinds)
                if kind in ("leave", "remove") and len(self._names) < 3:
                    kind = "faults"
                self.episodes[kind] += 1
                self._say(f"-- {strftime('%H:%M:%S')} seed {self._seed} episode {number}: {kind}")
                wrong = self._episode(cluster, number, kind)
                if wrong:
                    self._keep(cluster)
                    return [f"episode {number} ({kind}): {each}" for each in wrong]
        return []

    def _episode(self, cluster: LinkedCluster, number: int, kind: str) -> list[str]:
        faults = Faults(cluster, self._random, lambda text: self._say(f"   {text}"))
        cast = Cast(cluster, f"e{number}", self._random, faulty=kind != "roam")
        try:
            cast.start()
            cast.flow(10, self._names)
            self._play(faults, cast, kind)
            faults.heal()
            cast.come_back()
            cast.flow(10, self._names)
            cast.finish()
            wrong = self._verdict(cluster, cast, kind)
            if wrong:
                cast.tell(self._folder)
                return wrong
            cast.close()
            cast.forget()
            wrong = [*wait_quiet(cluster), *sessions_wrong(cluster, ()), *logs_wrong(cluster)]
            rest = ", ".join(f"{each.name} {memory(each):.1f}" for each in cluster.running)
            self._say(f"   {len(cast.sent())} messages; MiB {rest}")
            return wrong
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            cast.tell(self._folder)
            return [traceback.format_exc(), *logs_wrong(cluster)]
        finally:
            self.faults.update(faults.counts)
            cast.close()

    def _verdict(self, cluster: LinkedCluster, cast: Cast, kind: str) -> list[str]:
        is_exact = kind not in _SOFT
        return [
            *cast.verdict(is_exact, kind == "roam", wills=kind == "roam"),
            *wait_quiet(cluster),
            *sessions_wrong(cluster, cast.client_ids()),
            *cast.retained_wrong(judge_values=kind not in _SOFT),
            *logs_wrong(cluster),
        ]

    def _play(self, faults: Faults, cast: Cast, kind: str) -> None:
        random = self._random
        faults.cluster.wait_whole()
        faults.rest(0.1, 3)
        match kind:
            case "roam":
                for _ in range(random.randrange(4, 12)):
                    disturb(cast, random, faults.well)
                    faults.rest(0.05, 2)
            case "faults":
                for _ in range(random.randrange(2, 9)):
                    faults.step()
                    faults.rest()
                    if random.random() < 0.5:
                        disturb(cast, random, [])
            case "all":
                faults.kill_all()
            case "rolling":
                for name in self._names:
                    faults.restart(name)
            case "wipe":
                name = faults.kill_and_wipe()
                for _ in range(random.randrange(1, 4)):
                    faults.rest(0.1, 8)
                    disturb(cast, random, [])
                faults.start(name)
            case "leave":
                faults.leave_and_come_new()
            case "remove":
                apart = faults.remove_and_join()
                cast.apart = {
                    each.client_id
                    for each in cast.publishers
                    if apart and each.client_id.endswith((f"-pub-{apart}", "-roving"))
                }
        faults.rest(0.05, 3)

    def _keep(self, cluster: LinkedCluster) -> None:
        """Puts logs and data where somebody can look at them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for node in cluster.nodes.values():
            if node.is_running:
                node.close()
            (self._folder / f"{node.name}.log").write_text("\n== next life\n".join(node.logs))
            if node.data_dir.exists():
                # Sockets cannot be copied.
                ignored = shutil.ignore_patterns("*.sock*")
                to = self._folder / f"{node.name}.data"
                shutil.copytree(node.data_dir, to, dirs_exist_ok=True, ignore=ignored)
        self._say(f"   logs and data are in {self._folder}")


class WorkersCampaign:
    """The same with two or three workers of one broker."""

    def __init__(self, seed: int, output: Path, say: Callable[[str], None]) -> None:
        self.episodes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._random = Random(seed)
        self._seed = seed
        self._folder = output / f"workers{seed}"
        self._say = say

    def run(self, until: float, most: int) -> list[str]:
        """Plays episodes until something is wrong, and returns what."""
        count = self._random.choice((2, 3))
        self._say(f"== seed {self._seed}: {count} workers")

        def note(kind: str, what: str) -> None:
            self.faults[kind] += 1
            self._say(f"   {strftime('%H:%M:%S')} {kind} {what}")

        with Workers(count, self._random, note) as running:
            for number in range(1, most + 1):
                if monotonic() >= until:
                    break
                self.episodes["workers"] += 1
                self._say(f"-- {strftime('%H:%M:%S')} seed {self._seed} episode {number}: workers")
                wrong = play(running, number, self._random, self._folder)
                if wrong:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    (self._folder / "log").write_text(running.log)
                    return [f"episode {number}: {each}" for each in wrong]
        return []
