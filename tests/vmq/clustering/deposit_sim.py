"""A node whose publishes wait for another one, and those who keep them, without a network, a disk or a clock.

The machines are real; outboxes are lists that survive what stores survive. Nodes go down and come back, the publishers'
node starts again, and in the end it is lost for good.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from tests.simulator.disk import Database
from vmq.clustering.delivery.outbox_storage import outgoing_key
from vmq.clustering.directory.directory import Follower
from vmq.clustering.directory.records import Record
from vmq.clustering.hinted_handoff.hints_in import HintsIn
from vmq.clustering.hinted_handoff.hints_out import HintsOut
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.codec import HEAD, close, encode_into
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.replication import (
    AskTaken,
    HintsHandedOver,
    HintsNeeded,
    IsTaken,
    KeepHints,
)
from vmq.clustering.messages.takeover import SessionBatch
from vmq.store.store import Store

Done = Callable[[bool], None]


class SimLane:
    """What waits at the publishers' node for one other."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}
        #: Publishes that are not acknowledged, by the key that they wait for.
        self.waits: list[tuple[bytes, int]] = []
        self.acknowledged: list[int] = []

    @property
    def awaited(self) -> bytes:
        return self.waits[0][0] if self.waits else b""

    @property
    def key(self) -> bytes:
        return max(self.stored, default=b"")

    def parcels(self, behind: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(self.stored):
            if key > behind:
                yield key, self.stored[key]

    def settle(self) -> None:
        self.settle_up_to(b"\xff")

    def settle_up_to(self, key: bytes) -> None:
        while self.waits and self.waits[0][0] <= key:
            self.acknowledged.append(self.waits.pop(0)[1])


class Keeper:
    """A node that keeps what others leave, and its store."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.db = Database()
        self.start()

    def start(self) -> None:
        self.store = Store(self.db, "os", lambda: None)
        self.it = HintsIn(self.name, self.store, self.give, self.share, self.tell, self.ask, 5.0)

    def give(self, batch: SessionBatch) -> None:
        self.world.given += [int(each.payload) for each in batch.entries]

    def share(self, origin: str, publish: RemotePublish) -> None:
        raise AssertionError("there are no groups")

    def tell(self, peer: str, message: HintsHandedOver) -> None:
        # Outboxes are reliable: it comes as soon as the other is up.
        self.world.later.append(
            (peer, lambda: self.world.keepers[peer].it.on_given(self.name, message))
        )

    def ask(self, peer: str, message: AskTaken) -> None:
        if peer == "p":
            self.world.deposits.tell(self.name)
        if peer == "o" and self.world.is_up["o"] and self.world.random.random() < 0.8:
            self.it.on_taken("o", IsTaken(message.origin, message.store, 1, self.world.taken))

    def commit(self) -> None:
        self.store.begin_commit()
        self.store.write()
        self.store.end_commit()


class World:
    """The publishers' node `p`, the sessions' node `o`, and those who keep things."""

    def __init__(self, seed: int, count: int, keepers: int) -> None:
        self.random = random.Random(seed)
        self.count = count
        self.keepers = {name: Keeper(self, name) for name in [f"k{at}" for at in range(keepers)]}
        self.is_up = dict.fromkeys([*self.keepers, "o"], True)
        self.outbox = SimLane()
        #: Deposits and the like on their way, in order for each keeper.
        self.mail: dict[str, list[tuple[NodeMessage, Done | None]]] = {
            name: [] for name in self.keepers
        }
        self.later: list[tuple[str, Callable[[], None]]] = []
        self.number = 0
        #: The last that `o` has taken, and all that reached the session.
        self.taken = 0
        self.given: list[int] = []
        self.now = 0.0
        self.start()

    # --- what the machine takes for outboxes and directory

    store_name = 7
    lost: frozenset[str] = frozenset()
    left: Mapping[str, bytes] = {}

    @property
    def up(self) -> set[str]:
        return {name for name, is_up in self.is_up.items() if is_up}

    def find_lane(self, peer: str) -> Any:
        return self.outbox if peer == "o" else SimLane()

    def send(self, peer: str, message: NodeMessage, done: Done | None = None) -> bool:
        if peer in self.mail:
            self.mail[peer].append((message, done))
        return True

    def on_owner(self, callback: Follower) -> None:
        self.tell_owner = callback

    def records(self) -> Iterator[tuple[str, str, Record]]:
        yield "", "s", Record("o", 1, False, {"t": 1})

    # --- what happens

    def start(self) -> None:
        """A life of the publishers' node: what it had sent on outboxes goes on, of who waited nobody knows."""
        self.outbox.waits.clear()
        for name, mail in self.mail.items():
            self.mail[name] = [(message, None) for message, _ in mail]
        self.deposits = HintsOut("p", self.count, 2.0, cast("Any", self), cast("Any", self))
        self.deposits.set_members(self.is_up)
        for peer in sorted(self.up):
            self.deposits.peer_up(peer)
        for keeper in self.keepers.values():
            keeper.it.peer_up("p")

    def publish(self) -> None:
        self.number += 1
        key = outgoing_key("o", 1, self.number)
        raw = bytearray(HEAD)
        encode_into(RemotePublish(b"t", b"%d" % self.number, 1), raw, -1)
        self.outbox.stored[key] = close(raw, (7, 1, self.number), 1)
        if self.is_up["o"] or self.deposits.keeps("o"):
            self.outbox.waits.append((key, self.number))
        elif not self.outbox.waits:
            self.outbox.acknowledged.append(self.number)
        if not self.is_up["o"]:
            self.deposits.more("o")

    def down(self, name: str) -> None:
        self.is_up[name] = False
        if not self.deposits.peer_down(name) and name == "o":
            self.outbox.settle()

    def rise(self, name: str) -> None:
        self.is_up[name] = True
        if name in self.keepers:
            self.keepers[name].start()
        self.deposits.peer_up(name)

    def step(self) -> None:
        self.now += 0.2
        for name, keeper in self.keepers.items():
            while self.is_up[name] and self.mail[name] and self.random.random() < 0.7:
                message, done = self.mail[name].pop(0)
                if isinstance(message, KeepHints):
                    keeper.it.on_deposit("p", message)
                elif isinstance(message, HintsNeeded):
                    keeper.it.on_settled("p", message)
                keeper.commit()
                if done is not None:
                    done(True)
            if self.is_up[name]:
                keeper.it.step([*self.is_up, "p"], [*self.up - {name}, "p"], self.now)
        if self.is_up["o"] and self.random.random() < 0.7:
            self.deliver()
        self.deposits.tick(self.now)

    def deliver(self) -> None:
        for key, _ in list(self.outbox.parcels(b""))[: self.random.randrange(4)]:
            number = int.from_bytes(key[-8:], "big")
            if number > self.taken:
                self.taken = number
                self.given.append(number)
            if self.random.random() < 0.2:
                return  # it dies, or the word is lost
            del self.outbox.stored[key]
            self.outbox.settle_up_to(key)

    def wipe(self, name: str) -> None:
        """Somebody who keeps things has lost his disk."""
        if name:
            self.keepers[name] = Keeper(self, name)

    def lose(self) -> None:
        """The publishers' node is gone; whoever is down comes back in the end."""
        for name in self.is_up:
            if not self.is_up[name]:
                self.is_up[name] = True
                if name in self.keepers:
                    self.keepers[name].start()
        members = [*self.is_up]
        for _ in range(200):
            self.now += 0.2
            for name, keeper in self.keepers.items():
                keeper.it.step(members, [each for each in self.up if each != name], self.now)
                keeper.commit()
            while self.later:
                self.later.pop(0)[1]()
