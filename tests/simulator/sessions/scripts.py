"""Schedules by hand, for rules that chance shows too rarely: an owner is held up or dies, and is there again later."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulator.sessions.client import Client
from tests.simulator.sessions.judge import rest, results
from tests.simulator.sessions.node import STEP, TIMEOUT
from tests.simulator.sessions.ownership import holders_of, is_quiet, owner_of
from tests.simulator.sessions.world import SLOTS, SessionWorld, pair
from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.slots.words import SEND, SEND_PUBREL, slot_of

LONGEST = 2000


class Script(SessionWorld):
    """Some nodes: owner and follower of the slot of the client that subscribes now and then, and another one.

    That is the front of the client, and of a publisher.
    """

    def __init__(self, names: str = "abc") -> None:
        super().__init__(1, names)
        #: Messages for the client get lost.
        self.is_deaf = False
        #: What there is for the client, while it reads nothing.
        self.unread_by_client: list[SessionStep] | None = None
        self.client: Client = self.clients["f"]
        self.until(self.are_subscribed)
        rest(self)
        self.slot = slot_of(self.client.id, SLOTS)
        owner = owner_of(self, self.slot)
        assert owner is not None
        self.owner = owner.name
        followers = owner.machines.slots.view(self.slot).followers
        [self.follower] = [self.stores[each] for each in followers]
        self.front = min(set(self.nodes) - {self.owner, self.follower})
        #: Whose slot these two do not share.
        self.publisher = next(
            each
            for each in self.clients.values()
            if each.qos == 2
            and set(holders_of(self, slot_of(each.id, SLOTS))) != {self.owner, self.follower}
        )
        self.connect_anew(self.publisher)
        self.connect_anew(self.client)

    def _queue(self, number: int, kind: str, what: Any) -> None:
        is_message = kind == "step" and isinstance(what, SessionStep) and what.kind == SEND
        if number == self.client.number and kind == "step" and self.unread_by_client is not None:
            self.unread_by_client.append(what)
        elif not (self.is_deaf and is_message and number == self.client.number):
            super()._queue(number, kind, what)

    def has_for_client(self, kind: int, packet: int) -> bool:
        """Whether a packet waits that the client has not read."""
        steps = self.unread_by_client or ()
        return any((each.kind, each.packet) == (kind, packet) for each in steps)

    def read(self) -> None:
        """The client reads what has waited."""
        steps, self.unread_by_client = self.unread_by_client or [], None
        for each in steps:
            self._queue(self.client.number, "step", each)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(LONGEST):
            if holds():
                return
            self.step(publish=False)
        raise AssertionError("it takes too long")

    def serves(self, name: str) -> bool:
        """Whether that node is an owner of the slot."""
        node = self.nodes[name]
        owner = node.machines.slots.owners.get(self.slot)
        return owner is not None and owner.serves(node.store)

    def leave(self, client: Client) -> None:
        self.away[client.name] = None
        if client.number:
            self.disconnect(client)

    def connect_anew(self, client: Client, node: str = "") -> None:
        """A client comes back on another connection, and has its session."""
        self.leave(client)
        self.bound[client.name] = [node or self.front]
        del self.away[client.name]
        self.until(lambda: client.is_ready)

    def die(self) -> None:
        """The owner dies when its disk has all that it knows, of which the follower has heard nothing."""
        owner = self.nodes[self.owner]
        self.until(lambda: owner.writing is None and not owner.machines.effects.writes)
        self.kill(self.owner)
        self.stalled.clear()

    def ask(self) -> None:
        """The client subscribes, or no longer; its front has read that."""
        up = self.up[self.client.number]
        up += [("step", each) for each in self.client.toggle.next(self.now)]
        self.until(lambda: not up)

    def toggle(self) -> None:
        """The same, and it is answered."""
        self.ask()
        self.until(lambda: self.client.toggle.pending is None)

    def say(self) -> None:
        """Somebody publishes, and has the acknowledgement."""
        self.publish(self.publisher)
        self.until(lambda: not self.publisher.out)

    def wake(self) -> Counter[str]:
        """The owner goes on; what is found when all is at rest, and more is published."""
        self.paused.pop(self.owner, None)
        if not self.nodes[self.owner].is_up:
            self.start(self.owner)
        rest(self)
        self.until(self.is_clear)
        self.say()
        rest(self)
        return results(self)


def ends_on_a_later_connection() -> Counter[str]:
    """A SUBSCRIBE is read late whose client has subscribed and unsubscribed meanwhile, on another connection."""
    script = Script()
    script.paused[script.owner] = None
    script.ask()
    script.connect_anew(script.client)
    script.until(lambda: script.client.toggle.pending is None)
    script.toggle()
    return script.wake()


def asks_anew_and_ends() -> Counter[str]:
    """A SUBSCRIBE is read late that the next owner was sent as well, after which its client ended that twice."""
    script = Script()
    script.paused[script.owner] = None
    script.toggle()
    for _ in range(3):
        script.toggle()
    return script.wake()


def finishes_what_waited() -> Counter[str]:
    """A SUBSCRIBE is read late where a message waits that the client has had of the next owner."""
    script = Script()
    script.toggle()
    script.leave(script.client)
    script.say()
    rest(script)
    script.is_deaf = True
    script.connect_anew(script.client)
    script.toggle()
    rest(script)
    script.paused[script.owner] = None
    script.ask()
    script.is_deaf = False
    script.connect_anew(script.client)
    script.until(lambda: bool(script.client.released))
    return script.wake()


def _die_with_a_subscribe_and_a_message(script: Script, stays: bool) -> None:
    """Only the owner's disk has them; its front is the follower. `stays`: its connection outlives the owner."""
    client, owner = script.client, script.nodes[script.owner]
    script.connect_anew(client, script.follower)
    rest(script)
    script.stalled[script.owner, script.follower] = None
    script.ask()
    state = owner.machines.slots.owners[script.slot].state
    script.until(lambda: bool(state.registers[client.id].granted()))
    if not stays:
        script.leave(client)
    script.publish(script.publisher)
    script.until(lambda: state.waiting(client.id) > 0)
    script.die()


