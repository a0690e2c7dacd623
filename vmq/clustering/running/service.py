"""The machines of slots of one node, driven: links, disk, clock and clients in, effects out.

Whatever happens in a turn of the event loop is carried out at its end: frames to peers, one commit, packets to clients.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from random import Random, SystemRandom
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.links import LinkFrame, LinkHello
from vmq.clustering.routing.routing import Routing
from vmq.clustering.routing.shared_dispatch import SlotTargets
from vmq.clustering.routing.subscribe_barrier import SubscribeBarrier
from vmq.clustering.running.agreement import RouteAgreement
from vmq.clustering.running.clients import (
    SlotClaims,
    SlotPackets,
    SlotPeers,
    SlotSessions,
    SlotSubscriptions,
)
from vmq.clustering.running.disk import SlotDisk
from vmq.clustering.running.fronts import SlotFronts
from vmq.clustering.running.limits import limits_as_configured
from vmq.clustering.running.links import LinkLives
from vmq.clustering.running.publishes import SlotPublishes
from vmq.clustering.running.routes import ClusterRoutes
from vmq.clustering.running.rows import SlotRows
from vmq.clustering.running.status import SlotStatus, SlotTally
from vmq.clustering.running.taking import SlotIntake
from vmq.clustering.running.turn import LoopTurn
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import incarnation_of, slot_of, split_scope, store_of
from vmq.clustering.streams.replicas import Replicas
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.node import ClusterNode
from vmq_cluster.rollcall import STOPPED

log = logging.getLogger("vmq.cluster")

#: Under this prefix of the metadata each member says which store it has, on which host.
MEMBERS: Final = "vmq.slot.members"
#: Seconds between two looks at clocks.
TICK: Final = 0.1
#: Looks until options are read, and it is counted what slots lack.
LOOKS_A_SECOND: Final = 10
#: Seconds that a node which stops has to hand its slots over, and between two looks meanwhile.
HAND_OVER: Final = 5.0
_LOOK: Final = 0.02
#: What `PeerDown` says of a process that has ended.
_ENDED: Final = ("its process has ended", STOPPED)


class SlotMember(msgspec.Struct, array_like=True, frozen=True):
    """What a member says of itself."""

    store: Annotated[int, Meta(ge=1, lt=1 << 28)]
    host: Annotated[str, Meta(max_length=255)]
    slots: Annotated[int, Meta(ge=1, le=2047)]


class SlotService:
    """Durable sessions in slots, on one node.

    Args:
        options: the section [cluster].
        disk: of this node's slots.
        node: not started yet.
        core: the broker's.
        outboxes: messages go and come by these.
        routing: which asks for the slots of a topic.
        registries: the topic trees that there are.
        replicas: the logs with copies.
        random: draws the numbers of its store, and what else is to be like nobody else's.
    """

    def __init__(
        self,
        options: ClusterOptions,
        disk: SlotDisk,
        node: ClusterNode,
        core: Core,
        outboxes: Outboxes,
        routing: Routing,
        registries: Mapping[str, Registry],
        replicas: Replicas,
        random: Random | None = None,
    ) -> None:
        """Raises `ClusterError`, `StorageError`: the records cannot be used."""
        self._options = options
        self._node = node
        self._core = core
        self._outboxes = outboxes
        self._routing = routing
        self._registries = registries
        self._loop = asyncio.get_running_loop()
        self._random = SystemRandom() if random is None else random
        self.disk = disk
        self.store, life = disk.begin_life(options.slots, core.wall_clock(), self._random)
        host = options.host or node.name
        beats = options.heartbeat_timeout, options.heartbeat_interval
        reach = Reach(self.store, host, *(int(each * 1000) for each in beats))
        me = incarnation_of(self.store, life)
        self.here = here = LocalNode(me, reach, options.replicas, disk=disk.storage)
        self.machines = SessionNode(here, options.slots)
        self._tune()
        self._routes: ClusterRoutes | None = None
        self._barrier: SubscribeBarrier | None = None
        self.links = LinkLives(
            outboxes.send_at_once, self._draw, self._on_linked, self._on_broken, self._on_messages
        )
        self._turns = LoopTurn(self.machines, self.links, self.disk, core, self._announce)
        self._turns.is_on = lambda: self._is_running
        self.fronts = SlotFronts(self.machines, core, self._random, self._turns.soon)
        self.fronts.packets = SlotPackets(self.fronts)
        self._turns.fronts = self.fronts
        rows = SlotRows(self.machines, replicas, self.fronts, core, self._turns.soon)
        self._turns.hand_in = rows.hand_in
        self.status = SlotStatus(self.machines, lambda store: self._names.get(store, ""))
        #: The stores of other members by name, and names by store.
        self._stores: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._hosts: dict[int, str] = {}
        self._intake = SlotIntake(self.machines, self._stores.get, self._now, self._turns.soon)
        self._timer: asyncio.TimerHandle | None = None
        self._agreement: RouteAgreement | None = None
        self._unreadable: set[int] = set()
        #: It was taken out of the cluster, or has left.
        self._is_out = False
        #: Looks; those since somebody is in reach, or nobody.
        self._looks, self._looks_up, self._had_up = 0, 0, False
        outboxes.on(LinkHello, self._on_hello)
        outboxes.on(LinkFrame, self._on_frame)
        node.on(PeerUp, lambda effect: self.links.on_up(effect.peer))
        node.on(PeerDown, self._on_down)
        node.on(MembersChanged, lambda _: self._set_members())

    def _draw(self) -> int:
        return self._random.getrandbits(61) + 1

    # Its life

    def watch(self) -> None:
        """Hears of routes from now on; before any barrier of theirs is answered."""
        self._routes = ClusterRoutes(
            self._node, self.store, self.machines.routes, self._route_changed
        )

    def say_routes(self, slot: int, filters: set[str]) -> None:
        """Has messages that clients who are away want kept for a slot, before anybody serves it."""
        assert self._routes is not None, "it hears of routes"
        self._routes.say_stored(slot, filters)

    def start(self, barrier: SubscribeBarrier) -> None:
        """Serves from now on: the ports of the core are its own."""
        assert self._routes is not None, "it hears of routes"
        self._barrier = barrier
        parts = self.store, self.machines.slots, self._routes, barrier, self._hosts
        self._agreement = RouteAgreement(self._node, *parts, lambda: self._is_running)
        node, core = self._node, self._core
        node.watch(MEMBERS, lambda _: self._set_members())
        own = SlotMember(self.store, self._options.host or node.name, self._options.slots)
        node.put(MEMBERS, node.name.encode(), msgspec.msgpack.encode(own))
        self._set_members()
        for peer in node.up:
            self.links.on_up(peer)
        core.claims = SlotClaims(self.fronts, core.claims)
        core.propagation = SlotSubscriptions(self.fronts, core.propagation)
        core.sessions = SlotSessions(self.fronts, core.sessions)
        core.peers = SlotPeers(self.fronts, core.peers)
        given = self.machines, self.fronts, self._registries, core.choose
        self._routing.set_slots(SlotPublishes(*given))
        self._tick()

    def take_part(self) -> None:
        """It may have slots again."""
        self.here.is_leaving = self.here.leaves_host = False

    async def hand_over(self, seconds: float = HAND_OVER, *, leaves_host: bool = False) -> bool:
        """Others take this node's slots over, as far as there are any who can, and in time; whether all have gone.

        Nodes of its own host are among them if it leaves that: else they stop with it, or it comes back to its disk.
        """
        self.here.is_leaving, self.here.leaves_host = True, leaves_host
        deadline = self._loop.time() + seconds
        while self._may_give():
            if self._loop.time() > deadline:
                log.warning(
                    "%d slots are not handed over: others take them when this node is gone",
                    len(self.machines.slots.own()),
                )
                break
            self.machines.hand_over()
            self._turns.run()
            await asyncio.sleep(_LOOK)
        return not self.machines.slots.own()

    def _may_give(self) -> bool:
        """Whether it has slots that somebody could have, or is about to; one that leaves its host leaves nothing."""
        reach, slots, leaves = self.here.reach, self.machines.slots, self.here.leaves_host
        if not reach.up():
            knows_all = reach.is_settled() and len(self._stores) + 1 >= len(self._node.members)
            # Who is silent may be heard again in time: a loaded machine is enough for that.
            is_alone = knows_all and all(peer.is_dead for peer in reach.peers.values())
            return leaves and not is_alone and bool(slots.own())
        if any(owner.heirs() or owner.wish for owner in slots.owners.values()):
            return True
        return leaves and len(slots.own()) > len(slots.owners)

    async def stop(self) -> None:
        """Ends; nothing is handed over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._routing.set_slots(SlotTargets())
        self._intake.end()
        self.machines.end()
        self._turns.run()
        self._turns.patience.end()
        self._barrier = None
        await self.disk.close(self.here.effects)

    @property
    def _is_running(self) -> bool:
        return self._barrier is not None and self._node.is_running

    # Members and links

    def _set_members(self) -> None:
        """Who belongs to the cluster and has said which store it has.

        Who was taken out or has left still counts those that were with it: it has not what they had since, though
        nobody is there who could hand it in, and must not say so when it is let in again.

        What a member said before its store was known, or while it was taken for the one that it had before it lost its
        disk, it says again on a new link.
        """
        if self._barrier is None or not self._node.is_running:
            return
        is_out, was_out = not self._node.machine.membership.belongs, self._is_out
        self._is_out = is_out
        if was_out and not is_out:
            self.take_part()  # it had left, and gave all of its slots away
        members = self._node.members
        known = dict(self._stores)
        self._stores.clear()
        self._hosts.clear()
        for key, raw in self._node.items(MEMBERS):
            name = key.decode(errors="replace")
            try:
                member = msgspec.msgpack.decode(raw, type=SlotMember)
            except ValueError as error:
                log.error("what node %s says of its slots is passed over: %s", name, error)
                continue
            if (is_out or name in members) and name != self._node.name:
                self._stores[name] = member.store
                self._hosts[member.store] = member.host
        self._names = {store: name for name, store in self._stores.items()}
        self._turns.names = self._names
        self.here.reach.set_members(self._hosts)
        for name, store in self._stores.items():
            if known.get(name) != store:
                self.links.renew(name)

    def _on_down(self, effect: PeerDown) -> None:
        self.links.on_down(effect.peer, effect.reason in _ENDED)
        self._turns.soon()

    def _on_hello(self, peer: str, hello: LinkHello) -> None:
        self.links.on_hello(peer, hello)
        self._turns.soon()

    def _on_frame(self, peer: str, frame: LinkFrame) -> None:
        try:
            self.links.on_frame(peer, frame)
        except (ValueError, RecursionError) as error:
            self._node.drop(peer, f"no messages about slots: {error}")
        self._turns.soon()

    def _on_linked(self, peer: str, life: int) -> None:
        if (store := self._stores.get(peer)) is not None:
            self.machines.on_link(store, life)
            self.machines.beat(store)

    def _on_broken(self, peer: str, is_dead: bool) -> None:
        self._intake.lose(peer)
        if (store := self._stores.get(peer)) is not None:
            self.machines.on_break(store, is_dead)

    def _on_messages(self, peer: str, messages: list[NodeMessage]) -> None:
        self._intake.take(peer, messages)

    # Time

    def _tick(self) -> None:
        self._timer = self._loop.call_at(self._node.next_tick(TICK), self._tick)
        if not self._node.is_running:
            return
        try:
            self._look()
        except Exception:
            log.exception("internal error in a look at slots")

    def _look(self) -> None:
        self._looks += 1
        is_second = self._looks % LOOKS_A_SECOND == 0
        self.here.tells_kept = self._core.hooks.on_offline_message is not None
        if not is_second and self._is_at_rest() and self.machines.rests(self._now()):
            return
        self.links.look()
        self.fronts.tell_fresh()
        slots = self.machines.slots
        is_whole = len(slots.views) == slots.slots
        if not is_whole and not self._core.shut_to_clients and self._may_found():
            slots.found()
        self.machines.tick(self._now())
        self._tell_unreadable()
        if self._agreement is not None:
            self._agreement.look(is_second)
        if is_second:
            self._tune()
            self.status.look()
        self._turns.run()

    def _is_at_rest(self) -> bool:
        """Whether a look waits for nothing but the machines."""
        slots, agreement = self.machines.slots, self._agreement
        has_work = self.fronts.has_fresh() or self.here.effects.unreadable or self._unreadable
        is_done = len(slots.views) == slots.slots and agreement is not None and agreement.rests()
        return is_done and not has_work and self.links.are_whole()

    def _tell_unreadable(self) -> None:
        """Slots that cannot be read are told once, and tried again."""
        unreadable = self.here.effects.unreadable
        for slot in sorted(unreadable.keys() - self._unreadable):
            log.error("slot %d is not served: %s", slot, unreadable[slot])
        self._unreadable = set(unreadable)

    def _now(self) -> int:
        return int(self._core.wall_clock() * 1000)

    def _tune(self) -> None:
        """Options may change while the broker runs."""
        self.here.limits.set(limits_as_configured(self._core.options))

    def _may_found(self) -> bool:
        """Whether slots that nobody has named have no owner: who could know is in reach, or there is nobody."""
        reach = self.here.reach
        others = [name for name in self._node.members if name != self._node.name]
        if not others:
            return True
        up = reach.up()
        self._looks_up = self._looks_up + 1 if bool(up) == self._had_up else 0
        self._had_up = bool(up)
        if self._looks_up * TICK > 2 * self._options.heartbeat_timeout:
            return True  # they know of none, too
        has_all = len(self._stores) == len(others)
        return has_all and any(store in self.machines.slots.told_by for store in up)

    def _route_changed(self, topic_filter: str) -> None:
        scope, topic_filter = split_scope(topic_filter)
        registry = self._registries.get(scope[1:-1])
        if registry is not None:
            registry.routes.filter_changed(topic_filter)

    # Effects

    def _announce(self) -> None:
        effects = self.here.effects
        routes, effects.routes = effects.routes, []
        presence, effects.presence = effects.presence, []
        assert self._barrier is not None and self._routes is not None
        for slot, ticket, begun, ended in routes:
            owner = self.machines.slots.owners.get(slot)
            epoch = 0 if owner is None else owner.view.epoch
            pending = self._routes.announce(slot, epoch, begun, ended, self._barrier)
            if pending is None:
                self.machines.announced(slot, ticket)
                self._turns.soon()
            else:
                pending.then = self._announced(slot, ticket)
        for told in presence:
            self._routes.tell_presence(*told)

    def _announced(self, slot: int, ticket: int) -> Callable[[object], None]:
        def then(_: object) -> None:
            self.machines.announced(slot, ticket)
            self._turns.soon()

        return then

    # What is shown

    @property
    def name(self) -> str:
        """This node's."""
        return self._node.name

    def owner_of(self, client_id: str) -> str:
        """The node that has a client's session; "": nobody in the cluster does."""
        store = self.status.owner_of(client_id)
        return self.name if store == self.store else self._names.get(store, "")

    def owner_of_slot(self, slot: int) -> str:
        """The node that has a slot; "": nobody in the cluster does."""
        store = store_of(self.machines.slots.view(slot).owner)
        return self.name if store == self.store else self._names.get(store, "")

    def keepers_of(self, client: str) -> list[str]:
        """The nodes of other hosts that have a client's slot, its owner first, and then the rest of them."""
        slots, reach = self.machines.slots, self.here.reach
        view = slots.view(slot_of(client, slots.slots))
        stores = dict.fromkeys((store_of(view.owner), *view.followers, *sorted(self._hosts)))
        return [
            self._names[each] for each in stores if each in self._names and not reach.is_here(each)
        ]

    def tally(self, name: str) -> SlotTally | None:
        """The slots of a node; None: it has not said who it is."""
        store = self.store if name == self.name else self._stores.get(name)
        return None if store is None else self.status.tally(store)

    def end_session(self, client_id: str) -> None:
        """Ends a session, wherever it is, and the connection that it has."""
        self.fronts.end(client_id)

    def unsubscribe(self, client_id: str, topic_filter: str) -> None:
        """Ends a subscription of a session that this node owns and whose client is away."""
        self.machines.unsubscribe(client_id, topic_filter)
        self._turns.soon()

    def purge(self, client_id: str, reason: str) -> int:
        """Drops what waits for a client whose session this node has, connected or not."""
        count = self.machines.purge(client_id, reason)
        self._turns.soon()
        return count

    def peers(self) -> list[str]:
        """The other nodes in reach."""
        return [name for name, store in self._stores.items() if self.here.reach.is_up(store)]

    def problems(self) -> Iterator[str]:
        """What is wrong with the sessions in slots."""
        yield from self.status.problems(int(self._options.heartbeat_timeout))
        if self.disk.failure:
            yield f"the records of slots cannot be written: {self.disk.failure}"
        for slot, reason in sorted(self.here.effects.unreadable.items()):
            yield f"slot {slot} is not served: {reason}; without this disk the other nodes serve their copies of it"
        others = set(self._node.members) - {self._node.name} - set(self._stores)
        if others:
            yield f"these nodes have not said which slots they have: {' '.join(sorted(others))}"
        if len(self._names) < len(self._stores) or self.store in self._names:
            yield "two nodes have the same store: one of the data directories is a copy"
