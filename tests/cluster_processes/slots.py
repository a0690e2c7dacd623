"""Durable sessions in slots while node after node fails, under clients that go on."""

from collections import Counter
from time import monotonic, sleep
from typing import Final

from tests.cluster_processes.chaos.checks import ask, rows_of
from tests.cluster_processes.cluster import LinkedCluster, say
from tests.cluster_processes.devices import TIMEOUT, Message, Publisher, Subscriber, faults_of

#: Seconds after a fault within which all that was acknowledged has come.
WITHIN: Final = 10.0
#: Seconds for which nothing changes when a cluster has settled.
STILL: Final = 1.0
ENV: Final = {"VMQ_CLUSTER__SLOTS": "64"}


class Ward:
    """A cluster, and clients that go from node to node of it."""

    def __init__(self, cluster: LinkedCluster, names: str) -> None:
        self.cluster = cluster
        nodes = [cluster[each] for each in names]
        ways = [nodes[at:] + nodes[:at] for at in range(len(nodes))]
        self.subscribers = [Subscriber(f"sub{at}", way, "t/#", 2) for at, way in enumerate(ways)]
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
        if fault == "stop":
            node.terminate()
        else:
            node.kill()
        took = self.wait_delivered()
        self.flow()
        if fault == "wipe":
            node.wipe()
        self.cluster.start(name)
        self.flow()
        return took

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
