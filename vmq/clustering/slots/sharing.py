"""Share groups: which member gets a message, and where it goes when that one is away.

An origin chooses a slot with members of a group, the slot's owner one of these: connected ones first. What waits for a
member whose client is away goes to one that is connected, as soon as there is any: in the same slot as a record, in
another by way of a queue for that slot, from which the owner offers it when this record is safe. Each time its `moves`
count one more, by which forks know who of them gave it to whom.

What was sent at QoS 2 stays: its client may own it already. What was not stays, too, as long as another owner may serve
that client: until every member has accepted this lineage or its process has ended, or the client's front has said that
it went, since a member was lost. And where there may be another owner, it chooses the same member for what is nobody's,
or was handed on.
"""

from collections.abc import Callable
from functools import partial

from vmq.clustering.slots.attachment import Attachment
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.words import (
    GROUP,
    MAX_HANDED,
    PLACE_BITS,
    Dot,
    digest_of,
    group_queue,
    of_group_queue,
    split_scope,
    store_of,
)
from vmq.mqtt.special import is_served
from vmq.mqtt.topics import split_shared
from vmq_cluster.errors import StorageError

#: What a member's queue was like when nothing more of it could go: messages, groups, and whether QoS 2 might.
_Tried = tuple[int, frozenset[str], bool]


