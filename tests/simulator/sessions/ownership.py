"""Who owns and holds the slots of a world, as nobody in it can know, and whether all is in one piece."""

from tests.simulator.sessions.node import WorldNode
from tests.simulator.sessions.world import SLOTS, SessionWorld
from vmq.clustering.slots.words import NO_LINEAGE, slot_of, store_of


def owner_of(world: SessionWorld, slot: int) -> WorldNode | None:
    """Of the newest lineage that anybody knows, if it serves."""
    running = [each for each in world.nodes.values() if each.is_up]
    view = max((each.machines.slots.view(slot) for each in running), default=None)
    if view is None:
        return None
    node = world.nodes[world.stores.get(store_of(view.owner), next(iter(world.nodes)))]
    is_owner = node.is_up and slot in node.machines.slots.owners
    is_it = is_owner and node.machines.slots.owners[slot].view.lineage == view.lineage
    return node if is_it else None


def holders_of(world: SessionWorld, slot: int) -> list[str]:
    """The nodes with a current state of a slot."""
    node = owner_of(world, slot)
    if node is None:
        return []
    owner = node.machines.slots.owners[slot]
    followers = [
        world.stores[store]
        for store in owner.view.followers
        if owner.followers.are_whole((store,))
        and world.nodes[world.stores[store]].is_up
        and world.nodes[world.stores[store]].store == store
    ]
    return [node.name, *followers]


def note_apart(world: SessionWorld) -> None:
    """Marks clients at a node that hears nobody and has no current copy: as one that is slow may be."""
    for name, node in world.nodes.items():
        if node.is_up and not node.machines.here.reach.up():
            owners = node.machines.slots.owners
            lacking = {slot for slot, each in owners.items() if each.state.lacks != NO_LINEAGE}
            for client in world.clients.values():
                if client.node == name and slot_of(client.id, SLOTS) in lacking:
                    client.is_apart = True


def is_quiet(world: SessionWorld) -> bool:
    """The cluster is whole, and nothing waits to be safe."""
    if not is_whole(world):
        return False
    for slot in range(SLOTS):
        node = owner_of(world, slot)
        assert node is not None
        owner = node.machines.slots.owners[slot]
        if owner.waits() or owner.safe_version() < owner.state.version:
            return False
    return True


def is_whole(world: SessionWorld) -> bool:
    """Every slot is in one piece on as many nodes as it should be, and all know it."""
    if world.cut or world.stalled or world.paused or world.unread:
        return False
    up = {node.store: node.machines.here.reach for node in world.nodes.values() if node.is_up}
    if any(up.keys() - {reach.store, *reach.up()} for reach in up.values()):
        return False  # who has not heard another one yet since a link healed is apart from it still
    running = {node.host for name, node in world.nodes.items() if name not in world.gone}
    wanted = min(world.replicas, len(running))
    for slot in range(SLOTS):
        node = owner_of(world, slot)
        if node is None:
            return False
        owner = node.machines.slots.owners[slot]
        holders = holders_of(world, slot)
        if len(holders) != wanted or not owner.serves(node.store):
            return False
        if len({world.host_of[each] for each in holders}) != wanted:
            return False
        for other in world.nodes.values():
            copy = other.machines.slots.copies.get(slot)
            if other is not node and other.is_up and slot in other.machines.slots.owners:
                return False  # what it took as an earlier owner it has not handed in
            if other.name in world.gone or copy is None:
                continue
            if not other.is_up or not copy.is_included(owner.state.included):
                return False
    return True
