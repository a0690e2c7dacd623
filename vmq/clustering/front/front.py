"""The front: connections of this node, each attached to the owner of its client's session, wherever that is.

A break of the link or a new lineage ends an attachment. From then on the front takes nothing of the old one, holds the
client's acknowledgements back, and attaches anew with the table; then what is unanswered follows, and what was held.
"""

from collections.abc import Callable
from typing import Final

from vmq.clustering.front.connection import FrontConnection, KnownRow, Unanswered
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import (
    Attach,
    Attached,
    AttachRefused,
    FromClient,
    SessionLimits,
    SessionStep,
    TableEntry,
    ToClient,
)
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.origin import Origin
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.slots.attachment import is_for_later
from vmq.clustering.slots.flow import Given, SendingRun, run_of
from vmq.clustering.slots.here import LocalFront, LocalNode
from vmq.clustering.slots.queued import Sending
from vmq.clustering.slots.register import SentMessage
from vmq.clustering.slots.words import (
    GONE,
    PUBACK,
    PUBLISHED,
    PUBREL,
    REGISTERED,
    ROWS,
    SEND,
    SEND_PUBCOMP,
    SUBSCRIBE,
    SUBSCRIBED,
    UNSUBSCRIBE,
    UNSUBSCRIBED,
    Address,
    Lineage,
    digest_of,
    slot_of,
    store_of,
)

#: The step of a client that a step for it answers.
_ANSWERED: Final = {SEND_PUBCOMP: PUBREL, SUBSCRIBED: SUBSCRIBE, UNSUBSCRIBED: UNSUBSCRIBE}

Targets = list[tuple[int, str]]
Rows = list[tuple[str, int]]


