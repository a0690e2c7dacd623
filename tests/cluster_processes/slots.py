"""`python -m tests.cluster_processes.slots --faults 30`: durable sessions in slots while node after node fails.

Each time one of three nodes, drawn by the seed, is killed, killed and wiped, killed for ever and removed, stopped in
order, paused, or cut off, and comes back; clients go from node to node as they lose them. What was acknowledged has
come within `WITHIN` seconds of each fault, while that lasts, or of a split's end; in the end nothing came out of order,
and at QoS 2 nothing twice. With `--copies 3` each side of a split has a copy of every session, as that promise needs.
The suite has a few of them (`test_slots`); this is for longer runs by hand. It tells the longest time without a message
of those subscribers that kept their connections, and of those that lost them.
"""

import argparse
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from time import monotonic, sleep
from typing import Any, Final

import paho.mqtt.client as mqtt

from tests.cluster_processes.chaos.checks import ask, complaints, logs_wrong, rows_of
from tests.cluster_processes.cluster import LinkedCluster, say
from tests.cluster_processes.devices import TIMEOUT, Message, Publisher, Subscriber, faults_of
from tests.cluster_processes.links import Fault
from vmq.cli.admin.client import AdminClient

#: What happens to a node, and how often.
FAULTS: Final = {"kill": 4, "stop": 3, "pause": 2, "wipe": 2, "remove": 1, "split": 2}
#: Seconds after a fault within which all that was acknowledged has come.
WITHIN: Final = 10.0
#: Seconds for which nothing changes when a cluster has settled.
STILL: Final = 1.0
#: Seconds of a pause: longer than a node may be silent.
PAUSE: Final = 3.0
#: Seconds of splits, as often as each is here.
SPLITS: Final = (5, 5, 5, 30, 120)
#: Lines of a log that are told from one on that nobody wants to see.
AROUND: Final = 40
ENV: Final = {"VMQ_CLUSTER__SLOTS": "64"}


