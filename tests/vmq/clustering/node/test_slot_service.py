"""The sessions' machines in running brokers: slots find owners and followers, and others when a node dies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.clustering.house import House
from tests.vmq.clustering.nodes import clustering
from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.node.slot_service import SessionPort, SlotService
from vmq.clustering.slots.words import (
    PUBACK,
    PUBREC,
    PUBREL,
    SEND,
    SEND_PUBCOMP,
    SEND_PUBREL,
    SUBSCRIBE,
    SUBSCRIBED,
    slot_of,
)

SLOTS = 8


class Client(SessionPort):
    """One client of a node."""

    def __init__(self, service: SlotService, number: int, name: str) -> None:
        self.service = service
        self.number = number
        self.presents: list[bool] = []
        self.got: list[str] = []
        self.answers: list[int] = []
        self.acknowledged: list[int] = []
        service.port = self
        service.machines.connect(number, name)
        service.turn()

    def present(self, connection: int, is_present: bool) -> None:
        self.presents.append(is_present)

    def step(self, connection: int, step: SessionStep) -> None:
        if step.kind == SEND:
            self.got.append(step.payload.decode())
            self.send(SessionStep(PUBACK if step.qos == 1 else PUBREC, step.packet))
        elif step.kind == SEND_PUBREL:
            self.send(SessionStep(2, step.packet))
        else:
            self.answers.append(step.kind)

    def acknowledge(self, connection: int, packet: int, qos: int) -> None:
        self.acknowledged.append(packet)
        if qos == 2:
            self.send(SessionStep(PUBREL, packet))

    def send(self, step: SessionStep) -> None:
        self.service.machines.front.step(self.number, step)
        self.service.machines.finish()
        self.service.turn()

    def publish(self, packet: int, qos: int, text: str) -> None:
        targets = self.service.machines.routes.targets("t")
        self.service.machines.front.publish(
            self.number, packet, qos, b"t", text.encode(), False, targets
        )
        self.service.machines.finish()
        self.service.turn()


class Slots:
    """Nodes with slots."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.services: dict[str, SlotService] = {}

    async def start(self, name: str) -> SlotService:
        broker = await self.house.start(name)
        node = clustering(broker)
        core, committer = broker._core, broker._committer
        assert core is not None
        assert committer is not None
        service = SlotService(core, committer, node.node, node.outboxes, SLOTS, 2, timeout=0.5)
        await committer.finish_all()
        service.start()
        self.services[name] = service
        return service

    async def kill(self, name: str, patch: pytest.MonkeyPatch) -> None:
        self.services.pop(name).stop()
        await self.house.kill(name, patch)

    def are_whole(self) -> bool:
        """Whether each slot has one owner that serves, and a whole follower."""
        for slot in range(SLOTS):
            owners = [
                each.machines.slots.owners[slot]
                for each in self.services.values()
                if slot in each.machines.slots.owners
            ]
            if len(owners) != 1 or not owners[0].serves(owners[0].here.store):
                return False
            followers = owners[0].view.followers
            if not followers or not owners[0].followers.are_whole(followers):
                return False
        return True

    def route(self, slot: int) -> None:
        for each in self.services.values():
            each.machines.routes.add("t", slot)

    def announce(self) -> None:
        """All nodes know the routes."""
        for each in self.services.values():
            routes, each.machines.effects.routes = each.machines.effects.routes, []
            for slot, ticket, _, _ in routes:
                self.route(slot)
                each.machines.announced(slot, ticket)
                each.turn()


@pytest.fixture
async def slots(tmp_path: Path) -> AsyncIterator[Slots]:
    async with standing(tmp_path) as found:
        yield found


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[Slots]:
    house = House(folder, replicas=1)
    found = Slots(house)
    for name in "abc":
        await found.start(name)
    await until(found.are_whole)
    try:
        yield found
    finally:
        for service in found.services.values():
            service.stop()
        for broker in house.brokers.values():
            await broker.stop()


def owner_of(slots: Slots, client: str) -> str:
    number = slot_of(client, SLOTS)
    return next(
        name for name, each in slots.services.items() if number in each.machines.slots.owners
    )


async def subscribed(slots: Slots, client: Client) -> None:
    await until(lambda: client.presents)
    client.send(SessionStep(SUBSCRIBE, 1, filters=[("t", 2)]))

    def is_there() -> bool:
        slots.announce()
        return SUBSCRIBED in client.answers

    await until(is_there)


async def test_a_message_goes_from_any_front_to_any_front(slots: Slots) -> None:
    one = Client(slots.services["a"], 1, "one")
    await subscribed(slots, one)
    other = Client(slots.services["b"], 2, "other")
    await until(lambda: other.presents)
    other.publish(5, 1, "first")
    other.publish(6, 2, "second")
    await until(lambda: len(one.got) == 2 and SEND_PUBCOMP in other.answers)
    assert one.got == ["first", "second"]
    assert other.acknowledged == [5, 6]


async def test_when_the_owner_dies_its_follower_goes_on(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = owner_of(slots, "one")
    front, other = (name for name in "abc" if name != dead)
    one = Client(slots.services[front], 1, "one")
    await subscribed(slots, one)
    two = Client(slots.services[other], 2, "two")
    await until(lambda: two.presents)
    two.publish(1, 2, "before")
    await until(lambda: one.got == ["before"])
    await slots.kill(dead, monkeypatch)
    two.publish(2, 2, "after")
    await until(lambda: one.got == ["before", "after"] and slots.are_whole())
    assert one.presents == [False]


async def test_a_node_that_starts_again_has_its_slots_on_disk(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Client(slots.services["a"], 1, "one")
    await subscribed(slots, one)
    for name in "abc":
        await slots.kill(name, monkeypatch)
    for name in "abc":
        await slots.start(name)
    await until(slots.are_whole)
    again = Client(slots.services["b"], 1, "one")
    await until(lambda: again.presents)
    assert again.presents == [True]