class SessionFront(LocalFront):
    """The connections of one node, by number."""

    def __init__(
        self, here: LocalNode, slots: int, origin: Origin, view: Callable[[int], SlotView]
    ) -> None:
        super().__init__()
        here.front = self
        self._here = here
        self._slots = slots
        self._origin = origin
        self._view = view
        self.connections: dict[int, FrontConnection] = {}
        #: The same by slot.
        self._in_slot: dict[int, dict[int, FrontConnection]] = {}
        #: Those that are not attached.
        self._detached: dict[int, FrontConnection] = {}
        #: What attachments had to be to when it was last looked, by slot. None of these comes again.
        self._looked: dict[int, tuple[Lineage, int]] = {}
        #: Connections with steps for their owners.
        self._touched: dict[int, None] = {}
        #: Those of them whose owners get them with what else goes there, or soon.
        self.late: dict[int, None] = {}
        #: Rows that sessions know, for logs with copies, and to become jobs.
        self.rows: list[KnownRow] = []
        #: The last connection of each client here.
        self._clients: dict[str, int] = {}

    # Connections

    def connect(
        self,
        number: int,
        client: str,
        slot: int,
        is_clean: bool = False,
        user: str | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        """A client has connected; `Effects.present` says when its session is there."""
        older = self._clients.get(client)
        if older is not None:
            self._close(older)
        self._clients[client] = number
        self.connections[number] = connection = FrontConnection(
            number, client, slot, is_clean, user, limits
        )
        self._in_slot.setdefault(slot, {})[number] = connection
        self._detached[number] = connection
        self._attach(connection)

    def disconnect(self, number: int) -> None:
        """A connection has ended."""
        connection = self._take_out(number)
        if connection is None:
            return
        if connection.attached is not None:
            connection.tell_done()
            connection.steps.append(SessionStep(GONE))
            self._flush(connection)

    def _close(self, number: int) -> None:
        """The client has a newer connection."""
        if self._take_out(number) is not None:
            self._here.effects.closed.append(number)

    def _take_out(self, number: int) -> FrontConnection | None:
        connection = self.connections.pop(number, None)
        if connection is not None:
            self._detached.pop(number, None)
            for each in connection.unanswered:
                self._origin.bytes -= each.size
                if each.then is not None:
                    each.then(False)
            if self._clients.get(connection.client) == number:
                del self._clients[connection.client]
            there = self._in_slot[connection.slot]
            del there[number]
            if not there:
                del self._in_slot[connection.slot]
        return connection

    def _key(self, slot: int) -> tuple[Lineage, int]:
        view = self._view(slot)
        return view.lineage, self._here.reach.link(store_of(view.owner))

    def look(self, is_beat: bool) -> None:
        """Ends attachments whose lineage or link is over, and asks for new ones."""
        waiting = list(self._detached.values()) if is_beat else []
        for slot, there in self._in_slot.items():
            key = self._key(slot)
            if self._looked.get(slot) != key:
                self._looked[slot] = key
                for connection in there.values():
                    if connection.attached is not None and connection.attached != key:
                        self.detach(connection)
                        self._attach(connection)
        for connection in waiting:
            self._attach(connection)

    def detach(self, connection: FrontConnection) -> None:
        connection.attached = None
        self._detached[connection.number] = connection
        connection.steps = []
        connection.flow_done = 0

    def on_moved(self, slot: int) -> None:
        """A slot has another lineage."""
        for connection in self._in_slot.get(slot, {}).values():
            self.detach(connection)
            self._attach(connection)

    def _attach(self, connection: FrontConnection) -> None:
        lineage, link = self._key(connection.slot)
        if not link or not lineage[0]:
            return
        asked = Attach(
            connection.slot,
            connection.client,
            connection.number,
            connection.rank,
            lineage,
            link,
            self.table(connection),
            connection.is_clean,
            None,
            self._here.clock,
            connection.user,
            connection.limits,
            connection.done(),
        )
        self._here.send(store_of(lineage[1]), asked)

    def table(self, connection: FrontConnection) -> list[TableEntry]:
        return [
            TableEntry(packet, each.dot, each.is_received, each.qos)
            for packet, each in connection.table.items()
        ]

    # The owner

    def receive(self, message: NodeMessage) -> bool:
        """Takes what an owner says; False: it is none of that."""
        if isinstance(message, Attached | ToClient):
            self._here.heard_of(message.clock)
        if isinstance(message, Attached):
            self._on_attached(message)
        elif isinstance(message, AttachRefused):
            if message.is_others:
                self._here.effects.refused.append(message.connection)
            self._close(message.connection)
            self._origin.drop(message.connection)
        elif isinstance(message, ToClient):
            connection = self.connections.get(message.connection)
            if connection is not None and connection.attached == (message.lineage, message.link):
                connection.done_is_safe(message.done)
                for step in message.steps:
                    self._on_step(connection, step)
        else:
            return False
        return True

    def _on_attached(self, message: Attached) -> None:
        connection = self.connections.get(message.connection)
        key = message.lineage, message.link
        slot = slot_of(message.client, self._slots)
        if key != self._key(slot):
            return
        if connection is None:  # its client has gone meanwhile
            steps = [SessionStep(GONE)]
            self._send(slot, message.client, message.connection, key, steps)
            return
        if connection.attached == key:
            return
        connection.is_attached(key, store_of(message.lineage[1]) == self._here.store)
        del self._detached[connection.number]
        if not connection.rank:
            self._here.effects.present.append(message)
        connection.rank = message.rank
        connection.knows([each.packet for each in message.received], message.is_whole)
        self._touched[connection.number] = None
        self.send_again(connection)
        held, connection.held = connection.held, {}
        for step in held.values():
            connection.acknowledge(step)

    def send_again(self, connection: FrontConnection) -> None:
        """A new owner gets what no other has answered."""
        connection.steps += [each.step for each in connection.unanswered if each.addresses is None]

    def _on_step(self, connection: FrontConnection, step: SessionStep) -> None:
        kind = step.kind
        if kind == REGISTERED:
            for each in connection.take_registered(step.packet, list(step.addresses)):
                self._origin.bytes -= each.size
                self._publish(connection, each)
            return
        if kind == SEND and step.qos == 1:
            run = run_of(step)
            connection.sends(run)
            if step.more:
                self._here.effects.steps.append((connection.number, run))
                return
        elif kind == SEND:
            dot = step.addresses[0][1]
            connection.table[step.packet] = SentMessage(dot, False, step.qos)
        elif kind in _ANSWERED and not connection.answered(_ANSWERED[kind], step.packet):
            return
        self._here.effects.steps.append((connection.number, step))

    def take_messages(self, number: int, lineage: Lineage, link: int, steps: list[Given]) -> bool:
        connection = self.connections.get(number)
        if connection is None or connection.attached != (lineage, link):
            return False
        sends = self._here.effects.steps
        for each in steps:
            if isinstance(each, SendingRun):
                connection.sends(each)
            elif isinstance(each, Sending):
                connection.table[each.packet] = each.sent
            sends.append((number, each))
        return True

    # The client

    def publish(
        self,
        number: int,
        packet: int,
        qos: int,
        topic: bytes,
        payload: bytes,
        is_again: bool,
        targets: Targets,
        retain: bool = False,
        is_own: bool = False,
        rows: Rows | None = None,
    ) -> None:
        """A PUBLISH at QoS 1 or 2; `targets` are the slots concerned, each with a share group or none.

        `is_own`: the client itself is not to get it. `rows`: where logs are to have it once, or what becomes jobs.
        """
        connection = self.connections.get(number)
        if connection is None:
            return
        addresses = self._origin.reserve(targets)
        connection.began(qos, packet)
        if qos == 1:
            publication = Publication(
                topic,
                payload,
                1,
                number,
                lambda: self._on_safe(number, 1, packet),
                retain,
                connection.client if is_own else "",
            )
            self._origin.publish(addresses, publication)
            return
        is_again = is_again or connection.is_unreleased(packet)
        connection.came(packet, is_again)
        addresses += [(ROWS, (0, number), address) for address, number in rows or ()]
        digest = digest_of(topic, payload)
        step = SessionStep(PUBLISHED, packet, addresses, digest, is_again)
        self._ask(connection, Unanswered(step, topic, payload, retain, is_own))

    def settle(self, row: KnownRow, then: Callable[[bool], None]) -> None:
        """A row is done: `then` is called once it is so for all who hear of it, or with False: the client has gone."""
        connection = self.connections.get(row.message.connection)
        if connection is None:
            then(False)
            return
        self._ask(connection, Unanswered(row.done(), then=then))

    def _ask(self, connection: FrontConnection, waiting: Unanswered) -> None:
        """The owner of the client's slot has to answer; of a QoS 2 message it has to know first."""
        connection.unanswered.append(waiting)
        self._origin.bytes += waiting.size
        connection.send(waiting.step)
        self._touched[connection.number] = None

    def _publish(self, connection: FrontConnection, each: Unanswered) -> None:
        """The owner of the publisher's slot knows where a QoS 2 message goes."""
        number, packet = connection.number, each.step.packet
        if each.then is not None:
            each.then(True)
            return
        publication = Publication(
            each.topic,
            each.payload,
            2,
            number,
            lambda: self._on_safe(number, 2, packet),
            each.retain,
            connection.client if each.is_own else "",
        )
        slots: list[Address] = []
        for address in each.addresses or []:
            if address[0] == ROWS:
                publication.left += 1
                is_new = address in each.step.addresses
                self.rows.append(KnownRow(address, publication, connection.client, packet, is_new))
            else:
                slots.append(address)
        self._origin.publish(slots, publication)

    def _on_safe(self, number: int, qos: int, packet: int) -> None:
        connection = self.connections.get(number)
        if connection is not None:
            for each in connection.is_safe(qos, packet):
                self._here.effects.acknowledged.append((number, each, qos))

    def step(self, number: int, step: SessionStep) -> None:
        """Any other packet of a client."""
        connection = self.connections.get(number)
        if connection is None:
            return
        self._touched[number] = None
        if step.kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE):
            if step.kind == PUBREL:
                for over in connection.are_over(step.packet):
                    connection.send(SessionStep(PUBREL, over))
                if not connection.released(step.packet):
                    return
            self._ask(connection, Unanswered(step))
        elif connection.attached is None:
            connection.hold(step)
        elif step.kind == PUBACK and connection.is_next_done(step.packet):
            if connection.had:
                self._tell_origin(connection)
        else:
            connection.acknowledge(step)

    def acknowledge(self, number: int, run: bytes) -> None:
        """PUBACK packets of a client, of four bytes each."""
        connection = self.connections.get(number)
        if connection is None:
            return
        self._touched[number] = None
        for index in range(0, len(run), 4):
            packet = run[index + 2] << 8 | run[index + 3]
            if not connection.is_next_done(packet):
                self.step(number, SessionStep(PUBACK, packet))
        if connection.had:
            self._tell_origin(connection)

    def _tell_origin(self, connection: FrontConnection) -> None:
        """What was published here and is for this client alone, it has: its publishers wait for nothing else."""
        had, connection.had = connection.had, []
        for slot, dot, count in had:
            self._origin.had(slot, dot, count)

    def flush(self) -> None:
        """The turn is over: each owner gets what there is for it."""
        touched, self._touched = self._touched, {}
        for number in touched:
            connection = self.connections.get(number)
            if connection is None or not (connection.steps or connection.flow_done):
                continue
            if connection.may_be_late(self._here.limits.of(connection.limits).window):
                self.late[number] = None
            else:
                self._flush(connection)

    def flush_late(self, is_due: bool) -> None:
        """Owners to whom something goes in this turn get what may be late as well; `is_due`: all do."""
        stores = () if is_due else {store for store, _ in self._here.effects.sent}
        for number in list(self.late):
            connection = self.connections.get(number)
            if connection is None or connection.attached is None:
                del self.late[number]
            elif is_due or store_of(connection.attached[0][1]) in stores:
                del self.late[number]
                if connection.steps or connection.flow_done:
                    self._flush(connection)

    def _flush(self, connection: FrontConnection) -> None:
        if connection.flow_done and not connection.steps and self._give_done(connection):
            return
        connection.tell_done()
        steps, connection.steps = connection.steps, []
        if connection.attached is not None:
            key = connection.attached
            if store_of(key[0][1]) == self._here.store and self._give(connection, steps):
                return
            self._send(connection.slot, connection.client, connection.number, key, steps)

    def _send(
        self,
        slot: int,
        client: str,
        number: int,
        key: tuple[Lineage, int],
        steps: list[SessionStep],
    ) -> None:
        lineage, link = key
        message = FromClient(slot, client, number, lineage, link, steps, self._here.clock)
        self._here.send(store_of(lineage[1]), message)

    def _give_done(self, connection: FrontConnection) -> bool:
        """Has an owner that is here take acknowledgements of what flows; False: they are to be packets."""
        owner = self._origin.owners.get(connection.slot)
        if owner is None or connection.attached is None:
            return False
        lineage, link = connection.attached
        first, count = connection.first_done, connection.flow_done
        self._origin.turns.touch_later(connection.slot)
        flows, number = owner.attachments.flows, connection.number
        if not flows.acknowledge(connection.client, number, lineage, link, first, count):
            return False
        connection.flow_done = 0
        return True

    def _give(self, connection: FrontConnection, steps: list[SessionStep]) -> bool:
        """Has an owner that is here take a client's packets, without a message; False: there is none."""
        slot, number = connection.slot, connection.number
        owner = self._origin.owners.get(slot)
        if owner is None or connection.attached is None:
            return False
        if is_for_later(steps):
            self._origin.turns.touch_later(slot)
        else:
            self._origin.turns.touch(slot)
        store, (lineage, link) = self._here.store, connection.attached
        owner.attachments.take_steps(store, connection.client, number, lineage, link, steps)
        return True
