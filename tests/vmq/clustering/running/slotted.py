"""Brokers in the test's process whose durable sessions are in slots."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House, house
from tests.vmq.clustering.nodes import clustering
from vmq.broker import Broker
from vmq.clustering.running.service import SlotService
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.words import Lineage, slot_of

SLOTS = 8
#: Slots in lineages that served while their nodes had these links.
_SERVED: set[tuple[int, Lineage, tuple[int, ...]]] = set()


def service(broker: Broker) -> SlotService:
    slots = clustering(broker).slots
    assert slots is not None
    return slots


def _serves(broker: Broker, owner: SlotOwner) -> bool:
    """Whether an owner serves, or will when the others have answered: the test's process may be held up at any time."""
    here = service(broker).here
    over = owner.slot, owner.view.lineage, tuple(map(here.reach.link, here.reach.peers))
    if owner.serves(here.store):
        _SERVED.add(over)
    return over in _SERVED


def owners_of(brokers: House, client_id: str) -> dict[str, SlotOwner]:
    """The nodes that serve a client's session: one, or one on each side of a split."""
    slot = slot_of(client_id, SLOTS)
    found = {
        name: service(broker).machines.slots.owners.get(slot)
        for name, broker in brokers.brokers.items()
    }
    return {
        name: owner
        for name, owner in found.items()
        if owner is not None and _serves(brokers[name], owner)
    }


def owner_of(brokers: House, client_id: str) -> str:
    """The node that has a client's session; "" while nobody serves it."""
    return next(iter(owners_of(brokers, client_id)), "")


def are_owned(brokers: House) -> bool:
    """Whether each slot is served and followed by the nodes that are to have it."""
    found = [
        slot
        for broker in brokers.brokers.values()
        if len(service(broker).here.reach.peers) >= len(brokers.brokers) - 1  # it knows of all
        for slot, owner in service(broker).machines.slots.owners.items()
        if _serves(broker, owner)
        and (wanted := service(broker).machines.slots.places.wanted(slot))
        and wanted[0] == service(broker).store
        and set(wanted[1:]) == set(owner.view.followers)
        and owner.followers.are_whole(owner.view.followers)
    ]
    return sorted(found) == list(range(SLOTS))


@asynccontextmanager
async def slotted(folder: Path, names: str = "ab", **options: Any) -> AsyncIterator[House]:
    async with house(folder, names, slots=SLOTS, **options) as made:
        await until(lambda: are_owned(made))
        yield made


def named(brokers: House, node: str, prefix: str) -> str:
    """A client id whose session a node has."""
    return next(
        each for number in range(1000) if owner_of(brokers, each := f"{prefix}{number}") == node
    )


async def leave(nodes: House, device: Device) -> None:
    """It goes, and the owner of its slot knows."""
    await device.disconnect()
    [owner] = owners_of(nodes, device.client_id).values()
    await until(lambda: device.client_id not in owner.attachments.serving)