class ShareGroups:
    """The share groups of one slot, for its owner.

    Args:
        serving: the attachments: whose client has none is away.
        to_deliver: clients whose queues have more.
        is_full: whether a queue has no room for so many bytes more.
    """

    def __init__(
        self,
        owned: OwnedSlot,
        serving: dict[str, Attachment],
        to_deliver: dict[str, None],
        is_full: Callable[[str, int], bool],
    ) -> None:
        self._owned = owned
        self._here = owned.here
        self._state = owned.state
        self._serving = serving
        self._to_deliver = to_deliver
        self._is_full = is_full
        #: Members by group, which stands behind the scope of its mountpoint, with the QoS granted.
        self._members: dict[str, dict[str, int]] = {}
        #: The heartbeats of this owner, and at which members went; who has gone as its front said; what was tried.
        self._beats = 0
        self._went: dict[str, int] = {}
        self._gone: set[str] = set()
        self._tried: dict[str, _Tried] = {}
        #: Groups whose members came or went, and whether the cluster was told that some are connected.
        self._touched: dict[str, None] = {}
        self._told: dict[str, bool] = {}
        #: What is about to be offered to other slots, and what of it is safe in the queues for these.
        self._handing: set[Dot] = set()
        self._ready: list[tuple[str, Dot]] = []
        self.count()

    # Members

    def count(self) -> None:
        """Looks who is a member: a fork has joined the state, by which a group may have none any more."""
        self._touched.update(dict.fromkeys(self._members))
        self._members = {}
        for client, register in self._state.registers.items():
            for topic_filter, qos in register.granted().items():
                self.joined(client, topic_filter, qos)

    def joined(self, client: str, topic_filter: str, qos: int) -> None:
        """A client has subscribed."""
        if split_shared(topic_filter)[0] and not is_served(topic_filter):
            if qos:
                group = split_scope(client)[0] + topic_filter
                self._members.setdefault(group, {})[client] = qos
                self._touched[group] = None
            else:
                self._remove(client, topic_filter)

    def left(self, client: str, topic_filter: str) -> None:
        """It has unsubscribed: what was not sent goes to other members."""
        self._remove(client, topic_filter)
        state = self._state
        under_way = self._under_way(client)
        group = split_scope(client)[0] + topic_filter
        for dot in list(state.shared.get(client, ())):
            message = state.messages[dot]
            if message.group == group and dot not in under_way:
                self._move(client, dot, *self.choose(dot, message))

    def _remove(self, client: str, topic_filter: str) -> None:
        group = split_scope(client)[0] + topic_filter
        members = self._members.get(group)
        if members is not None and members.pop(client, 0):
            self._touched[group] = None
            if not members:
                del self._members[group]

    def ended(self, client: str, held: dict[Dot, StoredMessage], filters: list[str]) -> None:
        """A session is over, and what it held with it."""
        for each in filters:
            self._remove(client, each)
        self._gone.discard(client)
        self._went.pop(client, None)
        for dot, message in held.items():
            other, qos = self.choose(dot, message)
            self._state.put(other, dot, qos, message.placed(message.stamp, message.moves + 1))
            self._to_deliver[other] = None

    def came(self, client: str) -> None:
        """A client is connected."""
        self._gone.discard(client)
        self._went.pop(client, None)
        self._touch(client)

    def went(self, client: str, is_told: bool) -> None:
        """It is not any more; `is_told`: its front says so."""
        if self._touch(client) or client in self._state.shared:
            self._went[client] = self._beats
            if is_told:
                self._gone.add(client)

    def lost_a_peer(self) -> None:
        """Clients that have gone may be with another owner from now on."""
        self._gone.clear()

    def _touch(self, client: str) -> bool:
        """The groups of a client are to be looked at; whether it has any."""
        scope, register = split_scope(client)[0], self._state.registers[client]
        groups = [scope + each for each in register.subscriptions]
        found = [each for each in groups if each in self._members]
        self._touched.update(dict.fromkeys(found))
        return bool(found)

    # Messages

    def has_had(self, dot: Dot, group: str) -> bool:
        """Whether a member got a message of an owner whose state was newer than this one."""
        registers = self._state.registers
        return any(dot in registers[client].ahead for client in self._members.get(group, ()))

    def choose(self, dot: Dot, message: StoredMessage) -> tuple[str, int]:
        """Who gets a message and at which QoS: a connected member, the one with the shortest queue.

        The group itself where there is none, or the disk does not give its queue; of what was handed on, the one that
        each fork would choose.
        """
        members = self._members.get(message.group, {})
        if dot[1] >> PLACE_BITS:
            found = self._fixed(message, members)
        else:
            prefers_near = self._here.limits.all.prefers_near
            found = self._best(message, members, store_of(dot[0]) if prefers_near else 0)
        if found is None or not self._gives(found[0]):
            return group_queue(message.group), message.qos
        return found

    def has_another(self, group: str, client: str) -> bool:
        """Whether a group has another member than this one, connected or not, here or in another slot."""
        others = self._members.get(group, {}).keys() - {client}
        return bool(others) or self._here.slot_for(group, self._owned.slot, True) >= 0

    def _gives(self, client: str) -> bool:
        """Whether the disk gives all of a client's queue, as it has to before a message of a group joins it."""
        try:
            self._state.load(client)
        except StorageError:  # told when the client is about to get it
            return False
        return True

    def _fixed(self, message: StoredMessage, members: dict[str, int]) -> tuple[str, int] | None:
        """The member that each fork chooses which knows the same ones."""
        if not members:
            return None
        drawn = int.from_bytes(digest_of(message.topic, message.payload), "big")
        client = sorted(members)[drawn % len(members)]
        return client, self._qos(client, members[client], message)

    def _qos(self, client: str, granted: int, message: StoredMessage) -> int:
        limits = self._here.limits.of(self._state.registers[client].limits)
        return limits.qos(granted, message.qos)

    def _best(
        self, message: StoredMessage, members: dict[str, int], near: int = 0
    ) -> tuple[str, int] | None:
        """A connected member, the one with the shortest queue; one that is connected to `near` first, if it has room.

        None: there is no member.
        """
        size = message.size()
        ranked = [
            (
                client not in self._serving,
                self._is_full(client, size),
                near != 0 and not self._is_at(client, near),
                self._state.waiting(client),
                client,
            )
            for client in members
        ]
        if not ranked:
            return None
        client = min(ranked)[4]
        return client, self._qos(client, members[client], message)

    def _is_at(self, client: str, store: int) -> bool:
        served = self._serving.get(client)
        return served is not None and served.front == store

    def _move(self, client: str, dot: Dot, to: str, qos: int) -> None:
        self._state.move(client, dot, to, qos)
        self._to_deliver[to] = None

    def _under_way(self, client: str) -> dict[Dot, int]:
        register = self._state.registers.get(client)
        if register is None:
            return {}
        return {sent.dot: packet for packet, sent in register.window.items()}

    # Time

    def look(self) -> None:
        """With a heartbeat: what waits for who is away goes to who is there."""
        self._beats += 1
        if self._is_late(self._beats) and len(self._told) < len(self._members):
            self._touched.update(dict.fromkeys(self._members))
        self._tried = {each: of for each, of in self._tried.items() if each in self._state.shared}
        for holder in list(self._state.shared):
            if holder.startswith(GROUP):
                self._look_at_group(holder)
            elif holder not in self._serving:
                late = self._is_late(self._beats - self._went.get(holder, 0))
                if late or holder in self._gone:
                    self._pass_on(holder)

    def are_at_rest(self) -> bool:
        """Whether nothing of them waits for a heartbeat."""
        if len(self._told) < len(self._members):
            return False
        return all(each in self._serving for each in self._state.shared)

    def _is_late(self, beats: int) -> bool:
        reach = self._here.reach
        return beats * reach.interval > reach.timeout

    def _pass_on(self, client: str) -> None:
        """What a member holds that is away goes to others that are connected."""
        state = self._state
        is_nowhere = client in self._gone or self._is_sole()
        scope = split_scope(client)[0]
        asked = [scope + each for each in state.registers[client].granted()]
        groups = frozenset(each for each in asked if self._has_other(each))
        tried = len(state.shared[client]), groups, is_nowhere
        if not groups or self._tried.get(client) == tried:
            return
        under_way = self._under_way(client)
        for dot in list(state.shared[client]):
            message = state.messages[dot]
            is_once = state.queues[client][dot] == 2
            if message.group not in groups or (is_once and (dot in under_way or not is_nowhere)):
                continue
            other = self._other(message, dot)
            if other is not None:
                if dot in under_way:
                    state.unsend(client, under_way[dot])
                self._move(client, dot, *other)
        self._tried[client] = len(state.shared.get(client, ())), groups, is_nowhere

    def _is_sole(self) -> bool:
        """Whether there can be no other owner: who has not accepted this one does not run."""
        peers, cleared = self._here.reach.peers, self._owned.cleared
        return all(store in cleared or peer.is_dead for store, peer in peers.items())

    def _has_other(self, group: str) -> bool:
        """Whether a group has members that are connected, here or in another slot."""
        if any(each in self._serving for each in self._members.get(group, ())):
            return True
        return group in self._members and self._here.slot_for(group, self._owned.slot, False) >= 0

    def _other(self, message: StoredMessage, dot: Dot) -> tuple[str, int] | None:
        """Who gets a message instead of one that is away: a connected member with room, or another slot."""
        members = self._members.get(message.group, {})
        size = message.size()
        served = {
            client: qos
            for client, qos in members.items()
            if client in self._serving and not self._is_full(client, size)
        }
        found = self._best(message, served)
        return found if found and self._gives(found[0]) else self._elsewhere(message, dot, False)

    def _elsewhere(self, message: StoredMessage, dot: Dot, is_any: bool) -> tuple[str, int] | None:
        """The queue for another slot with members; `is_any`: also of those who are away."""
        slot = self._here.slot_for(message.group, self._owned.slot, is_any)
        if slot < 0 or dot[1] >> PLACE_BITS >= MAX_HANDED:
            return None
        return group_queue(message.group, slot), message.qos

    def _look_at_group(self, queue: str) -> None:
        """What has no member here waits for one, or for a slot that has; what has one is offered there."""
        state = self._state
        slot, group = of_group_queue(queue)
        for dot in list(state.shared[queue]):
            if slot >= 0:
                if dot not in self._handing:
                    self._handing.add(dot)
                    self._owned.when_safe(partial(self._hand, queue, dot))
                continue
            message = state.messages[dot]
            members = self._members.get(group, {})
            if self._is_sole():
                other = self._best(message, members) or self._elsewhere(message, dot, True)
            else:
                other = self._fixed(message, members)
            if other is None or not self._gives(other[0]):
                return
            self._move(queue, dot, *other)

    def _hand(self, queue: str, dot: Dot) -> None:
        self._ready.append((queue, dot))

    def expire(self, oldest: int) -> list[tuple[str, StoredMessage, int]]:
        """What waits for a group since before this stamp goes, unless it is on its way to another slot; with its QoS.

        The group stands where a member would.
        """
        state, found = self._state, []
        for queue in [each for each in state.shared if each.startswith(GROUP)]:
            for dot in list(state.shared[queue]):
                message = state.messages[dot]
                if dot in self._handing:
                    continue
                if message.stamp >= oldest:
                    break
                found.append((message.group, message, state.queues[queue][dot]))
                state.done(queue, dot)
        return found

    def take_ready(self) -> list[tuple[str, Dot]]:
        """Queues for other slots, and what of them these may be offered now."""
        ready, self._ready = self._ready, []
        found = []
        for queue, dot in ready:
            if dot in self._state.queues.get(queue, {}):
                found.append((queue, dot))
            else:  # another fork has done it
                self._handing.discard(dot)
        return found

    def handed_on(self, queue: str, dot: Dot) -> None:
        """Another slot has it, safe."""
        self._handing.discard(dot)
        self._state.done(queue, dot)

    def tell(self) -> None:
        """Tells the cluster of which groups some member is connected here."""
        touched, self._touched = self._touched, {}
        for group in touched:
            is_there = any(each in self._serving for each in self._members.get(group, ()))
            if not is_there and group not in self._told and not self._is_late(self._beats):
                continue  # they are about to come to this owner
            if group not in self._members:
                self._told.pop(group, None)
            elif self._told.get(group) != is_there:
                self._told[group] = is_there
                self._here.effects.presence.append((self._owned.slot, group, is_there))
