"""What must be true of a world at rest: what was acknowledged has come, once at QoS 2, in order, and nothing waits."""

from collections import Counter, defaultdict
from functools import partial
from itertools import pairwise

from tests.simulator.sessions.client import Client
from tests.simulator.sessions.node import WorldNode
from tests.simulator.sessions.ownership import is_quiet, owner_of
from tests.simulator.sessions.world import SLOTS, SessionWorld
from vmq.clustering.slots.records import load_state, run_key
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import UNCLAIMED, slot_of

_PATTERNS = ("t/#", "t/+")
#: Until everything that goes wrong has come to rest.
REST = 1200


def rest(world: SessionWorld) -> None:
    """Nothing goes wrong and nothing is published, until nothing is left to do."""
    for step in range(REST):
        world.step(publish=False)
        if step % 20 == 19 and is_done(world):
            return


def is_done(world: SessionWorld) -> bool:
    return (
        all(each.is_ready and not (each.out or each.held) for each in world.clients.values())
        and is_quiet(world)
        and not results(world)["stuck"]
    )


def results(world: SessionWorld) -> Counter[str]:
    """What was found, by name; see `run.STRICT` for what may not be."""
    found: Counter[str] = Counter()
    publishers = [each for each in world.clients.values() if each.qos]
    for publisher in publishers:
        found["acknowledged"] += len(publisher.acknowledged)
        found["longest wait"] = max([found["longest wait"], *publisher.waited])
        found["stuck"] += len(publisher.out)
        for client in world.clients.values():
            if client.topic_filter in (*_PATTERNS, "t/" + publisher.name):
                _judge(client, publisher, found)
            elif client.toggles:
                _judge_toggle(world, client, publisher, found)
        _judge_group(world, publisher, found)
        _judge_rows(world, publisher, found)
    for client in world.clients.values():
        found["held"] += len(client.held)
        found["claimed"] += client.claimed
        if client.is_apart:
            found["apart"] += 1
        else:
            found["again"] += client.again
            found["denied"] += client.denied
        found["stray"] += client.scope != publishers[0].scope and len(client.got)
    for node in world.nodes.values():
        if node.is_up:
            found["stuck"] += node.machines.origin.waiting() + (node.machines.origin.bytes > 0)
    found["known rows"] = 0 if world.log is None else world.log.known
    found["kept"] = sum(map(partial(_kept, world), publishers))
    found["unlimited"] = sum(map(partial(_is_unlimited, world), world.clients.values()))
    for slot in range(SLOTS):
        owner = owner_of(world, slot)
        if owner is None:
            found["stuck"] += 1
            continue
        found["unwritten"] += _is_unwritten(world, owner, slot)
        owned = owner.machines.slots.owners[slot]
        found["stuck"] += any(
            client != UNCLAIMED or not world.gone  # else one that is dead could still claim it
            for client in (*owned.state.queues, *owned.state.cold)
        )
        # What nobody waits for is written with what comes next.
        unwritten = set(map(run_key, owned.state.gone))
        found["kept"] += not owned.state.waits() and any(
            key.startswith(b"m") and key not in unwritten
            for key in owned.disk.read(owner.machines.effects)
        )
    return found


def _is_unwritten(world: SessionWorld, owner: WorldNode, slot: int) -> bool:
    """Whether the records of a slot, here or at a follower, say anything else of its clients than its owner knows."""
    owned = owner.machines.slots.owners[slot]
    known = _sessions_of(owned.state)
    followers = [world.nodes[world.stores[each]] for each in owned.view.followers]
    copies = [each.machines.slots.copies[slot].whole for each in followers]
    held = [(owner, owned.disk), *zip(followers, copies, strict=True)]
    return any(
        records is None or _sessions_of(load_state(records.read(node.machines.effects))) != known
        for node, records in held
    )


def _sessions_of(state: SlotState) -> dict[str, tuple[object, ...]]:
    return {
        client: (each.session, each.connection, each.is_first, each.granted(), set(each.received))
        for client, each in state.registers.items()
        if each.session
    }


