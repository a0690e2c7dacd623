"""The owner and its clients: connections that are attached, their packets, and the sending of what waits.

An attachment is (connection, front, lineage, life of the link between front and owner). The owner believes the table
that a front attaches with: what it says is sent, is not sent again on this connection; what it says is received, is
done. A packet that relies on a record at QoS 2 leaves when that is safe; what waits for that dies with its
attachment.
"""

from collections.abc import Callable

from vmq.clustering.messages.fronts import (
    Attach,
    Attached,
    AttachRefused,
    FromClient,
    ReceivedEntry,
    SessionStep,
    TableEntry,
    ToClient,
)
from vmq.clustering.slots.attachment import Attachment, SlotFlows, another_place, is_told_of
from vmq.clustering.slots.away import AwayClients, UnreadQueues
from vmq.clustering.slots.cold import ALL
from vmq.clustering.slots.flow import PACKETS, packets_from, steps_of
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.queued import Sending
from vmq.clustering.slots.register import ClientRegister, ReceivedId, SentMessage, request_of
from vmq.clustering.slots.subscribers import HeldOffers, Subscribers
from vmq.clustering.slots.words import (
    GONE,
    PUBACK,
    PUBCOMP,
    PUBLISHED,
    PUBREC,
    PUBREL,
    REGISTERED,
    SEND_PUBCOMP,
    SEND_PUBREL,
    SUBSCRIBE,
    SUBSCRIBED,
    UNSUBSCRIBE,
    UNSUBSCRIBED,
    Dot,
    Lineage,
)


