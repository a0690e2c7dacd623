"""All machines of one node behind one face: slots, origin, front.

The broker, or a simulator, feeds it what happens and takes the effects of each turn. It has no clock, no randomness, no
disk and no sockets.
"""

from vmq.clustering.front.front import SessionFront
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import OfferTaken, SessionLimits
from vmq.clustering.origin.origin import Origin
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.origin.routes import SlotRoutes
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.words import Dot, handed_on, of_group_queue, slot_of


class SessionNode:
    """One node's part in the durable sessions of a cluster."""

    def __init__(self, here: LocalNode, slots: int) -> None:
        self.here = here
        self.effects = here.effects
        self.slots = SlotMachine(here, slots)
        self.origin = Origin(here, self.slots.view)
        self.origin.owners, self.origin.turns = self.slots.owners, self.slots.turns
        self.front = SessionFront(here, slots, self.origin, self.slots.view)
        self.routes = SlotRoutes()
        here.slot_for = self.routes.slot_for
        #: There is a link that attachments do not know.
        self._is_linked_anew = False

    # What happens

    def receive(self, sender: int, message: NodeMessage) -> None:
        """A message of another node, over a link that is whole."""
        self.take(sender, message)
        self.finish()

    def take(self, sender: int, message: NodeMessage) -> None:
        """One of several messages of another node, over a link that is whole; `finish` is to follow."""
        if isinstance(message, OfferTaken):
            self.origin.on_taken(message)
        elif not self.front.receive(message):
            self.slots.receive(sender, message)
        self._notice_moves()

    def _notice_moves(self) -> None:
        """Ends attachments in the step in which a new lineage is learnt."""
        moved, self.slots.moved = self.slots.moved, {}
        for slot in moved:
            self.front.on_moved(slot)
            self.origin.on_moved(slot)

    def beat(self, store: int) -> None:
        """Tells a peer that this node is there, out of turn."""
        self.slots.beat(store)
        self.finish()

    def hand_over(self) -> None:
        """This node is leaving: owners look for others at once."""
        self.slots.look(True)
        self._notice_moves()
        self.finish()

    def wake(self, now: int) -> None:
        """What comes may have lain in a socket while this node was held up: first it learns of that."""
        if self.here.reach.is_held_up(now):
            self.tick(now)

    def tick(self, now: int) -> None:
        """Time has passed, by this node's clock, in milliseconds."""
        self.here.now = now
        self.front.flush_late(True)
        self.effects.send_later(True)
        is_beat = self.here.reach.tick(now)
        self._catch_up()
        self.slots.look(is_beat)
        self._notice_moves()
        if is_beat or self._is_linked_anew:
            self._is_linked_anew = False
            self.front.look(True)
            self.origin.look()
        if is_beat:
            for owner in self.slots.restless():
                self._hand_on(owner)
        self.finish()

    def rests(self, now: int) -> bool:
        """Whether a tick would find nothing to do: then time has passed, and that is all."""
        slots, turns = self.slots, self.slots.turns
        has_work = slots.is_fresh or slots.patience or slots.rounds.left or not turns.are_over()
        has_late = self.front.late or self.effects.later or self._is_linked_anew
        if has_work or has_late or self.here.is_leaving or not self.here.reach.rests(now):
            return False
        self.here.now = now
        return True

    def go_on(self) -> bool:
        """Goes on with a look that there was no time for (`LocalNode.has_time`); whether something is left of it."""
        has_more = self.slots.look_on()
        self._notice_moves()
        self.finish()
        return has_more

    def on_link(self, store: int, life: int) -> None:
        """There is a link to a peer, which both ends call by this number."""
        self.here.reach.on_link(store, life)
        self._is_linked_anew = True

    def on_break(self, store: int, is_dead: bool) -> None:
        """The link to a peer broke; `is_dead`: its process has ended."""
        self.here.reach.on_break(store, is_dead)
        self.slots.look(False)
        self._notice_moves()
        self.front.look(False)
        self.origin.look()
        self.finish()

    def on_stored(self, number: int) -> None:
        """A commit is on disk, and all before it."""
        self.effects.end_commit(number)
        self.finish()

    def announced(self, slot: int, ticket: int) -> None:
        """The nodes in reach know the routes of a ticket."""
        owner = self.slots.owners.get(slot)
        if owner is not None:
            self.slots.turns.touch(slot)
            owner.attachments.subscribers.announced(ticket)
            self.finish()

    def connect(
        self,
        number: int,
        client: str,
        is_clean: bool = False,
        user: str | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        """A client has connected to this node; `user`: whose session it is to be; `limits`: what is decided for it."""
        slot = slot_of(client, self.slots.slots)
        self.front.connect(number, client, slot, is_clean, user, limits)
        self.finish()

    def unsubscribe(self, client: str, topic_filter: str) -> None:
        """A subscription ends though no packet of its client asks for that, if this node owns it."""
        slot = slot_of(client, self.slots.slots)
        owner = self.slots.owners.get(slot)
        if owner is not None and client in owner.state.registers:
            self.slots.turns.touch(slot)
            owner.attachments.subscribers.unsubscribe(client, [topic_filter], lambda: None)
            self.finish()

    def purge(self, client: str, reason: str) -> int:
        """Drops what waits for a client of a slot of this node; how much that was."""
        slot = slot_of(client, self.slots.slots)
        owner = self.slots.owners[slot]
        self.slots.turns.touch(slot)
        count = owner.attachments.subscribers.purge(client, reason)
        self.finish()
        return count

    def awaited(self) -> int:
        """Messages that publishers wait for clients of this node to have, before they are in any record."""
        owners, turns = self.slots.owners, self.slots.turns
        count = 0
        for slot in list(turns.awaiting):
            owner = owners.get(slot)
            waiting = 0 if owner is None else owner.awaited()
            if waiting == 0:
                del turns.awaiting[slot]
            count += waiting
        return count

    def are_far(self) -> bool:
        """Whether all of these clients are connected to other nodes."""
        owners = self.slots.owners
        found = [owners[slot] for slot in self.slots.turns.awaiting if slot in owners]
        return all(each.are_far() for each in found)

    def hurry(self) -> None:
        """They wait no more: it is to be safe instead."""
        self._hurry()
        self.finish()

    def _hurry(self) -> None:
        turns = self.slots.turns
        awaiting, turns.awaiting = turns.awaiting, {}
        for slot in awaiting:
            owner = self.slots.owners.get(slot)
            if owner is not None:
                self.slots.turns.touch(slot)
                owner.hurry()

    def _catch_up(self) -> None:
        """What has changed and nobody waits for is due at the end of this turn."""
        self._hurry()
        for slot in self.slots.turns.catch_up():
            owner = self.slots.owners.get(slot)
            if owner is not None:
                owner.state.tell_late()

    def end(self) -> None:
        """The node stops: what has changed is written, though nobody waits for it."""
        self._catch_up()
        self.finish()

    def finish(self) -> None:
        """The turn is over, as after the front's methods, or `take`: who is concerned gets what there is."""
        local = self.effects.local
        while True:
            self.front.flush()
            self.origin.flush()
            self.slots.flush()
            if not local:
                if self.front.late:
                    self.front.flush_late(False)
                self.effects.send_later(False)
                return
            while local:
                self.take(self.here.store, local.popleft())

    # What an owner publishes itself

    def _hand_on(self, owner: SlotOwner) -> None:
        """Messages of share groups go to other slots with members."""
        groups, messages = owner.attachments.subscribers.groups, owner.state.messages
        for queue, dot in groups.take_ready():

            def then(queue: str = queue, dot: Dot = dot) -> None:
                self.slots.turns.touch(owner.slot)
                groups.handed_on(queue, dot)

            message = messages[dot]
            slot, group = of_group_queue(queue)
            address = slot, handed_on(owner.slot, dot), group
            topic, payload, qos = message.topic, message.payload, message.qos
            self.origin.publish(
                [address], Publication(topic, payload, qos, 0, then, message.retain)
            )
