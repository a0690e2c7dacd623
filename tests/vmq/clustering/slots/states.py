"""States of a slot, and what happens to them."""

from vmq.clustering.slots.merge import merge
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.records import all_records, load_state
from vmq.clustering.slots.state import SlotState

ORIGIN = 1 << 24 | 1


def message(stamp: int, text: str = "") -> StoredMessage:
    return StoredMessage(stamp, b"t", text.encode(), 2, "")


def begun(epoch: int, owner: int, state: SlotState | None = None) -> SlotState:
    """A state whose owner begins another lineage, with what it had."""
    state = SlotState() if state is None else load_state(all_records(state))
    state.begin((epoch, owner))
    return state


def subscribe(state: SlotState, client: str) -> None:
    register = state.register(client)
    register.session = register.session or state.stamp(0)
    register.lineage, register.attached_at = state.lineage, state.stamp(0)
    state.subscribe(client, "#", 2, 0)
    state.close()


def attach(state: SlotState, client: str, connection: int, *dead: int) -> None:
    """A connection of a client, while there may be forks."""
    register = state.register(client)
    register.connect(register.rank + 1, connection, True, dead)
    register.session = register.session or state.stamp(0)
    register.lineage, register.attached_at = state.lineage, state.stamp(0)
    state.close()


def take(state: SlotState, number: int) -> None:
    """A message comes from an origin, for all who have subscribed."""
    dot = ORIGIN, number
    if dot not in state.context:
        state.see(dot)
        stored = message(state.stamp(0), str(number))
        for client, register in state.registers.items():
            if register.wants("t") >= 0 and dot not in register.ahead:
                state.put(client, dot, 2, stored)
    state.close()


def finish(state: SlotState, client: str, number: int) -> None:
    state.done(client, (ORIGIN, number))
    state.close()


def queue(state: SlotState, client: str) -> list[int]:
    return [number for _, number in state.queues.get(client, {})]


def parted(*numbers: int) -> tuple[SlotState, SlotState]:
    """A state in which "c" has subscribed and awaits these messages, and a fork of it."""
    one = begun(1, 5)
    subscribe(one, "c")
    for number in numbers:
        take(one, number)
    return one, begun(2, 6, one)


def merged(one: SlotState, other: SlotState) -> SlotState:
    found = load_state(all_records(one))
    merge(found, other)
    return found


def waiting(one: SlotState, other: SlotState) -> list[int]:
    """The messages that "c" awaits when the two have become one, whichever comes first."""
    found = queue(merged(one, other), "c")
    assert found == queue(merged(other, one), "c")
    return found


def granted(one: SlotState, other: SlotState) -> dict[str, int]:
    """What "c" has subscribed to when the two have become one, whichever comes first."""
    found = merged(one, other).registers["c"].granted()
    assert found == merged(other, one).registers["c"].granted()
    return found