class Attachments:
    """The clients of one slot, for its owner."""

    def __init__(self, owned: OwnedSlot) -> None:
        self._owned = owned
        self._here = owned.here
        self._state = owned.state
        self.serving: dict[str, Attachment] = {}
        self.away = AwayClients(owned)
        self.unread = UnreadQueues(owned.here, owned.state)
        self.held = HeldOffers(owned)
        self._to_deliver: dict[str, None] = {}
        self.flows = SlotFlows(owned, self.serving, self.held.has, self._to_deliver)
        self.subscribers = Subscribers(owned, self.serving, self.away.left, self._to_deliver)
        #: Clients with steps for their fronts.
        self._touched: dict[str, None] = {}
        #: Those whose fronts are to be told that what they have is safe.
        self._with_unsafe: dict[str, None] = {}
        #: Those that could not be attached yet, by front.
        self._refused: dict[str, tuple[int, Attach]] = {}

    # Attaching

    def on_attach(self, front: int, asked: Attach) -> None:
        """A front asks for a connection to be served; one that cannot be yet is as soon as it can."""
        self._here.heard_of(asked.clock)
        owned, state = self._owned, self._state
        if asked.lineage != owned.view.lineage or not self._is_link(front, asked.link):
            return
        if not owned.serves(front):
            self._refused[asked.client] = front, asked
            return
        if asked.is_clean and self._is_nobody(asked.client):
            nobody = ClientRegister()
            nobody.rank = asked.rank or 1
            self._here.send(front, self._answer(asked, nobody, False))
            return
        register = state.register(asked.client)
        if asked.user is not None and register.session and register.user not in ("", asked.user):
            self._here.send(front, AttachRefused(asked.client, asked.connection, True))
            return
        before, is_new = register.connection, register.connection != asked.connection
        rank = asked.rank or (register.rank + 1 if is_new else register.rank)
        if self._is_older(rank, asked.connection, register):
            self._here.send(front, AttachRefused(asked.client, asked.connection))
            return
        if not self.unread.prepare(asked, is_new):
            return  # its front asks again
        served = self.serving.get(asked.client)
        if served is not None and served.connection == asked.connection:
            if (served.front, served.link) == (front, asked.link):
                is_present = is_told_of(asked, state, False)
                self._tell_attached(served, asked, self._answer(asked, register, is_present))
                return
        elif served is not None:
            self._here.send(served.front, AttachRefused(asked.client, served.connection))
        register.rank = rank
        if is_new:
            self.away.replace(before)
            has_forks, dead = not owned.has_all_forks(), self._here.reach.dead()
            register.connect(rank, asked.connection, has_forks, dead)
            register.user = asked.user or register.user
            register.limits = asked.limits
        if register.session and asked.is_clean and is_new:
            self.subscribers.end(asked.client, before)
        self._begin(front, asked, register, is_told_of(asked, state, is_new))

    def _is_link(self, front: int, link: int) -> bool:
        return self._here.reach.link(front) == link

    def _is_older(self, rank: int, number: int, last: ClientRegister) -> bool:
        return (rank, number) < (last.rank, last.connection) or number in self.away.replaced

    def _is_nobody(self, client: str) -> bool:
        """Whether there is nothing of a client that a clean connection could end."""
        register = self._state.registers.get(client)
        return register is None or not (register.session or client in self.serving)

    def _answer(self, asked: Attach, register: ClientRegister, is_present: bool) -> Attached:
        """What a front is told whose connection is attached."""
        received = [
            ReceivedEntry(packet, each.digest, self._has_given(each) or each.is_job())
            for packet, each in register.received.items()
        ]
        head = asked.client, asked.connection, register.rank, asked.lineage, asked.link
        filters, made = sorted(register.granted().items()), dict(register.asked)
        rest = filters, received, made, self._owned.has_all_forks()
        return Attached(*head, is_present, self._here.clock, *rest)

    def _begin(self, front: int, asked: Attach, register: ClientRegister, is_present: bool) -> None:
        state, client, lineage = self._state, asked.client, self._owned.view.lineage
        if register.lineage != lineage:
            register.last_packet = self._restart(register.last_packet, client)
        register.lineage = lineage
        register.attached_at, register.records = state.stamp(self._here.time()), 0
        self.away.came(client)
        if not register.session and not asked.is_clean:
            state.begin_session(client, self._here.time())
        state.touch(client)
        self._believe_done(client, register, asked.done)
        for entry in asked.table:
            self._believe(client, register, entry)
        attachment = Attachment(client, asked.connection, front, asked.link)
        self._are_done(attachment, len(asked.done))
        self.serving[client] = attachment
        self.subscribers.groups.came(client)
        self._here.heard_of(state.last)
        self._tell_attached(attachment, asked, self._answer(asked, register, is_present))
        told = {entry.packet for entry in asked.table}
        for packet, sent in list(register.window.items()):
            self._resume(attachment, packet, sent, packet in told)
        self._to_deliver[client] = None

    def _tell_attached(self, attachment: Attachment, asked: Attach, answer: Attached) -> None:
        """The end of a session has to be safe, else the next connection may find it again.

        What there is for the client meanwhile would come to a front that knows of no owner.
        """

        def tell() -> None:
            self._here.send(attachment.front, answer)
            attachment.is_told = True
            self._touched[attachment.client] = None

        self._when_safe(attachment, 2 if asked.is_clean else 0, tell)

    def _restart(self, last: int, client: str) -> int:
        """Another place of the ring, a quarter of it away: an id that the client still holds may swallow no message."""
        return another_place(last, PACKETS, self._owned.view.lineage, client)

    def _believe_done(self, client: str, register: ClientRegister, dots: list[Dot]) -> None:
        """What the front says that the client has at QoS 1."""
        done = set(dots)
        for packet, sent in list(register.window.items()):
            if sent.dot in done:
                self._state.unsend(client, packet)
        for dot in dots:
            self._state.done(client, dot)

    def _are_done(self, attachment: Attachment, count: int) -> None:
        """Its front says that so many more messages at QoS 1 are done; it is told when they are safe."""
        if count and attachment.front != self._here.store:
            attachment.are_done(count, self._owned.version_now())
            self._with_unsafe[attachment.client] = None

    def _believe(self, client: str, register: ClientRegister, entry: TableEntry) -> None:
        """What the front says of a packet id."""
        state = self._state
        if entry.is_received:
            state.done(client, entry.dot)
        else:
            for packet, sent in list(register.window.items()):
                if sent.dot == entry.dot and packet != entry.packet and not sent.is_received:
                    state.finish(client, packet, sent)
        state.send(client, entry.packet, SentMessage(entry.dot, entry.is_received, entry.qos))

    def _resume(
        self, attachment: Attachment, packet: int, sent: SentMessage, is_told: bool
    ) -> None:
        """Goes on with an exchange that another connection or owner has begun."""
        client = attachment.client
        if not sent.is_received and not is_told and not self._state.has(client, sent.dot):
            rest = self._state.finish(client, packet, sent)  # another fork has done it
            if rest is None:
                return
            sent = rest
        if sent.is_received:
            self._when_safe(attachment, 2, lambda: self._add(attachment, SEND_PUBREL, packet))
        elif not is_told:
            self._transmit(attachment, packet, sent, True)

    # Sending

    def _when_safe(self, attachment: Attachment, qos: int, action: Callable[[], None]) -> None:
        """Does something of an attachment, at QoS 2 when what it relies on is safe."""
        if qos < 2:
            action()
        else:
            self._owned.when_safe(
                lambda: action() if self.serving.get(attachment.client) is attachment else None
            )

    def _add(self, attachment: Attachment, kind: int, packet: int) -> None:
        self._put(attachment, SessionStep(kind, packet))

    def _put(self, attachment: Attachment, step: SessionStep) -> None:
        attachment.steps.append(step)
        attachment.has_others = True
        self._touched[attachment.client] = None

    def _put_message(self, attachment: Attachment, sending: Sending) -> None:
        attachment.steps.append(sending)
        self._touched[attachment.client] = None

    def _transmit(
        self, attachment: Attachment, packet: int, sent: SentMessage, is_again: bool = False
    ) -> None:
        message = self._state.message_of(attachment.client, sent.dot)
        sending = Sending(self._owned.slot, packet, sent, message, is_again)
        if sent.qos < 2:
            self._put_message(attachment, sending)
        else:
            self._put_when_safe(attachment, sending)

    # Apart from `_transmit`, which would else make the closure's variables for each message.
    def _put_when_safe(self, attachment: Attachment, sending: Sending) -> None:
        self._when_safe(attachment, 2, lambda: self._put_message(attachment, sending))

    def _deliver(self, client: str) -> None:
        """Sends what waits, as far as the window allows."""
        attachment = self.serving.get(client)
        if attachment is None:
            return
        register = self._state.registers[client]
        limits = self._here.limits.of(register.limits)
        if self.flows.deliver(attachment, limits):
            self._touched[client] = None
            return
        most = ALL if limits.newest_first else limits.window + self._here.ahead
        if not self.unread.load(client, most):
            return
        queue = self._state.queues.get(client, {})
        room = limits.window - len(register.window)
        if room <= 0 or not queue:
            return
        under_way = {sent.dot for sent in register.window.values() if not sent.is_received}
        most = limits.window_bytes
        size_of = self._state.size_in_memory
        size = sum(size_of(dot) for dot in under_way) if most >= 0 else 0
        for dot, qos in reversed(queue.items()) if limits.newest_first else queue.items():
            if dot in under_way:
                continue
            if most >= 0:
                size += size_of(dot)
                if size > most and register.window:
                    return
            packet = register.last_packet % PACKETS + 1
            while packet in register.window:
                packet = packet % PACKETS + 1
            register.last_packet = packet
            sent = SentMessage(dot, False, qos)
            self._state.send(client, packet, sent)
            self._transmit(attachment, packet, sent)
            room -= 1
            if not room:
                break

    def deliver(self) -> None:
        """Sends what has come in this turn, once it serves: a fork that it lacks may have what goes before that."""
        if self._to_deliver and not self._owned.serves(self._here.store):
            return
        for client in list(self._to_deliver):
            self._to_deliver.pop(client, None)
            self._deliver(client)

    def flush(self) -> None:
        """The turn is over: each front gets what there is for it."""
        self.subscribers.groups.tell()
        touched, self._touched = self._touched, {}
        for client in touched:
            each = self.serving.get(client)
            if each is not None and each.steps and each.is_told:
                self._tell(each)

    def _tell(self, attachment: Attachment) -> None:
        """Its front gets what there is for it, and how far what it said is safe."""
        steps, attachment.steps = attachment.steps, []
        has_others, attachment.has_others = attachment.has_others, False
        here, lineage = self._here, self._owned.view.lineage
        client, number, link = attachment.client, attachment.connection, attachment.link
        if attachment.front == here.store and not has_others:
            if here.front.take_messages(number, lineage, link, steps):
                return
        safe = attachment.safe_done(self._owned.safe_version()) if attachment.has_unsafe() else 0
        message = ToClient(client, number, lineage, link, steps_of(steps), here.clock, safe)
        here.send(attachment.front, message)

    def _tell_safe(self) -> None:
        """Fronts for which there is nothing else are told what is safe."""
        safe = self._owned.safe_version()
        for client in list(self._with_unsafe):
            attachment = self.serving.get(client)
            if attachment is not None and attachment.is_told and attachment.is_some_safe(safe):
                self._tell(attachment)
            if attachment is None or not attachment.has_unsafe():
                del self._with_unsafe[client]

    # A client's packets

    def on_steps(self, front: int, message: FromClient) -> None:
        self._here.heard_of(message.clock)
        connection, lineage, link = message.connection, message.lineage, message.link
        self.take_steps(front, message.client, connection, lineage, link, message.steps)

    def take_steps(
        self,
        front: int,
        client: str,
        connection: int,
        lineage: Lineage,
        link: int,
        steps: list[SessionStep],
    ) -> None:
        """Packets of a client whose connection is attached; those of another one are nobody's."""
        attachment = self.serving.get(client)
        if attachment is None or lineage != self._owned.view.lineage:
            return
        if not attachment.is_of(connection, front, link):
            return
        for step in steps:
            self._on_step(attachment, step)
        if front != self._here.store:
            self._are_done(attachment, sum([each.count for each in steps if each.kind == PUBACK]))
        self._here.heard_of(self._state.last)
        self._to_deliver[client] = None
        if self.held.has(client) and not self.subscribers.is_full(client):
            self.held.release(client)

    def _on_step(self, attachment: Attachment, step: SessionStep) -> None:
        kind: int = step.kind
        client = attachment.client
        if kind == PUBACK and self.flows.are_done(client, step.packet, step.count):
            return
        if kind <= PUBCOMP:  # PUBACK, PUBREC or PUBCOMP
            for packet in packets_from(step.packet, step.count):
                self._on_acknowledgement(attachment, kind, packet)
        elif kind == PUBLISHED:
            self._on_publish(attachment, step)
        elif kind == PUBREL:
            self._state.release(client, step.packet)
            self._when_safe(attachment, 2, lambda: self._add(attachment, SEND_PUBCOMP, step.packet))
        elif kind == SUBSCRIBE:
            request = request_of(attachment.connection, step.packet)
            self.subscribers.subscribe(
                client, step, request, lambda: self._say(attachment, SUBSCRIBED, step)
            )
        elif kind == UNSUBSCRIBE:
            self.subscribers.unsubscribe(
                client,
                [each for each, _ in step.filters],
                lambda: self._say(attachment, UNSUBSCRIBED, step),
            )
        elif kind == GONE:
            self._on_gone(attachment)

    def _say(self, attachment: Attachment, kind: int, step: SessionStep) -> None:
        if self.serving.get(attachment.client) is attachment:
            self._put(attachment, SessionStep(kind, step.packet, filters=step.filters))

    def _on_acknowledgement(self, attachment: Attachment, kind: int, packet: int) -> None:
        """It counts only in the step that awaits it."""
        state, client = self._state, attachment.client
        sent = state.registers[client].window.get(packet)
        if sent is None or not sent.awaits(kind):
            return
        if kind != PUBCOMP:
            state.done(client, sent.dot)
        if kind == PUBREC:
            state.send(client, packet, SentMessage(sent.dot, True, 2))
            self._when_safe(attachment, 2, lambda: self._add(attachment, SEND_PUBREL, packet))
        else:
            state.unsend(client, packet)

    def _on_publish(self, attachment: Attachment, step: SessionStep) -> None:
        """QoS 2 in: this packet id is this message, now and after each repetition."""
        state, client, packet = self._state, attachment.client, step.packet
        known = state.registers[client].received.get(packet)
        is_known = known is not None and self._is_repetition(known, step)
        if known is None or step.is_settled or not (is_known and self._has_given(known)):
            front = self._here.incarnation_of(attachment.front)
            known = ReceivedId.of(step, known if is_known else None, front)
            state.receive(client, packet, known)
        answer = SessionStep(REGISTERED, packet, list(known.addresses))
        self._when_safe(attachment, 2, lambda: self._put(attachment, answer))

    def _has_given(self, known: ReceivedId) -> bool:
        """Whether all have it who are in no slot: from a front that is there, or whoever that was."""
        return not known.front or self._here.is_there(known.front)

    def _is_repetition(self, known: ReceivedId, step: SessionStep) -> bool:
        """Else the client has finished the old message: this state is older than the client's.

        Without a digest it came while the session was a node's.
        """
        return step.is_again and known.digest in (b"", step.digest)

    # Connections go

    def _on_gone(self, attachment: Attachment) -> None:
        client = attachment.client
        del self.serving[client]
        self._state.grown[client] = None
        self.held.release(client)
        self.away.went(client)
        self.subscribers.groups.went(client, True)

    def are_at_rest(self) -> bool:
        """Whether no client waits for a heartbeat; when sessions expire, a few of them more or less do not count."""
        has_aging = self._here.limits.all.age > 0 and self._state.waits()
        wait = bool(self._refused or self._with_unsafe or self.unread.clients)
        is_waited_for = wait or has_aging or self.held.are_any()
        return self.subscribers.groups.are_at_rest() and not is_waited_for

    def look(self) -> None:
        """Time has passed: ends attachments whose link is another, and what was to be there only for a while."""
        for client, each in list(self.serving.items()):
            if not self._is_link(each.front, each.link):
                del self.serving[client]
                self.held.release(client)
                self.away.went(client)
                self.subscribers.groups.went(client, False)
        if not self._owned.serves(self._here.store):
            return
        self._tell_safe()
        self._to_deliver.update(self.unread.clients)
        self.held.look()
        self.away.expire(self.subscribers, self.serving.keys() | self._refused.keys())
        self.subscribers.groups.look()

    def on_merge(self) -> None:
        """A fork has joined the state."""
        self.subscribers.groups.count()
        self._to_deliver.update(dict.fromkeys(self.serving))
        left, self._state.unfinished = self._state.unfinished, []
        for client, packet in left:
            attachment = self.serving.get(client)
            if attachment is not None:
                sent = self._state.registers[client].window[packet]
                self._resume(attachment, packet, sent, True)

    def retry(self) -> None:
        """The owner serves: who asked before is attached."""
        refused, self._refused = self._refused, {}
        for front, asked in refused.values():
            self.on_attach(front, asked)
        self._to_deliver.update(dict.fromkeys(self.serving))
