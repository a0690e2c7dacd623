"""A log with copies, in short: each row that publishers' sessions know once, however often and late it is handed in.

What a node has handed in when it ends gets there or not, also long after somebody else has handed it in again.
"""

from collections import deque
from random import Random

from tests.simulator.sessions.node import WorldNode
from vmq.clustering.origin.outbox import Publication
from vmq_cluster.raft.dots import Dot, RowDots, marks_of

#: Steps until a row is taken, and until one gets there whose node has ended.
SOON = 6
LATE = 120


class HandedIn:
    def __init__(self, node: WorldNode, dot: Dot, message: Publication, due: int) -> None:
        self.node = node
        self.boot = node.boot
        self.dot = dot
        self.message = message
        self.due = due
        self.is_late = False

    @property
    def is_waited_for(self) -> bool:
        return self.node.is_up and self.node.boot == self.boot


class RowLog:
    """One partition's. It draws numbers of its own, so that worlds without it are what they were."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._dots = RowDots()
        self.rows: list[str] = []
        #: How often a row was there.
        self.known = 0
        self._reserved = 0
        #: By name and boot of their nodes, in order.
        self._under_way: dict[tuple[str, int], deque[HandedIn]] = {}

    def reserve(self, node: WorldNode) -> tuple[str, int]:
        self._reserved += 1
        return f"s\0000\0{node.name}\0{node.boot:04}", self._reserved

    def step(self, nodes: dict[str, WorldNode], now: int) -> None:
        for node in nodes.values():
            front = node.machines.front
            rows, front.rows = front.rows, []
            for row in rows:
                *_, store, boot = row.name.split("\0")
                due = now + self._random.randint(1, SOON)
                made = HandedIn(node, (store, boot, row.number), row.message, due)
                self._under_way.setdefault((node.name, node.boot), deque()).append(made)
        for queue in self._under_way.values():
            while queue and queue[0].due <= now and self._take(queue, now):
                pass

    def _take(self, queue: deque[HandedIn], now: int) -> bool:
        first = queue[0]
        if not first.is_waited_for and not first.is_late:
            if self._random.random() < 0.5:
                queue.clear()  # the node had not sent it
                return False
            first.is_late = True
            first.due = now + self._random.randint(1, LATE)
            return False
        queue.popleft()
        self._add(first)
        return True

    def _add(self, row: HandedIn) -> None:
        [mark] = marks_of([row.dot])
        if self._dots.known(mark):
            self.known += 1
        else:
            self._dots.add(mark)
            self.rows.append(row.message.payloads[0].decode())
        if row.is_waited_for:
            row.node.machines.origin.confirm(row.message)
            row.node.machines.finish()