def asks_the_next_owner_as_well() -> Counter[str]:
    """A SUBSCRIBE that has no answer is sent to the next owner, too, who then gets the message."""
    script = Script()
    _die_with_a_subscribe_and_a_message(script, stays=True)
    script.until(lambda: bool(script.client.released))
    return script.wake()


def asks_the_next_owner_anew() -> Counter[str]:
    """The client subscribes on another connection; the message comes to the next owner after that."""
    script = Script()
    _die_with_a_subscribe_and_a_message(script, stays=False)
    owners = script.nodes[script.follower].machines.slots.owners
    script.until(lambda: script.serves(script.follower))
    script.paused[script.front] = None
    script.connect_anew(script.client, script.follower)
    registers = owners[script.slot].state.registers
    script.until(lambda: bool(registers[script.client.id].granted()))
    del script.paused[script.front]
    script.until(lambda: bool(script.client.released))
    return script.wake()


def ends_what_a_dead_owner_knows() -> Counter[str]:
    """Of the connection on which its client subscribed, nobody else has heard."""
    script = Script()
    client = script.client
    script.stalled[script.owner, script.follower] = None
    script.connect_anew(client)
    script.ask()
    registers = script.nodes[script.owner].machines.slots.owners[script.slot].state.registers
    script.until(lambda: bool(registers[client.id].granted()))
    script.leave(client)
    script.die()
    script.connect_anew(client)
    script.until(lambda: client.toggle.pending is None)
    script.toggle()
    return script.wake()


def is_attached_by_a_clock_that_is_ahead() -> Counter[str]:
    """An owner dies with an attachment that only its disk has, later by its clock than all that the next one does."""
    script = Script()
    client, owner, front = script.client, script.nodes[script.owner], script.front
    script.toggle()
    rest(script)
    script.leave(client)
    owner.skew += 20_000
    script.step(publish=False)
    script.until(lambda: is_quiet(script))
    for other in (script.follower, front):
        script.stalled[script.owner, other] = None
    script.connect(client)
    registers = owner.machines.slots.owners[script.slot].state.registers
    script.until(lambda: 0 < registers[client.id].connection == client.number)
    script.die()
    del script.away[client.name]
    script.until(lambda: client.is_ready)
    script.publish(script.publisher)
    script.until(lambda: bool(client.held))
    script.paused[front] = (
        None  # it has not read PUBREC when the next owner gets the other's register
    )
    script.start(script.owner)
    heir = script.nodes[script.follower].machines.slots.owners[script.slot]
    script.until(lambda: owner.store in heir.cleared)
    del script.paused[front]
    return script.wake()


def is_in_reach_of_both_owners() -> Counter[str]:
    """Links come back one by one: a front is back with the later owner, who has not heard the earlier one yet."""
    script = Script("abcd")
    client, earlier, later = script.client, script.owner, script.follower
    script.toggle()
    script.leave(client)
    script.say()
    rest(script)
    script.cut_off([later], is_noticed=True)
    script.until(lambda: script.serves(later) and script.serves(earlier))
    view = script.nodes[earlier].machines.slots.view(script.slot)
    followers = [script.stores[each] for each in view.followers]
    [script.front] = set(script.nodes) - {earlier, later, *followers}
    script.connect_anew(client)
    script.until(lambda: bool(client.released))
    script.connect_anew(client)  # what this connection had, its front does not know
    script.cut = {pair(later, each): None for each in (earlier, *followers)}
    script.link(script.front, later)
    reach, store = script.nodes[later].machines.here.reach, script.nodes[script.front].store
    script.until(lambda: reach.is_up(store))
    for _ in range(TIMEOUT // STEP // 2):
        script.step(publish=False)
    script.heal()
    return script.wake()


def gets_pubrel_of_two_owners() -> Counter[str]:
    """A client reads the second one late: with a message behind it that has the packet id, which was free again."""
    script = Script()
    client, other = script.client, script.clients["q"]
    script.toggle()
    script.publish(script.publisher)
    script.until(lambda: bool(client.held))
    [packet] = client.held
    script.until(lambda: not client.held)
    script.unread_by_client = []
    script.kill(script.owner)
    script.until(lambda: script.has_for_client(SEND_PUBREL, packet))
    owner = script.nodes[script.follower].machines.slots.owners[script.slot]
    register = owner.state.registers[client.id]
    script.until(lambda: not register.window and other.is_ready)
    # Two new lineages together may come to the same place of the ring.
    register.last_packet = packet - 1
    script.publish(other)
    script.until(lambda: script.has_for_client(SEND, packet))
    script.read()
    return script.wake()


SCRIPTS = (
    ends_on_a_later_connection,
    asks_anew_and_ends,
    finishes_what_waited,
    asks_the_next_owner_as_well,
    asks_the_next_owner_anew,
    ends_what_a_dead_owner_knows,
    is_attached_by_a_clock_that_is_ahead,
    is_in_reach_of_both_owners,
    gets_pubrel_of_two_owners,
)
