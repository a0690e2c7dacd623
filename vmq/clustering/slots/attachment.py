"""A connection that its owner serves, how far what its client has acknowledged is safe, and what flows to it."""

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

from vmq.clustering.messages.fronts import Attach, SessionStep
from vmq.clustering.slots.flow import ClientFlow, FlowRun, Given
from vmq.clustering.slots.limits import QueueLimits
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.register import ClientRegister
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import NO_LINEAGE, PUBACK, PUBCOMP, Dot, Lineage, split_scope


def is_for_later(steps: list[SessionStep]) -> bool:
    """Whether nobody waits for what follows from it to be written: a client has messages, which else it gets again."""
    for each in steps:
        kind: int = each.kind
        if kind not in {PUBACK, PUBCOMP}:
            return False
    return True


def another_place(last: int, packets: int, lineage: Lineage, client: str) -> int:
    """A packet id a quarter of the ring away from the last, or further."""
    drawn = blake2b(repr((lineage, client)).encode(), digest_size=8).digest()
    return (last + packets // 4 + int.from_bytes(drawn, "big") % (packets // 2)) % packets


def is_told_of(asked: Attach, state: SlotState, is_new: bool) -> bool:
    """Whether a client is told that it has a session [MQTT-3.2.2-1, 3.2.2-2]: not of one that this connection began.

    A front whose connection has no rank has had no answer: what was lost said that there was none, unless something is
    in it that another side had.
    """
    client = asked.client
    register = state.registers[client]
    if asked.is_clean or not register.session:
        return False
    if is_new or asked.rank or not register.is_first:
        return True
    has_packets = register.window or register.received
    return bool(has_packets or register.granted() or state.waiting(client))


class Attachment:
    """A connection that is served."""

    def __init__(self, client: str, connection: int, front: int, link: int) -> None:
        self.client = client
        self.connection = connection
        self.front = front
        self.link = link
        #: Its front knows.
        self.is_told = False
        #: For its front, at the end of the turn; whether there is anything but messages.
        self.steps: list[Given] = []
        self.has_others = False
        #: Messages at QoS 1 that its client has, as its front counts them; how many of them each version has that is
        #: not safe, and how many are.
        self.done = 0
        self._done_in: deque[tuple[int, int]] = deque()
        self._safe_done = 0

    def is_of(self, connection: int, front: int, link: int) -> bool:
        """Whether it is this connection, attached by this link."""
        return self.connection == connection and self.front == front and self.link == link

    def are_done(self, count: int, version: int) -> None:
        """So many more, which a version has."""
        self.done += count
        self._done_in.append((version, self.done))

    def safe_done(self, safe: int) -> int:
        """How many of them are safe, of which versions up to `safe` are."""
        while self._done_in and self._done_in[0][0] <= safe:
            self._safe_done = self._done_in.popleft()[1]
        return self._safe_done

    def has_unsafe(self) -> bool:
        """Whether some of them are not, as far as its front knows."""
        return bool(self._done_in)

    def is_some_safe(self, safe: int) -> bool:
        """Whether more are than its front knows."""
        return bool(self._done_in) and self._done_in[0][0] <= safe


class SlotFlows:
    """The clients of one slot to whom messages flow, for its owner.

    Args:
        serving: the attachments.
        is_held: whether publishers wait for room in a client's queue.
        to_deliver: clients whose queues have more, or whose windows have room.
    """

    def __init__(
        self,
        owned: OwnedSlot,
        serving: dict[str, Attachment],
        is_held: Callable[[str], bool],
        to_deliver: dict[str, None],
    ) -> None:
        self._owned = owned
        self._here = owned.here
        self._state = owned.state
        self._serving = serving
        self._is_held = is_held
        self._to_deliver = to_deliver

    def take(
        self, dot: Dot, topic: bytes, payloads: list[bytes], group: str, retain: bool, but: str
    ) -> FlowRun | None:
        """Takes messages at QoS 1, from a dot on; None: they are to be taken one by one."""
        state, scope = self._state, group
        if group:
            scope, rest = split_scope(group)
            if rest:
                return None
        wanted = state.wanted_of(topic, scope)
        if len(wanted) != 1 or state.lacks != NO_LINEAGE:
            return None
        client, granted = wanted[0]
        attachment = self._serving.get(client)
        if attachment is None or client == but:
            return None
        register = state.registers[client]
        limits = self._here.limits.of(register.limits)
        flow = self._flow_of(client, register)
        if flow is None or limits.qos(granted, 1) != 1 or limits.newest_first:
            return None
        count = len(payloads)
        if 0 <= limits.online < flow.waiting - flow.under_way + count:
            return None
        size = count * len(topic) + sum([len(each) for each in payloads])
        if 0 <= limits.bytes < flow.size + size:
            return None
        if not state.see_run(dot, count):
            return None
        stamp = state.stamp(self._here.time())
        state.last += count - 1
        self._here.heard_of(state.last)
        run = FlowRun(dot[0], dot[1], stamp, topic, payloads, scope, retain)
        run.front = attachment.front
        flow.take(run)
        self._to_deliver[client] = None
        return run

    def _flow_of(self, client: str, register: ClientRegister) -> ClientFlow | None:
        """That of a client for whom there is nothing else; None: there is."""
        flow = self._state.flows.get(client)
        if flow is not None:
            return flow
        state = self._state
        if register.single_window or client in state.single_queues or client in state.cold:
            return None
        if register.ahead.runs or self._is_held(client):
            return None
        known = register.flow
        if not isinstance(known, ClientFlow):
            known = register.flow = ClientFlow(self._state, client, register)
        return known

    def deliver(self, attachment: Attachment, limits: QueueLimits) -> bool:
        """Sends what flows to a client, as far as the window allows; False: nothing does."""
        flow = self._state.flows.get(attachment.client)
        if flow is None:
            return False
        if limits.newest_first:
            return False
        attachment.steps += flow.send(self._owned.slot, limits.window, limits.window_bytes)
        return True

    def acknowledge(
        self, client: str, connection: int, lineage: Lineage, link: int, packet: int, count: int
    ) -> bool:
        """A client of this node has acknowledged packet ids, from one on; False: they are to come one by one."""
        attachment = self._serving.get(client)
        if attachment is None or lineage != self._owned.view.lineage:
            return False
        if not attachment.is_of(connection, self._here.store, link):
            return False
        if not self.are_done(client, packet, count):
            return False
        self._here.heard_of(self._state.last)
        self._to_deliver[client] = None
        return True

    def are_done(self, client: str, packet: int, count: int) -> bool:
        """A client has acknowledged packet ids, from one on; False: these are not the next that flow."""
        flow = self._state.flows.get(client)
        if flow is None or count > flow.under_way or packet != flow.first_packet():
            return False
        flow.done(count)
        self._here.answered += count
        return True