class Listener(Subscriber):
    """Knows for how long nothing came."""

    def __init__(self, *args: Any) -> None:
        self._last = 0.0
        self._longest = 0.0
        self._before = 0
        super().__init__(*args)

    def begin(self) -> None:
        """Counts from now on."""
        self._last, self._longest, self._before = monotonic(), 0.0, len(self.sessions)

    def silence(self) -> tuple[bool, float]:
        """Whether it kept its connection, and the longest time without a message."""
        return len(self.sessions) == self._before, self._longest

    def _on_message(self, client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        now = monotonic()
        self._longest, self._last = max(self._longest, now - self._last), now
        super()._on_message(client, data, message)


class Ward:
    """A cluster, and clients that go from node to node of it."""

    def __init__(self, cluster: LinkedCluster, names: str, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.names = names
        nodes = [cluster[each] for each in names]
        ways = [nodes[at:] + nodes[:at] for at in range(len(nodes))]
        self.subscribers = [Listener(f"sub{at}", way, "t/#", 2) for at, way in enumerate(ways)]
        self.publishers = [Publisher(f"pub{at}", way, "t", 0.02) for at, way in enumerate(ways)]
        for device in (*self.subscribers, *self.publishers):
            device.open()
        for each in self.publishers:
            each.start()

    def flow(self) -> None:
        """Each publisher is acknowledged some more messages."""
        for each in self.publishers:
            each.wait_more(10)

    def acknowledged(self) -> set[Message]:
        return {message for each in self.publishers for message in each.sent_and_acknowledged()}

    def wait_delivered(self) -> float:
        """Waits until what is acknowledged now has come everywhere; returns after how many seconds it had."""
        begin, wanted = monotonic(), self.acknowledged()
        for each in self.subscribers:
            each.wait_for(wanted)
        return monotonic() - begin

    def wait_settled(self) -> None:
        """Waits until each slot is served, where it is to be, and has a follower: a fault alone costs no promise."""
        deadline, since, before = monotonic() + TIMEOUT, monotonic(), ""
        while monotonic() < since + STILL:
            assert monotonic() < deadline, f"not settled: {before}"
            rows = [
                row
                for node in self.cluster.running
                for row in rows_of(ask(node, "/cluster/members"))
                if row["is_self"]
            ]
            found = str([{key: row[key] for key in row if "slots" in key} for row in rows])
            lacks = any(row["slots_waiting"] or row["slots_without_follower"] for row in rows)
            if lacks or found != before:
                since, before = monotonic(), found
            sleep(0.1)

    def fail(self, name: str, fault: str) -> float:
        """Has one node fail, and come back; returns after how many seconds what was acknowledged had come."""
        self.wait_settled()
        node = self.cluster[name]
        for each in self.subscribers:
            each.begin()
        if fault == "split":
            return self._split(name)
        if fault == "pause":  # its clients wait with it
            node.signal(signal.SIGSTOP)
            sleep(PAUSE)
            node.signal(signal.SIGCONT)
            return self.wait_delivered()
        if fault == "stop":
            node.terminate()
        else:
            node.kill()
        took = self.wait_delivered()
        self.flow()
        if fault == "remove":
            other = next(each for each in self.cluster.running if each is not node)
            AdminClient(None, str(other.data_dir)).delete(
                "/cluster/member", node=name, force="true"
            )
        if fault in ("wipe", "remove"):
            node.wipe()
        self.cluster.start(name)
        self.flow()
        return took

    def _split(self, name: str) -> float:
        """Cuts a node off; both sides go on for a while."""
        others = [each for each in self.names if each != name]
        self.cluster.links.part(self.random.choice([*Fault]), [name], others)
        sleep(self.random.choice(SPLITS))
        self.flow()
        self.cluster.links.heal()
        self.cluster.wait_whole()
        return self.wait_delivered()

    def finish(self) -> Counter[str]:
        """Ends; returns what was wrong."""
        sent = {message for each in self.publishers for message in each.finish()}
        wrong: Counter[str] = Counter()
        for found in self.subscribers:
            found.wait_for(sent)
            for each in faults_of(found.got)[:5]:
                say(f"{found.client_id}: {each}")
            wrong.update(each.split(":")[0] for each in faults_of(found.got))
        return wrong

    def close(self) -> None:
        for device in (*self.subscribers, *self.publishers):
            device.close()


def run(
    seed: int,
    faults: int,
    names: str,
    say: Callable[[str], None],
    kinds: Sequence[str] = (),
    copies: int = 2,
) -> Counter[str]:
    """One run, of some kinds of faults or of all: what was wrong in it."""
    random = Random(seed)
    silences: defaultdict[str, list[float]] = defaultdict(list)
    with LinkedCluster(names, {**ENV, "VMQ_CLUSTER__REPLICAS": str(copies)}) as cluster:
        ward = Ward(cluster, names, random)
        try:
            for number in range(faults):
                name = random.choice(names)
                drawn = {each: FAULTS[each] for each in kinds or FAULTS}
                [fault] = random.choices(list(drawn), list(drawn.values()))
                took = ward.fail(name, fault)
                found = [each.silence() for each in ward.subscribers]
                for stayed, silence in found:
                    silences[f"{fault}, {'stayed' if stayed else 'moved'}"].append(silence)
                longest = max(silence for _, silence in found)
                say(f"{number}: {fault} of {name}: {took:.2f} s, silence {longest:.2f} s")
                assert took < WITHIN, f"what was acknowledged came after {took:.1f} s"
            wrong = ward.finish()
            for what, times in sorted(silences.items()):
                say(
                    f"{what}: {len(times)} silences, median {median(times):.2f} s, longest {max(times):.2f} s"
                )
            say(f"acknowledged: {len(ward.acknowledged())}")
            logged = logs_wrong(cluster)
            wrong.update(f"log: {each}" for each in logged)
            if logged:
                _tell_around(cluster)
            return wrong
        except BaseException:
            for each in cluster.running:
                for one in ward.subscribers:
                    shown = AdminClient(None, str(each.data_dir)).get(
                        "/session", client_id=one.client_id
                    )
                    say(f"{each.name}: {one.client_id}: {shown}")
                say(f"{each.name}: {rows_of(ask(each, '/cluster/members'))}")
            for each in cluster.nodes.values():
                each.logs += [each.process.stderr_text()] if each.is_running else []
                say(f"--- {each.name}\n" + "\n".join(each.logs)[-6000:])
            raise
        finally:
            ward.close()


def _tell_around(cluster: LinkedCluster) -> None:
    """What nobody wants to see in logs, with the lines that follow."""
    for node in cluster.nodes.values():
        for text in (*node.logs, *([node.process.stderr_text()] if node.is_running else [])):
            lines = text.splitlines()
            for at, line in enumerate(lines):
                if complaints(line):
                    say(f"--- {node.name}\n" + "\n".join(lines[at : at + AROUND]))


def main() -> int:
    """Runs it; raises AssertionError if something was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster_processes.slots", description=__doc__
    )
    parser.add_argument("--faults", type=int, default=30, help="how often a node fails")
    parser.add_argument("--seed", type=int, default=1, help="of which, and how")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument(
        "--kind", action="append", choices=sorted(FAULTS), help="this alone happens; several times"
    )
    parser.add_argument("--copies", type=int, default=2)
    options = parser.parse_args()
    names = "abcdefgh"[: options.nodes]
    wrong = run(options.seed, options.faults, names, say, options.kind or (), options.copies)
    say(f"wrong: {dict(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