def _is_unlimited(world: SessionWorld, client: Client) -> bool:
    """Whether the owner of its session does not know, or does not keep to what plugins have decided for it."""
    slot = slot_of(client.id, SLOTS)
    owner = owner_of(world, slot)
    limits = client.limits()
    if owner is None or limits is None or not client.is_ready:
        return False
    register = owner.machines.slots.owners[slot].state.registers[client.id]
    return register.limits != limits or len(register.window) > (limits.window or 0)


def _kept(world: SessionWorld, client: Client) -> int:
    """How many packet ids its owner keeps of it for which it will send no PUBREL any more."""
    slot = slot_of(client.id, SLOTS)
    owner = owner_of(world, slot)
    if owner is None or not client.is_ready:
        return 0
    register = owner.machines.slots.owners[slot].state.registers[client.id]
    return len(register.received.keys() - client.out.keys())


def _judge(client: Client, publisher: Client, found: Counter[str]) -> None:
    got = _of(client, publisher)
    found["lost"] += sum(text not in got for text in publisher.acknowledged)
    if client.is_apart:
        return
    _judge_order(client, publisher, found)
    if publisher.qos == 2:
        found["twice"] += sum(count > 1 for count in got.values())


def _of(client: Client, publisher: Client) -> Counter[str]:
    return Counter(text for text, _ in client.got if text.startswith(publisher.name + "-"))


def _judge_order(client: Client, publisher: Client, found: Counter[str]) -> None:
    released = [text for text in client.released if text.startswith(publisher.name + "-")]
    for texts in (_of(client, publisher), dict.fromkeys(released)):
        numbers = [int(text.split("-")[1]) for text in texts]
        found["out of order"] += sum(one > other for one, other in pairwise(numbers))


def _judge_rows(world: SessionWorld, publisher: Client, found: Counter[str]) -> None:
    """What is acknowledged at QoS 2 is in the log, once and in order, whoever handed it in."""
    if world.log is None or publisher.qos != 2:
        return
    rows = [text for text in world.log.rows if text.startswith(publisher.name + "-")]
    found["lost"] += len(publisher.acknowledged.keys() - set(rows))
    found["twice"] += len(rows) - len(set(rows))
    numbers = [int(text.split("-")[1]) for text in rows]
    found["out of order"] += sum(one > other for one, other in pairwise(numbers))


def _judge_group(world: SessionWorld, publisher: Client, found: Counter[str]) -> None:
    """One member gets it; of what was on its way when the network split, one on each side (E1 in docs/cluster.md)."""
    groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for client in world.clients.values():
        if client.topic_filter.startswith("$share/"):
            groups[client.topic_filter].update(_of(client, publisher))
    for got in groups.values():
        found["lost"] += sum(text not in got for text in publisher.acknowledged)
        if publisher.qos == 2:
            found["twice"] += sum(
                count > 1
                and not _met_a_split(world, publisher, text)
                and not world.moved_as_it_split(text)
                for text, count in got.items()
            )


def _met_a_split(world: SessionWorld, publisher: Client, text: str) -> bool:
    """Whether a split began or lasted while a message was on its way: both sides may have it, and may not know."""
    last = publisher.acknowledged.get(text, world.now)
    return world.met_a_split(world.published[text][0], last)


def _judge_toggle(
    world: SessionWorld, client: Client, publisher: Client, found: Counter[str]
) -> None:
    """What was published while it had subscribed, and nothing else, if all nodes could know."""
    got = _of(client, publisher)
    for text, at in publisher.acknowledged.items():
        first, is_clear = world.published[text]
        if is_clear and text not in got:
            # Until its own side has it, too: it may unsubscribe before.
            found["lost"] += client.toggle.was_on(first, world.settled(first, at))
    if publisher.qos == 2:  # at QoS 1 the front of a former connection may read it later
        for text in got:
            first, is_clear = world.published[text]
            if is_clear and text in publisher.acknowledged:
                if not _met_a_split(world, publisher, text):
                    found["stray"] += client.toggle.was_off(first, publisher.acknowledged[text])
        found["twice"] += sum(count > 1 for count in got.values())
