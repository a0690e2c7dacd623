"""What is shown of slots: who has which, what is missing, and the sessions in those of this node."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.sessions import AwaySession
from vmq.clustering.running.clocks import ClockStatus
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.turns import SlotLacks
from vmq.clustering.slots.words import slot_of, split_scope, store_of
from vmq.mqtt.message import NO_MESSAGE, Delivery
from vmq.mqtt.topics import matches
from vmq.runtime.metrics import Family, Sample
from vmq.runtime.own_sessions import SessionFigures

#: Characters of client ids in one answer of `SlotStatus.away_from`, but for the last: ids are of 65,535 at most.
AWAY_SIZE: Final = 1 << 18


class SlotTally(NamedTuple):
    """The slots of one node."""

    owned: int
    followed: int
    #: Of those that it owns, those without a follower where copies are to be.
    alone: int
    #: Those that wait until all nodes in reach have handed in what they have of them; None: the node itself knows.
    waiting: int | None
    #: Those whose copy lacks what this node had a second ago.
    behind: int


class SlotStatus:
    """The slots of a cluster as one node knows them.

    Args:
        machines: this node's.
        name_of: a store's node.
    """

    def __init__(self, machines: SessionNode, name_of: Callable[[int], str]) -> None:
        self._machines = machines
        self._name_of = name_of
        self._here = machines.here
        self.clocks = ClockStatus(machines.here, name_of)
        slots = machines.slots
        self._lacks = SlotLacks(machines.here, slots.owners, slots.turns)
        #: The looks for which slots had no follower or waited; by follower, those for which it was behind.
        self._looks = 0
        self._lagging: dict[int, int] = {}

    def tally(self, store: int) -> SlotTally:
        """The slots of a store."""
        slots = self._machines.slots
        views = list(slots.views.values())
        owned = [view for view in views if store_of(view.owner) == store and view.epoch]
        alone = sum(not view.followers for view in owned) if self._here.replicas > 1 else 0
        waiting = None
        if store == self._here.store:
            waiting = sum(not owner.serves(store) for owner in slots.owners.values())
        followed = sum(store in view.followers for view in views)
        return SlotTally(len(owned), followed, alone, waiting, self._lacks.behind.get(store, 0))

    def owner_of(self, client_id: str) -> int:
        """The store that has a client's session; 0: nobody knows one."""
        slot = slot_of(client_id, self._machines.slots.slots)
        return store_of(self._machines.slots.view(slot).owner)

    def figures(self, client_id: str) -> SessionFigures | None:
        """How a session is that is in a slot of this node; None: there is none."""
        owner = self._owner(client_id)
        return None if owner is None else _figures(owner, client_id)

    def _owner(self, client_id: str) -> SlotOwner | None:
        """Who has a client's session, in this node."""
        owner = self._machines.slots.owners.get(slot_of(client_id, self._machines.slots.slots))
        register = None if owner is None else owner.state.registers.get(client_id)
        return owner if register is not None and register.session else None

    def contents(self, client_id: str) -> list[tuple[str, Delivery]] | None:
        """What is in the queue of a session in a slot of this node, and how far it is; None: there is none."""
        owner = self._owner(client_id)
        if owner is None:
            return None
        state, found, sent = owner.state, [], set()
        state.load(client_id)
        for packet_id, each in state.registers[client_id].window.items():
            sent.add(each.dot)
            message = state.messages.get(each.dot)
            if each.is_received or message is None:
                delivery = Delivery(NO_MESSAGE, each.qos, False, "")
            else:
                delivery = message.delivery(each.qos)
            delivery.packet_id = packet_id
            found.append(("released" if each.is_received else "inflight", delivery))
        for dot, qos in state.queues.get(client_id, {}).items():
            if dot not in sent:
                found.append(("waiting", state.messages[dot].delivery(qos)))
        return found

    def away(self) -> Iterator[tuple[str, SessionFigures]]:
        """The sessions in slots of this node whose clients are not connected anywhere."""
        for owner, client_id in self._away():
            yield client_id, _figures(owner, client_id)

    def count_away(self) -> int:
        """How many of them there are."""
        return self._lacks.count_away()

    def _away(self) -> Iterator[tuple[SlotOwner, str]]:
        for owner in list(self._machines.slots.owners.values()):
            serving = owner.attachments.serving
            for client_id, register in list(owner.state.registers.items()):
                if register.session and client_id not in serving:
                    yield owner, client_id

    def wanting(self, scope: str, topic: str) -> Iterator[tuple[str, str, int, bool]]:
        """The clients of a mountpoint in slots of this node that want a topic's messages.

        Each with the filter by which it gets them, the QoS granted, and whether it is connected somewhere.
        """
        for owner in list(self._machines.slots.owners.values()):
            serving = owner.attachments.serving
            for client, register in list(owner.state.registers.items()):
                own_scope, client_id = split_scope(client)
                if not register.session or own_scope != scope:
                    continue
                found = [
                    (qos, each)
                    for each, qos in register.granted().items()
                    if not each.startswith("$share/") and matches(each, topic)
                ]
                if found:
                    qos, topic_filter = max(found)
                    yield client_id, topic_filter, qos, client in serving

    def away_from(self, first: int, after: str, most: int) -> tuple[list[AwaySession], int, str]:
        """So many of them, from a slot on, and in it after a client; and from where on there are more (-1: nowhere)."""
        found: list[AwaySession] = []
        size = 0
        for slot in sorted(each for each in self._machines.slots.owners if each >= first):
            owner = self._machines.slots.owners[slot]
            last = after if slot == first else ""
            for client_id in sorted(each for each in owner.state.registers if each > last):
                if len(found) == most or size >= AWAY_SIZE:
                    return found, slot, last
                last = client_id
                is_away = client_id not in owner.attachments.serving
                if owner.state.registers[client_id].session and is_away:
                    found.append(_away(owner, client_id))
                    size += len(client_id)
        return found, -1, ""

    def families(self) -> Iterator[Family]:
        """The figures for metrics."""
        owned, followed, alone, waiting, _ = self.tally(self._here.store)
        owners = self._machines.slots.owners.values()
        sessions = sum(
            bool(register.session)
            for owner in owners
            for register in owner.state.registers.values()
        )
        queued = sum(owner.state.all_waiting() for owner in owners)
        for name, text, value in (
            ("cluster_slots_owned", "Slots of durable sessions that this node owns.", owned),
            ("cluster_slots_followed", "Slots that it has a copy of.", followed),
            (
                "cluster_slots_without_follower",
                "Slots that it owns and nobody has a copy of.",
                alone,
            ),
            ("cluster_slots_waiting", "Slots that it owns and does not serve yet.", waiting or 0),
            ("cluster_slots_sessions", "Durable sessions in slots that it owns.", sessions),
            ("cluster_slots_messages", "Messages that wait or are under way in them.", queued),
            (
                "cluster_slots_offered",
                "Messages published here that some slot does not have safe yet.",
                self._machines.origin.waiting(),
            ),
        ):
            yield Family(name, "gauge", text, (Sample((), value),))
        yield Family(
            "cluster_slots_lagging",
            "gauge",
            "Slots of which another node's copy lacks what this one had a second ago.",
            tuple(
                Sample((("peer", self._name_of(store)),), self._lacks.behind.get(store, 0))
                for store in sorted(self._here.reach.peers)
            ),
        )

    def look(self) -> None:
        """Time has passed."""
        self.clocks.look()
        lacks = self._lacks
        lacks.look()
        self._looks = self._looks + 1 if lacks.alone or lacks.waiting else 0
        self._lagging = {store: self._lagging.get(store, 0) + 1 for store in lacks.behind}

    def problems(self, looks: int) -> Iterator[str]:
        """What is missing since so many looks, and whose clock is wrong."""
        yield from self.clocks.problems()
        for store, seen in sorted(self._lagging.items()):
            if seen > looks:
                name, count = self._name_of(store), self._lacks.behind[store]
                yield f"the copies of {_slots(count)} at node {name} are behind: acknowledgements wait for it"
        alone, waiting = self._lacks.alone, self._lacks.waiting
        if self._looks <= looks:
            return
        if alone:
            yield f"{_slots(alone)} without a copy yet: what is in them is on the disk of this node alone"
        if waiting:
            yield f"{_slots(waiting)} still to get what other nodes have: clients there are not served"


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _away(owner: SlotOwner, client_id: str) -> AwaySession:
    each = _figures(owner, client_id)
    return AwaySession(
        client_id,
        each.user,
        each.queue_size,
        each.waiting_acks or 0,
        each.offline_since,
        len(each.subscriptions),
    )


def _figures(owner: SlotOwner, client_id: str) -> SessionFigures:
    register = owner.state.registers[client_id]
    under_way = len(register.window)
    left = owner.attachments.away.left.get(client_id, 0)
    return SessionFigures(
        is_online=client_id in owner.attachments.serving,
        is_durable=True,
        user=register.user or None,
        peer=None,
        protocol=None,
        keep_alive=None,
        queue_size=max(0, owner.state.waiting(client_id) - under_way),
        waiting_acks=under_way,
        dropped=0,
        connected_at=0.0,
        offline_since=left / 1000,
        subscriptions=register.granted(),
        asked=dict(register.asked),
    )
